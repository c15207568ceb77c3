# SPDX-License-Identifier: Apache-2.0
"""The output of programs that may be missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeagent.host import programs as host_programs
from nodeagent.host.ostree.programs import ostree_version, output_of


async def test_the_version_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "ostree"
    program.write_text("#!/bin/sh\nprintf \"libostree:\\n Version: '2025.2'\\n Features:\\n  - libcurl\\n\"\n")
    program.chmod(0o755)
    monkeypatch.setitem(host_programs.ENVIRONMENT, "PATH", f"{programs}:{os.environ['PATH']}")
    assert await ostree_version() == (2025, 2)
    monkeypatch.setitem(host_programs.ENVIRONMENT, "PATH", str(tmp_path))
    assert await ostree_version() == (0, 0)


async def test_a_program_that_hangs_is_ended() -> None:
    assert await output_of("sh", "-c", "echo no; exec sleep 60", deadline=0.2) == ()
    assert await output_of("echo", "yes", deadline=5) == ["yes"]
