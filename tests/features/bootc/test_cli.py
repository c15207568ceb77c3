# SPDX-License-Identifier: Apache-2.0
"""`nodeagent write-sysroot` changes no mount of the host."""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodeagent.features.bootc import cli, units

ARGUMENTS = argparse.Namespace(arguments=["container", "image", "pull"])


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    ran: list[Any] = []

    def run(command: tuple[str, ...], **options: object) -> SimpleNamespace:
        assert options["capture_output"], "SELinux denies mount the output of this program"
        ran.append(command)
        return SimpleNamespace(returncode=0)

    def become(program: str, words: list[str]) -> None:
        ran.append((program, *words))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("os.execv", become)
    return ran


def test_not_in_the_mounts_of_the_host(
    mounts: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_mounts_of_the_host", lambda: True)
    assert cli.run(ARGUMENTS) == 1
    assert mounts == []
    assert "mount namespace of its own" in capsys.readouterr().err


def test_ostree_takes_its_place(mounts: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_mounts_of_the_host", lambda: False)
    cli.run(ARGUMENTS)
    assert mounts == [
        ("/usr/bin/mount", "-o", "remount,rw", "/sysroot"),
        ("/usr/bin/ostree", "/usr/bin/ostree", "container", "image", "pull"),
    ]


def test_a_mount_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli, "_mounts_of_the_host", lambda: False)
    monkeypatch.setattr(cli, "_REMOUNT", ("/usr/bin/mount", "-o", "remount,rw", "/sysroot/none"))
    assert cli.run(ARGUMENTS) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: mount: /sysroot/none"), "ostree begins the last line of each failure so, too"


def test_selinux_does_not_confine_it() -> None:
    """The domain that the module gives to the program of the daemon has no right to mount."""
    module = (Path(__file__).parents[3] / "packaging/selinux/nodeagent.cil").read_text()
    contexts = re.findall(r'^\(filecon "(.+?)" \w+ \(system_u object_r (\w+) ', module, re.MULTILINE)
    entries = [path for path, kind in contexts if kind == "nodeagent_exec_t"]
    assert entries == ["/usr/bin/nodeagent"]
    assert units._WRITABLE[0] not in entries
    assert entries[0] in units._WRITABLE
