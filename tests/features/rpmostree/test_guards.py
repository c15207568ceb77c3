# SPDX-License-Identifier: Apache-2.0
"""Other updaters of this host, and free space."""

from __future__ import annotations

import os as system
from pathlib import Path
from types import SimpleNamespace

import pytest
from dbus_next import Variant

from nodeagent.core.plan.deployment import OsTarget
from nodeagent.errors import AgentError, Refused, Terminal
from nodeagent.features.rpmostree.adapter import RpmOstree
from nodeagent.host.dbus.client import Bus
from nodeagent.host.ostree import checks
from nodeagent.host.systemd import Systemd
from tests.features.rpmostree.adapters import IMAGE, INACTIVE, adapter
from tests.features.rpmostree.fake_rpmostree import A, B, C, FakeRpmOstree
from tests.host.fake_systemd import FakeSystemd
from tests.support.fixtures import PrivateBus
from tests.support.vardict import vardict

MIB = 1 << 20
ACTIVE = {"ActiveState": Variant("s", "active")}


@pytest.fixture
def daemon(daemon: FakeRpmOstree, tmp_path: Path) -> FakeRpmOstree:
    (tmp_path / "sysroot").mkdir()
    (tmp_path / "boot").mkdir()
    return daemon


async def refused(os: RpmOstree, target: OsTarget = IMAGE, kind: type[AgentError] = Refused) -> AgentError:
    with pytest.raises(kind) as caught:
        await os.check_stageable(target)
    return caught.value


async def test_no_other_client_and_enough_room(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    await os.check_stageable(IMAGE)
    assert not daemon.requests


@pytest.mark.parametrize("unit", ["zincati.service", "bootc-fetch-apply-updates.timer"])
async def test_another_driver_that_runs(os: RpmOstree, manager: FakeSystemd, unit: str) -> None:
    manager.units[unit] = ACTIVE
    error = await refused(os)
    assert error.reason == "OtherDriver"
    assert error.hint == f"systemctl disable --now {unit}"


@pytest.mark.parametrize("policy", ["none", "check", "stage", "apply"])
async def test_the_daemons_own_updates(os: RpmOstree, daemon: FakeRpmOstree, policy: str) -> None:
    daemon.policy = policy
    if policy in ("none", "check"):
        await os.check_stageable(IMAGE)
    else:
        assert f"AutomaticUpdatePolicy={policy}" in (await refused(os)).message


@pytest.mark.parametrize(
    ("unit", "runs", "is_refused"),
    [
        ("fleet.service", True, True),
        ("fleet.service", False, False),  # it registered and was stopped: the note stays until the next boot
        ("nodeagent.service", True, False),
    ],
)
async def test_a_driver_that_registered(
    os: RpmOstree, daemon: FakeRpmOstree, manager: FakeSystemd, unit: str, runs: bool, is_refused: bool
) -> None:
    manager.units[unit] = ACTIVE if runs else INACTIVE
    note = daemon.root / "run/rpm-ostree/update-driver.gv"
    note.parent.mkdir()
    note.write_bytes(vardict({"driver-name": "Fleet", "driver-sd-unit": unit}))
    if is_refused:
        assert "updated by Fleet" in (await refused(os)).message
    else:
        await os.check_stageable(IMAGE)


async def test_too_little_room_in_the_repository(
    private_bus: PrivateBus, bus: Bus, manager: FakeSystemd, daemon: FakeRpmOstree
) -> None:
    error = await refused(adapter(private_bus, Systemd(bus), daemon.root, min_free=1 << 60), kind=Terminal)
    assert error.reason == "NoSpace"


# -- /boot ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def boot(daemon: FakeRpmOstree, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file system of its own with two kernels of 40 MiB, and as much free as a test says."""
    path = daemon.root / "boot"
    for checksum in (A, C):
        kernel = path / "ostree" / f"fedora-coreos-{checksum}" / "vmlinuz-6.1"
        kernel.parent.mkdir(parents=True)
        with kernel.open("wb") as file:
            file.truncate(40 * MIB)
    real = Path.stat

    def stat(self: Path, *, follow_symlinks: bool = True) -> system.stat_result:
        found = real(self, follow_symlinks=follow_symlinks)
        if self != path:
            return found
        fields = list(found)
        fields[2] += 1  # st_dev
        return system.stat_result(fields)

    monkeypatch.setattr(Path, "stat", stat)
    return path


def given(monkeypatch: pytest.MonkeyPatch, os: RpmOstree, *, free: int, version: tuple[int, int]) -> None:
    real = system.statvfs

    def statvfs(path: Path) -> object:
        if Path(path).name == "boot":
            return SimpleNamespace(f_bavail=free, f_frsize=MIB)
        return real(path)

    async def known() -> tuple[int, int]:
        return version

    monkeypatch.setattr(checks.os, "statvfs", statvfs)
    monkeypatch.setattr(checks, "ostree_version", known)


@pytest.mark.parametrize(
    ("free", "version", "pinned", "fits"),
    [
        (41, (2022, 7), False, True),
        (39, (2022, 7), False, False),  # all three have to fit at once
        (0, (2023, 7), False, True),  # the rollback's kernel goes first
        (39, (2025, 2), True, False),  # unless it is pinned
    ],
)
async def test_room_for_a_kernel(
    os: RpmOstree,
    daemon: FakeRpmOstree,
    boot: Path,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    version: tuple[int, int],
    pinned: bool,
    fits: bool,
) -> None:
    daemon.deployments[1]["pinned"] = pinned
    given(monkeypatch, os, free=free, version=version)
    if fits:
        await os.check_stageable(IMAGE)
    else:
        error = await refused(os)
        assert (error.reason, f"{free} MiB" in error.message, "needs 40" in error.message) == ("BootFull", True, True)


async def test_kernel_arguments_need_no_kernel(
    os: RpmOstree, daemon: FakeRpmOstree, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, os, free=0, version=(2022, 7))
    await os.check_stageable(OsTarget(kernel_arguments=("nosmt",)))


async def test_a_boot_directory_on_the_same_file_system(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    (daemon.root / "boot/ostree" / f"fedora-coreos-{A}").mkdir(parents=True)
    daemon.stage(checksum=B)
    await os.check_stageable(IMAGE)
