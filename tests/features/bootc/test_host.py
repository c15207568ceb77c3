# SPDX-License-Identifier: Apache-2.0
"""Which hosts bootc updates, as their files and units show it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from dbus_next import Variant

from nodeagent.errors import Unreconcilable
from nodeagent.features.bootc.door import DOOR
from nodeagent.features.bootc.host import BOOTC, PULLER, check_puller, is_native, is_ours, read_os_service, sweep
from nodeagent.features.bootc.reasons import BootcReason
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd import Systemd
from nodeagent.reasons import hint
from tests.host.fake_systemd import FakeSystemd
from tests.host.ostree.fake_sysroot import FakeSysroot
from tests.support.fixtures import PrivateBus


def with_files(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


@pytest.mark.parametrize("program", [BOOTC, PULLER])
def test_an_image_that_it_serves(tmp_path: Path, program: str) -> None:
    assert DOOR.serves_tree is not None
    assert not DOOR.serves_tree(tmp_path)
    (tmp_path / program).parent.mkdir(parents=True)
    # The program of the other path may be the one, and a link of the image leads nowhere outside of it.
    (tmp_path / program).symlink_to("/usr/bin/bootc-1")
    assert DOOR.serves_tree(tmp_path)


@pytest.mark.parametrize("program", [BOOTC, PULLER])
async def test_a_host_without_rpm_ostree(bus: Bus, private_bus: PrivateBus, tmp_path: Path, program: str) -> None:
    systemd = FakeSystemd()
    systemd.properties["LoadState"] = Variant("s", "not-found")
    async with await systemd.start(private_bus.address):
        with_files(tmp_path, "run/ostree-booted")
        assert not await is_ours(Systemd(bus), tmp_path)
        with_files(tmp_path, program)
        assert await is_ours(Systemd(bus), tmp_path)
        (tmp_path / "run/ostree-booted").unlink()
        assert not await is_ours(Systemd(bus), tmp_path)


@pytest.mark.parametrize("load", ["loaded", "masked"])
async def test_rpm_ostree_beside_bootc_serves_the_host(
    bus: Bus, private_bus: PrivateBus, tmp_path: Path, load: str
) -> None:
    systemd = FakeSystemd()
    systemd.properties["LoadState"] = Variant("s", load)
    async with await systemd.start(private_bus.address):
        with_files(tmp_path, "run/ostree-booted", BOOTC, PULLER)
        assert not await is_ours(Systemd(bus), tmp_path)


async def test_a_host_that_it_served_before(bus: Bus, private_bus: PrivateBus, tmp_path: Path) -> None:
    """It stays so beside rpm-ostree, which serves a host with layers, or one whose image cannot be pulled here."""
    systemd = FakeSystemd()
    async with await systemd.start(private_bus.address):
        host = FakeSysroot(tmp_path)
        host.write()
        for programs in (False, True):
            if programs:
                with_files(tmp_path, PULLER)
            for layers in ("", "[packages]\nrequested=vim;\n"):
                host.deployments[0].more_origin = layers
                host.write()
                for load in ("loaded", "masked", "not-found"):
                    systemd.properties["LoadState"] = Variant("s", load)
                    expected = load == "not-found" or (programs and not layers)
                    assert await is_ours(Systemd(bus), tmp_path, chosen=True) == expected, (programs, layers, load)


async def test_a_host_without_ostree(bus: Bus, private_bus: PrivateBus, tmp_path: Path) -> None:
    """bootc's own back end: no deployments of ostree, and the digest of the image among the kernel's arguments."""
    systemd = FakeSystemd()
    async with await systemd.start(private_bus.address):
        with_files(tmp_path, "proc/cmdline")
        assert not await is_ours(Systemd(bus), tmp_path)
        (tmp_path / "proc/cmdline").write_text("root=UUID=1 rw composefs=?abc quiet\n")
        for chosen in (False, True):
            assert await is_ours(Systemd(bus), tmp_path, chosen=chosen)
        service = await read_os_service(bus, tmp_path)
        assert service is not None
        assert ("(BootcHost)" in service.why, service.remedy) == (True, hint(BootcReason.BOOTC_HOST))
        with_files(tmp_path, "run/ostree-booted")
        assert not await asyncio.to_thread(is_native, tmp_path)


async def test_a_pull_secret_of_a_killed_agent_is_removed(tmp_path: Path) -> None:
    with_files(tmp_path, "run/ostree/.nodeagent-auth.json")
    secret = tmp_path / "run/ostree/auth.json"
    secret.hardlink_to(tmp_path / "run/ostree/.nodeagent-auth.json")
    await sweep(tmp_path)
    assert list((tmp_path / "run/ostree").iterdir()) == []
    secret.touch()
    await sweep(tmp_path)
    assert secret.exists(), "that of another program stays"


def test_without_the_program_that_pulls(tmp_path: Path) -> None:
    with pytest.raises(Unreconcilable) as caught:
        check_puller(tmp_path)
    assert caught.value.reason == "NoPuller"
    with_files(tmp_path, PULLER)
    check_puller(tmp_path)


async def test_the_fields_that_such_a_host_serves(bus: Bus, private_bus: PrivateBus, tmp_path: Path) -> None:
    systemd = FakeSystemd()
    systemd.properties["LoadState"] = Variant("s", "not-found")
    async with await systemd.start(private_bus.address):
        assert await read_os_service(bus, tmp_path) is None
        with_files(tmp_path, "run/ostree-booted", BOOTC)
        service = await read_os_service(bus, tmp_path)
        assert service is not None
        assert "NoPuller" in service.why
        with_files(tmp_path, PULLER)
        service = await read_os_service(bus, tmp_path)
        assert service is not None
        assert (service.why, service.refused) == ("", ("extensions", "kernelType"))
