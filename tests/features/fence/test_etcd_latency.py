# SPDX-License-Identifier: Apache-2.0
"""The benchmark of etcd's disk, over files and over a server with pages like etcd's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from integration.bench.fence.etcd_latency import main
from nodeagent.features.fence.decide.histogram import BACKEND_COMMIT, WAL_FSYNC

BOUNDS = ("0.001", "0.008", "0.016", "0.128", "1.024", "+Inf")


def page(*counts: int) -> str:
    """Return a page with both histograms, the second with half the counts."""
    lines = [f'{WAL_FSYNC}_bucket{{le="{le}"}} {count}' for le, count in zip(BOUNDS, counts, strict=True)]
    lines += [f'{BACKEND_COMMIT}_bucket{{le="{le}"}} {count // 2}' for le, count in zip(BOUNDS, counts, strict=True)]
    return "\n".join(lines) + "\n"


IDLE = page(0, 0, 0, 0, 0, 0)
BEFORE = page(1000, 1000, 1000, 1000, 1000, 1000)
DURING = page(1000, 1800, 1990, 1999, 2000, 2000)


def kept(directory: Path, name: str, second: int, text: str) -> str:
    path = directory / name
    path.write_text(f"# taken at 2026-11-21T03:00:{second:02}.000Z\n{text}")
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


def test_a_report_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [kept(tmp_path, n, s, t) for n, s, t in (("a", 0, IDLE), ("b", 10, BEFORE), ("c", 30, DURING))]
    code, out, _ = run(capsys, "--before", *files[:2], "--during", *files[1:])
    assert code == 0
    wal, during, *_ = (line.split() for line in out.splitlines()[1:])
    assert wal == ["wal_fsync", "before", "10", "s", "1000", "1.0", "ms", "(0", "to", "1)", "0", "0", "0", "0"]
    assert during == ["wal_fsync", "during", "20", "s", "1000", "16.0", "ms", "(8", "to", "16)", "200", "10", "1", "0"]


def test_json_marks_what_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = page(100, 100, 100, 100, 100, 100)
    beyond = page(100, 100, 100, 100, 100, 600)
    files = [kept(tmp_path, n, s, t) for n, s, t in (("a", 0, IDLE), ("b", 10, few), ("c", 20, beyond), ("d", 25, few))]
    code, out, _ = run(capsys, "--json", "--before", *files[:2], "--during", *files[1:3], "--after", *files[2:])
    assert code == 0
    answer = json.loads(out)
    assert answer["schema"] == "nodeagent/bench-etcd-latency/v1"
    figures: list[dict[str, Any]] = [each for each in answer["figures"] if each["name"] == "wal_fsync"]
    assert [each["p99"] for each in figures] == [
        {"standing": "too-few", "ms": None, "over_ms": None, "up_to_ms": None},
        {"standing": "beyond", "ms": None, "over_ms": 1024.0, "up_to_ms": None},
        {"standing": "too-few", "ms": None, "over_ms": None, "up_to_ms": None},
    ]
    assert [(each["seconds"], each["restarts"]) for each in figures] == [(10, 0), (10, 0), (5, 1)]
    assert figures[1]["above"][0] == {"ms": 8, "least": 500, "most": 500}
    code, out, _ = run(capsys, "--before", *files[:2], "--during", *files[1:3], "--after", *files[2:])
    assert ("too few samples" in out, "over 1024 ms" in out, "restarted 1 times" in out) == (True, True, True)


@pytest.mark.parametrize("words", [["--before", "one"], ["--during", "one", "missing"], ["--after", "one", "noise"]])
def test_what_is_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept(tmp_path, "one", 0, IDLE)
    kept(tmp_path, "noise", 9, f'{WAL_FSYNC}_bucket{{le="1"}} x\n')
    code, out, err = run(capsys, *words)
    assert (code != 0, out, err.count("\n")) == (True, "", 1)


class Server(HTTPServer):
    pages: Iterator[str]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        body = next(self.server.pages).encode()
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.pages = iter([IDLE, IDLE, IDLE, BEFORE])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()
        thread.join()


def test_two_pages_taken_now(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--url", url, "--seconds", "0.01", "--json")
    assert code == 0
    first = json.loads(out)["figures"][0]
    assert (first["name"], first["when"], first["samples"]) == ("wal_fsync", "now", 1000)
    assert 0 < first["seconds"] < 60


def test_a_page_that_is_kept_can_be_read_again(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(tmp_path / name) for name in ("a", "b")]
    assert [run(capsys, "--url", url, "--save", name)[0] for name in names] == [0, 0]
    code, out, _ = run(capsys, "--during", *names, "--json")
    assert (code, json.loads(out)["figures"][0]["samples"]) == (0, 1000)


def test_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--url", "http://127.0.0.1:9/metrics")
    assert (code, out) == (1, "")
    assert err.startswith("NoMetrics: http://127.0.0.1:9/metrics: ")
