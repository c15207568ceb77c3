# SPDX-License-Identifier: Apache-2.0
"""The rules for updates of the OS from a host: its file, its facts, and a server of graphs that answers badly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import AgentError, InvalidInput, full_text
from nodeagent.features.update_graph import jumps
from nodeagent.features.update_graph.decide.release import Jump, Release
from nodeagent.features.update_graph.jumps import MAX_CONTENT, HostJumps
from nodeagent.features.update_graph.selfcheck import reach_graph
from nodeagent.features.update_graph.settings import GraphSettings
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.schema import Settings
from tests.features.update_graph.test_graph import node
from tests.support.tls_server import PATIENT, SHORT, TlsServer, http, pair, serving

__all__ = ["pair"]

UP = Jump(Release("41.1"), Release("43.1"))
GRAPH = {"nodes": [node("41.1"), node("42.1", barrier="true", barrier_reason="keys"), node("43.1")], "edges": [[0, 1]]}
SKIPPED = "BarrierSkipped: 41.1 -> 43.1 skips a version that must not be skipped: go to 42.1 first"


async def checked(gate: HostJumps, jump: Jump = UP) -> str:
    """Return the notes and warnings, or the reason and the message of the refusal."""
    try:
        found = await gate.check(jump)
    except AgentError as error:
        return f"{error.reason}: {full_text(error)}"
    return "; ".join((*found.notes, *found.warnings))


async def asked(answer: bytes, pair: tuple[str, str], root: Path, *, timeout: float = PATIENT, **more: Any) -> str:
    stall = bool(more.pop("stall", False))
    async with serving(TlsServer(answer, stall), pair) as server:
        url = f"https://127.0.0.1:{server.port}/v1/graph?stream=stable"
        settings = GraphSettings(**{"url": url, "ca": pair[0], **more})
        found = await checked(HostJumps(settings, root, str(root / "none"), timeout))
        assert all(request.startswith("GET /v1/graph?stream=stable HTTP/1.1") for request in server.requests)
        return found.replace(url, "URL")


async def test_without_rules_nothing_is_asked(tmp_path: Path) -> None:
    assert await checked(HostJumps(GraphSettings(), tmp_path, str(tmp_path / "none"))) == ""


async def test_a_barrier_of_the_graph_is_not_skipped(pair: tuple[str, str], tmp_path: Path) -> None:
    assert await asked(http(200, GRAPH), pair, tmp_path) == f"{SKIPPED} (keys)"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (http(400, {"kind": "missing_params", "value": "channel"}), "status 400, missing_params: channel"),
        (http(404, b"no"), "status 404"),
        (http(302, b"", "Location: https://elsewhere.example/\r\n"), "status 302"),
        (http(200, {"status": "success"}), "the answer is no update graph"),
        (http(200, {**GRAPH, "edges": [[0, 9]]}), "an edge of the graph is no pair of releases"),
    ],
)
@pytest.mark.parametrize("then", ["hold", "go"])
async def test_an_answer_that_is_no_graph_always_holds(
    pair: tuple[str, str], tmp_path: Path, answer: bytes, why: str, then: str
) -> None:
    assert await asked(answer, pair, tmp_path, on_unreachable=then) == f"GraphRejected: URL: {why}"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (http(503, {"kind": "failed_upstream_fetch", "value": "x"}), "status 503, failed_upstream_fetch: x"),
        (http(429, b""), "status 429"),
        (http(200, b"<html>login</html>"), "the answer is no JSON object"),
        (http(200, b"[" * 200_000), "the answer is no JSON object"),
        (http(200, b" " * (5 << 20)), "the answer is larger than 4194304 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "the answer is cut off, or is no HTTP"),
    ],
)
async def test_a_server_that_does_not_answer_holds_or_not_as_set(
    pair: tuple[str, str], tmp_path: Path, answer: bytes, why: str
) -> None:
    assert await asked(answer, pair, tmp_path) == f"GraphUnreachable: URL: {why}"
    found = await asked(answer, pair, tmp_path, on_unreachable="go")
    assert found == f"warning: continuing without the update graph: URL: {why}"


async def test_a_slow_server_is_given_up(pair: tuple[str, str], tmp_path: Path) -> None:
    found = await asked(b"HTTP/1.1 200 OK\r\n", pair, tmp_path, timeout=SHORT, stall=True)
    assert found == "GraphUnreachable: URL: no answer in 0.5 s"


async def test_an_unknown_authority_is_not_trusted(pair: tuple[str, str], tmp_path: Path) -> None:
    found = await asked(http(200, GRAPH), pair, tmp_path, ca="")
    assert found.startswith("GraphUnreachable: URL: its certificate is not accepted")
    found = await asked(http(200, GRAPH), pair, tmp_path, ca="/nonexistent/ca.pem", on_unreachable="go")
    assert found == "GraphRejected: URL: the authority cannot be used: No such file or directory"


async def test_the_selfcheck_reads_the_graph(pair: tuple[str, str]) -> None:
    async with serving(TlsServer(http(200, GRAPH)), pair) as server:
        settings = GraphSettings(f"https://127.0.0.1:{server.port}/graph", pair[0])
        found = await reach_graph(settings)
        assert (found.target, found.error) == (f"{settings.url}: 3 releases", "")
    found = await reach_graph(GraphSettings("https://127.0.0.1:1/graph"))
    assert (found.error, found.remedy.startswith("check graph.url")) == ("Connection refused", True)


def gate(root: Path, rules: str) -> HostJumps:
    path = root / "update-path.yaml"
    path.write_text(rules)
    path.chmod(0o644)
    return HostJumps(GraphSettings(), root, str(path))


async def test_the_file_of_the_admin(tmp_path: Path) -> None:
    assert await checked(gate(tmp_path, 'barriers: [{version: "42.1"}]')) == SKIPPED
    assert (await checked(gate(tmp_path, "barriers: 7"))).startswith("UpdatePathInvalid: /etc/nodeagent/update-path")
    unsafe = gate(tmp_path, "barriers: []")
    Path(unsafe.path).chmod(0o666)
    assert "is writable for users other than root" in await checked(unsafe)
    Path(unsafe.path).unlink()
    os.mkfifo(unsafe.path)
    assert "is not a regular file" in await checked(unsafe)


def write(root: Path, path: str, text: str) -> None:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


TO_10 = Jump(Release("9.6"), Release("10.1"))
DROP_IN = "/etc/crio/crio.conf.d/01-runtime"
RUNC = '[crio.runtime]\ndefault_runtime = "runc"\n'


def el9(root: Path, flags: str = "") -> HostJumps:
    write(root, "/etc/os-release", 'NAME="x"\nID="rhel"\n')
    write(root, "/proc/cpuinfo", f"processor : 0\nflags : {flags}\nprocessor : 1\nflags : {flags} more\n")
    return HostJumps(GraphSettings(), root, str(root / "none"))


V3 = "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"


async def test_a_host_that_meets_the_requirements(tmp_path: Path) -> None:
    notes = "requirements of 10.1: cgroup-v1-el10, runc-el10, ifcfg-el10, x86-64-v3-el10"
    assert await checked(el9(tmp_path, V3), TO_10) == notes


async def test_every_requirement_that_is_not_met_is_named(tmp_path: Path) -> None:
    write(tmp_path, DROP_IN, RUNC)
    write(tmp_path, "/etc/sysconfig/network-scripts/ifcfg-eth0", "")
    v1 = Jump(Release("9.6"), Release("10.1"), ("systemd.unified_cgroup_hierarchy=0",))
    found = await checked(el9(tmp_path, "sse2"), v1)
    assert found.startswith("RequirementUnmet: this host does not meet 4 requirements of 10.1; cgroup-v1-el10: ")
    for name in ("runc-el10: the host has", "ifcfg-el10: the host has", "x86-64-v3-el10: the host lacks avx,"):
        assert name in found


async def test_files_count_as_they_are_after_the_update(tmp_path: Path) -> None:
    gate = el9(tmp_path, V3)
    write(tmp_path, DROP_IN, RUNC)
    after: list[dict[str, bytes | None]] = [{DROP_IN: None}, {DROP_IN: b'default_runtime = "crun"\n'}]
    for managed in after:
        assert "requirements of" in await checked(gate, Jump(Release("9.6"), Release("10.1"), managed=managed))
    brought: dict[str, bytes | None] = {DROP_IN: None, "/etc/crio/crio.conf": RUNC.encode()}
    found = await checked(gate, Jump(Release("9.6"), Release("10.1"), managed=brought))
    assert 'the host has default_runtime = "runc" in /etc/crio/crio.conf;' in found


async def test_a_file_that_cannot_be_read_holds(tmp_path: Path) -> None:
    gate = el9(tmp_path, V3)
    write(tmp_path, DROP_IN, "#" * (MAX_CONTENT + 1))
    assert await checked(gate, TO_10) == (
        f"RequirementUnmet: {DROP_IN} cannot be read for a requirement: it has more than {MAX_CONTENT} bytes"
    )
    (tmp_path / DROP_IN[1:]).unlink()
    os.mkfifo(tmp_path / DROP_IN[1:])
    assert "it is no regular file" in await checked(gate, TO_10)


async def test_a_directory_with_too_many_entries_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = el9(tmp_path, V3)
    for name in "abc":
        write(tmp_path, f"/etc/crio/crio.conf.d/{name}", "")
    monkeypatch.setattr(jumps, "MAX_ENTRIES", 3)
    assert "requirements of" in await checked(gate, TO_10)
    monkeypatch.setattr(jumps, "MAX_ENTRIES", 2)
    assert "/etc/crio/crio.conf.d cannot be read for a requirement: it has more than 2" in await checked(gate, TO_10)


async def test_another_processor_has_no_such_flags(tmp_path: Path) -> None:
    gate = el9(tmp_path)
    write(tmp_path, "/proc/cpuinfo", "processor : 0\nFeatures : fp asimd\n")
    assert "requirements of 10.1" in await checked(gate, TO_10)


def test_an_authority_needs_a_server() -> None:
    with pytest.raises(InvalidInput, match=r"graph\.ca needs"):
        check_consistency(Settings(parts=(GraphSettings(ca="/c"),)))
    check_consistency(Settings(parts=(GraphSettings(url="https://g", ca="/c"),)))
