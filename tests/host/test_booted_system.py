# SPDX-License-Identifier: Apache-2.0
"""What runs since the boot, from the files of a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.host.booted_system import HostBootedSystem


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(("text", "fips"), [("1\n", True), ("0\n", False), (None, False)])
async def test_fips_mode_is_what_the_kernel_reports(tmp_path: Path, text: str | None, fips: bool) -> None:
    if text is not None:
        write(tmp_path, "proc/sys/crypto/fips_enabled", text)
    assert await HostBootedSystem(tmp_path).fips() is fips


async def test_the_name_has_version_and_deployment(tmp_path: Path) -> None:
    write(tmp_path, "etc/os-release", "NAME=\"Fedora CoreOS\"\nVERSION_ID=41\nOSTREE_VERSION='41.5.0'\n")
    link = tmp_path / "ostree/boot.1/os/abc/0"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../../deploy/os/deploy/0123456789abcdef.1")
    write(tmp_path, "proc/cmdline", "root=LABEL=root ostree=/ostree/boot.1/os/abc/0 quiet")
    assert await HostBootedSystem(tmp_path).name() == "Fedora CoreOS 41.5.0 (deployment 0123456789ab.1)"


async def test_a_host_without_deployments_has_a_name_too(tmp_path: Path) -> None:
    assert await HostBootedSystem(tmp_path).name() == "an operating system without a name"
    write(tmp_path, "usr/lib/os-release", "ID=debian\nVERSION_ID=13\n")
    assert await HostBootedSystem(tmp_path).name() == "debian 13"
