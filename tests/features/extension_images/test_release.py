# SPDX-License-Identifier: Apache-2.0
"""Whether an image fits the host, by the rules of systemd-sysext, and how its extension-release is read.

A stand-in for systemd-run has what systemd would mount. The ring of the hosts has the real one.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.features.extension_images import release
from nodeagent.features.extension_images.decide import release_of, unfit
from nodeagent.features.extension_images.release import why_unfit
from nodeagent.host import programs as host_programs
from tests.support.transient import SYSTEMCTL

DEBIAN = {"ID": "debian", "VERSION_ID": "13"}
LEVEL = {**DEBIAN, "SYSEXT_LEVEL": "2"}
ROLLING = {"ID": "arch"}
COREOS = {"ID": "rhcos", "ID_LIKE": "rhel fedora", "VERSION_ID": "4.20"}
FILE = "/var/lib/nodeagent-fetched/sha256-1.raw"


@pytest.mark.parametrize(
    ("host", "extension", "cause"),
    [
        (DEBIAN, "ID=_any", ""),
        (DEBIAN, "ID=_any VERSION_ID=1 SYSEXT_LEVEL=9", ""),
        (DEBIAN, "ID=debian VERSION_ID=13", ""),
        (DEBIAN, "ID=debian VERSION_ID=12", "VERSION_ID is '12', and this host has '13'"),
        (DEBIAN, "ID=debian", "VERSION_ID is missing, and this host has '13'"),
        (DEBIAN, "ID=debian VERSION_ID=", "VERSION_ID is missing, and this host has '13'"),
        (DEBIAN, "ID=fedora VERSION_ID=13", "ID is 'fedora', and this host has 'debian'"),
        (DEBIAN, "VERSION_ID=13", "ID is missing"),
        (DEBIAN, "", "ID is missing"),
        # A level counts where both have one, and then the version does not.
        (LEVEL, "ID=debian SYSEXT_LEVEL=2 VERSION_ID=1", ""),
        (LEVEL, "ID=debian SYSEXT_LEVEL=1 VERSION_ID=13", "SYSEXT_LEVEL is '1', and this host has '2'"),
        (LEVEL, "ID=debian VERSION_ID=13", ""),
        (LEVEL, "ID=debian VERSION_ID=1", "VERSION_ID is '1', and this host has '13'"),
        (DEBIAN, "ID=debian SYSEXT_LEVEL=2", "VERSION_ID is missing, and this host has '13'"),
        ({"ID": "debian", "SYSEXT_LEVEL": "2"}, "ID=debian", ""),
        (ROLLING, "ID=arch", ""),
        (ROLLING, "ID=arch VERSION_ID=1 SYSEXT_LEVEL=2", ""),
        (ROLLING, "ID=debian", "ID is 'debian', and this host has 'arch'"),
        # Of systemd 257 on.
        (COREOS, "ID=fedora VERSION_ID=4.20", ""),
        (COREOS, "ID=fedora VERSION_ID=43", "VERSION_ID is '43', and this host has '4.20'"),
        (COREOS, "ID=debian VERSION_ID=4.20", "ID is 'debian', and this host has 'rhcos'"),
        (DEBIAN, "ID=_any ARCHITECTURE=x86-64", ""),
        (DEBIAN, "ID=_any ARCHITECTURE=_any", ""),
        (DEBIAN, "ID=_any ARCHITECTURE=", ""),
        (DEBIAN, "ID=_any ARCHITECTURE=arm64", "ARCHITECTURE is 'arm64', and this host has x86-64"),
        (DEBIAN, "ID=_any SYSEXT_SCOPE=system", ""),
        (DEBIAN, "ID=_any SYSEXT_SCOPE=portable", "SYSEXT_SCOPE is 'portable', without system"),
        # systemd-sysext itself fails there.
        ({}, "ID=debian", ""),
    ],
)
def test_what_fits(host: dict[str, str], extension: str, cause: str) -> None:
    assert unfit(release_of(extension.split()), host, "x86_64") == cause


def test_an_architecture_without_a_known_name_is_not_compared() -> None:
    built = {"ID": "_any", "ARCHITECTURE": "mips"}
    assert unfit(built, DEBIAN, "mips64") == ""
    assert "arm64" in unfit(built, DEBIAN, "aarch64")


def test_several_scopes() -> None:
    assert unfit({"ID": "_any", "SYSEXT_SCOPE": "initrd system"}, DEBIAN, "x86_64") == ""


def test_a_release_is_read_line_by_line() -> None:
    lines = ["# a comment", "", ' ID="debian" ', "VERSION_ID='13'\r", "no assignment", "lower=1", "1X=2", "ID_LIKE="]
    assert release_of(lines) == {"ID": "debian", "VERSION_ID": "13", "ID_LIKE": ""}


@dataclass
class Systemd:
    """systemd-run prints what ``program`` does, and notes its arguments."""

    tmp: Path

    def __post_init__(self) -> None:
        (self.tmp / "bin").mkdir()
        (self.tmp / "etc").mkdir()
        (self.tmp / "etc/os-release").write_text('ID=debian\nVERSION_ID="13"\n')
        self._put("systemctl", SYSTEMCTL)

    def runs(self, program: str) -> None:
        self._put("systemd-run", f'#!/bin/sh\nprintf "%s\\n" "$@" > {self.tmp}/arguments\n{program}\n')

    def _put(self, name: str, text: str) -> None:
        (self.tmp / "bin" / name).write_text(text)
        (self.tmp / "bin" / name).chmod(0o755)

    def arguments(self) -> list[str]:
        path = self.tmp / "arguments"
        return path.read_text().splitlines() if path.exists() else []

    async def cause(self, name: str = "app", file: str = FILE) -> str:
        return await why_unfit(file, name, self.tmp)


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    monkeypatch.setitem(host_programs.ENVIRONMENT, "PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return Systemd(tmp_path)


async def test_systemd_mounts_the_image_for_a_program_without_rights(systemd: Systemd) -> None:
    systemd.runs("echo ID=fedora; echo 'dd: noise' >&2; echo VERSION_ID=43")
    assert await systemd.cause() == "ID is 'fedora', and this host has 'debian'"
    arguments = systemd.arguments()
    mounted = "/run/nodeagent-extension-release"
    assert f"--property=MountImages={FILE}:{mounted}" in arguments
    assert "--property=CapabilityBoundingSet=" in arguments
    program = arguments[arguments.index("--") + 1 :]
    assert program[:3] == ["dd", f"if={mounted}/usr/lib/extension-release.d/extension-release.app", "iflag=nofollow"]


@pytest.mark.parametrize("text", ["ID=_any", "ID=debian; echo VERSION_ID=13"])
async def test_an_image_that_fits(systemd: Systemd, text: str) -> None:
    systemd.runs(f"echo {text}")
    assert await systemd.cause() == ""


async def test_the_architecture_is_that_of_this_host(systemd: Systemd) -> None:
    other = {"x86_64": "arm64"}.get(platform.machine(), "x86-64")
    systemd.runs(f"echo ID=_any; echo ARCHITECTURE={other}")
    assert "ARCHITECTURE" in await systemd.cause()


async def test_the_os_release_of_etc_comes_first(systemd: Systemd) -> None:
    systemd.runs("echo ID=debian; echo VERSION_ID=12")
    (systemd.tmp / "usr/lib").mkdir(parents=True)
    (systemd.tmp / "usr/lib/os-release").write_text("ID=debian\nVERSION_ID=12\n")
    assert "VERSION_ID" in await systemd.cause()
    (systemd.tmp / "etc/os-release").unlink()
    assert await systemd.cause() == ""
    (systemd.tmp / "usr/lib/os-release").unlink()
    assert await systemd.cause() == "", "the merge says what is wrong"


@pytest.mark.parametrize(
    "program",
    [
        # The mount failed, the file has another name, and the bus does not answer.
        "exit 226",
        "echo ID=fedora; exit 1",
        "echo 'Failed to start transient service unit' >&2; exit 1",
    ],
)
async def test_what_cannot_be_read_is_left_to_the_merge(systemd: Systemd, program: str) -> None:
    systemd.runs(program)
    assert await systemd.cause() == ""
    assert systemd.arguments()


async def test_a_host_without_the_program(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(host_programs.ENVIRONMENT, "PATH", f"{systemd.tmp}/none")
    assert await systemd.cause() == ""


async def test_a_read_without_an_end_is_ended(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "DEADLINE", 0.5)
    systemd.runs("exec sleep infinity")
    assert await systemd.cause() == ""
    assert (systemd.tmp / "bin/calls").read_text().splitlines()[-1].endswith("nodeagent-extension-release.service")


async def test_the_output_is_bounded(systemd: Systemd) -> None:
    systemd.runs(f"echo ID=fedora; echo X={'x' * 1000}; head -c 10000000 /dev/zero | tr '\\0' x")
    cause = await systemd.cause()
    assert cause == "ID is 'fedora', and this host has 'debian'"
    systemd.runs(f"echo ID={'x' * 5000}")
    assert len(await systemd.cause()) < 300


@pytest.mark.parametrize(
    ("name", "file"),
    [("a b", FILE), ("$HOME", FILE), ("a:b", FILE), ("app", "/var/lib/extensions/a:b.raw"), ("a%n", FILE), ("ä", FILE)],
)
async def test_a_name_with_a_meaning_for_systemd_is_not_passed_on(systemd: Systemd, name: str, file: str) -> None:
    systemd.runs("echo ID=fedora")
    assert await systemd.cause(name, file) == ""
    assert systemd.arguments() == []
