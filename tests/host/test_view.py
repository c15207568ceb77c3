# SPDX-License-Identifier: Apache-2.0
"""The files of the host that domains read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeagent import domains
from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.sides import Sides
from nodeagent.host import view
from nodeagent.host.view import read_view
from tests.support.configs import config


class Kernel(Domain):
    """Patterns of the kernel's settings."""

    def reads(self, _sides: Sides) -> set[str]:
        return {PATTERN, "/proc/sys/net/**/x", "/etc/p*"}


PATTERN = "/proc/sys/net/conf/*/rp_filter"


class Chain(Domain):
    """Its file names the next one."""

    def reads(self, sides: Sides) -> set[str]:
        found = {"/etc/k.d/", "/etc/first"}
        for content in sides.before.values():
            if content.startswith(b"next="):
                found.add(content.decode().removeprefix("next="))
        return found


@pytest.fixture(autouse=True)
def only_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "DOMAINS", (Chain("k", "k"),))


def put(root: Path, path: str, content: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content)


async def test_files_that_files_name_are_read(tmp_path: Path) -> None:
    put(tmp_path, "/etc/first", "next=/etc/second")
    put(tmp_path, "/etc/second", "2")
    put(tmp_path, "/etc/k.d/sub/x.conf", "x")
    found = await read_view(config(), config(), tmp_path)
    assert dict(found.files) == {
        "/etc/first": b"next=/etc/second",
        "/etc/second": b"2",
        "/etc/k.d/sub/x.conf": b"x",
    }


async def test_what_is_no_file_or_too_large_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MAX_BYTES", 10)
    put(tmp_path, "/etc/first", "x" * 11)
    (tmp_path / "etc/k.d").mkdir()
    os.mkfifo(tmp_path / "etc/k.d/fifo")
    (tmp_path / "etc/k.d/link").symlink_to("nothing")
    assert dict((await read_view(config(), config(), tmp_path)).files) == {}


async def test_a_chain_without_an_end_is_cut(tmp_path: Path) -> None:
    put(tmp_path, "/etc/first", "next=/etc/1")
    for number in range(20):
        put(tmp_path, f"/etc/{number}", f"next=/etc/{number + 1}")
    assert len((await read_view(config(), config(), tmp_path)).files) == view.ROUNDS


async def test_a_pattern_brings_its_matches_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "DOMAINS", (Kernel("k", "k"),))
    for path in (
        "/proc/sys/net/conf/a/rp_filter",
        "/proc/sys/net/conf/b/rp_filter",
        "/proc/sys/net/x",
        "/etc/password",
    ):
        put(tmp_path, path, path[-13:])
    found = await read_view(config(), config(), tmp_path)
    assert dict(found.files) == {
        "/proc/sys/net/conf/a/rp_filter": b"f/a/rp_filter",
        "/proc/sys/net/conf/b/rp_filter": b"f/b/rp_filter",
        PATTERN: b"/proc/sys/net/conf/a/rp_filter\n/proc/sys/net/conf/b/rp_filter",
    }
    monkeypatch.setattr(view, "MAX_MATCHES", 1)
    assert dict((await read_view(config(), config(), tmp_path)).files) == {}
