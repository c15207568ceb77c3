# SPDX-License-Identifier: Apache-2.0
"""The version that a program reports."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.features.etcd_members import host as module
from nodeagent.features.etcd_members.host import program_version


def program(tmp_path: Path, text: str) -> str:
    path = tmp_path / "etcd"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def test_the_program_is_reaped_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A kill of a child that has just ended reaps it, and asyncio then logs an unknown child process."""
    etcd = program(tmp_path, "echo 'etcd Version: 3.6.8'; echo 'Git SHA: 1'")
    with caplog.at_level(logging.WARNING, "asyncio"):
        assert {await program_version(etcd) for _ in range(50)} == {"3.6.8"}
    assert not caplog.records


@pytest.mark.parametrize("text", ["echo Version: 3.6.8", "exit 1", "sleep 60"])
async def test_what_is_no_etcd(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERSION_TIMEOUT", 0.3)
    with pytest.raises(InvalidInput):
        await program_version(program(tmp_path, text))
    with pytest.raises(InvalidInput):
        await program_version(str(tmp_path / "missing"))
