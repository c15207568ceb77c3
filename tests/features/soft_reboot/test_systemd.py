# SPDX-License-Identifier: Apache-2.0
"""Whether a host can make a soft reboot, from its systemd, its mounts and its encrypted devices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from dbus_next import Message, Variant

from nodeagent.errors import AgentError, Refused, ServiceUnavailable
from nodeagent.features.soft_reboot.systemd import check_soft_reboot
from nodeagent.host.dbus.client import Bus
from tests.host.fake_systemd import FakeSystemd
from tests.support.fake_peer import DBusFault
from tests.support.fixtures import PrivateBus

pytestmark = [
    pytest.mark.usefixtures("no_leaked_fds"),
    pytest.mark.finding(
        "OS: soft reboots",
        "A fallback is soft only where services are all that matters, and where it starts the same system; an"
        " old logind never reboots fully instead.",
    ),
]

ROOT_LINE = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
MOUNT_LINE = "91 24 0:45 / /run/nextroot ro,relatime shared:9 - overlay composefs ro\n"


@pytest.fixture
async def systemd(private_bus: PrivateBus) -> AsyncIterator[FakeSystemd]:
    peer = FakeSystemd()
    await peer.start(private_bus.address)
    yield peer
    await peer.stop()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of a host that is able to do it: no other system, no encrypted device."""
    for directory in ("run", "etc", "proc/self", "sys/class/block/vda"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(ROOT_LINE)
    return tmp_path


async def test_a_host_that_can(bus: Bus, systemd: FakeSystemd, root: Path) -> None:
    await check_soft_reboot(bus, root)
    assert ("LoadUnit", ["soft-reboot.target"]) in systemd.calls


@pytest.mark.parametrize("state", ["not-found", "masked", "error", "bad-setting"])
async def test_a_systemd_without_the_target(bus: Bus, systemd: FakeSystemd, root: Path, state: str) -> None:
    """Before 254 it is not found; a distribution may leave it out; an admin may mask it."""
    systemd.properties["LoadState"] = Variant("s", state)
    with pytest.raises(Refused, match=f"soft-reboot.target is {state}") as caught:
        await check_soft_reboot(bus, root)
    assert caught.value.reason == "SoftRebootUnsupported"


async def test_a_systemd_that_is_away(bus: Bus, systemd: FakeSystemd, root: Path) -> None:
    """This is no answer, so it is neither a yes nor a no."""

    def die(_message: Message) -> None:
        raise DBusFault("org.freedesktop.DBus.Error.NoReply", "Message recipient disconnected from message bus")

    systemd.on("LoadUnit", die)
    with pytest.raises(ServiceUnavailable):
        await check_soft_reboot(bus, root)


async def test_a_systemd_that_refuses(bus: Bus, systemd: FakeSystemd, root: Path) -> None:
    def fail(_message: Message) -> None:
        raise DBusFault("org.freedesktop.DBus.Error.AccessDenied", "no")

    systemd.on("LoadUnit", fail)
    with pytest.raises(AgentError, match="no"):
        await check_soft_reboot(bus, root)


def _mounted(root: Path) -> None:
    (root / "proc/self/mountinfo").write_text(ROOT_LINE + MOUNT_LINE)


def _filled(root: Path) -> None:
    (root / "run/nextroot/usr").mkdir(parents=True)


def _linked(root: Path) -> None:
    (root / "run/nextroot").symlink_to("/")


def _dangling(root: Path) -> None:
    (root / "run/nextroot").symlink_to("/no/such/directory")


def _a_file(root: Path) -> None:
    (root / "run/nextroot").write_text("")


def _prepared(root: Path) -> None:
    (root / "run/ostree").mkdir()
    (root / "run/ostree/nextroot-booted").write_text("")


def _half_prepared(root: Path) -> None:
    (root / "run/ostree").mkdir()
    (root / "run/ostree/nextroot-booted").symlink_to("/no/such/file")


@pytest.mark.parametrize(
    "prepare",
    [_mounted, _filled, _linked, _dangling, _a_file, _prepared, _half_prepared],
    ids=lambda each: each.__name__,
)
async def test_another_system_is_prepared(
    bus: Bus, systemd: FakeSystemd, root: Path, prepare: Callable[[Path], None]
) -> None:
    prepare(root)
    with pytest.raises(Refused, match="another program prepared") as caught:
        await check_soft_reboot(bus, root)
    assert caught.value.reason == "NextRootPrepared"


async def test_an_empty_directory_is_left_of_an_earlier_one(bus: Bus, systemd: FakeSystemd, root: Path) -> None:
    (root / "run/nextroot").mkdir()
    await check_soft_reboot(bus, root)


async def test_mounts_beside_it_do_not_count(bus: Bus, systemd: FakeSystemd, root: Path) -> None:
    (root / "proc/self/mountinfo").write_text(ROOT_LINE + MOUNT_LINE.replace("/run/nextroot", "/run/nextroots"))
    await check_soft_reboot(bus, root)


def encrypt(root: Path, name: str, device: str = "dm-0", uuid: str = "CRYPT-LUKS2-0123-root") -> None:
    mapper = root / f"sys/class/block/{device}/dm"
    mapper.mkdir(parents=True)
    (mapper / "uuid").write_text(f"{uuid}\n")
    (mapper / "name").write_text(f"{name}\n")


@pytest.mark.parametrize(
    ("crypttab", "refused"),
    [
        (None, True),
        ("", True),
        ("root UUID=1 none luks,x-initrd.attach\n", False),
        ("# root\n\n  root\tUUID=1   -  x-initrd.attach,discard\n", False),
        ("root UUID=1 none luks\n", True),
        ("root UUID=1 none\n", True),
        ("root\n", True),
        ("#root UUID=1 none luks,x-initrd.attach\n", True),
        ("rootfs UUID=1 none luks,x-initrd.attach\n", True),
        ("root UUID=1 none luks,x-initrd.attachment\n", True),
    ],
)
async def test_an_encrypted_device(
    bus: Bus, systemd: FakeSystemd, root: Path, crypttab: str | None, refused: bool
) -> None:
    encrypt(root, "root")
    if crypttab is not None:
        (root / "etc/crypttab").write_text(crypttab)
    if not refused:
        await check_soft_reboot(bus, root)
        return
    with pytest.raises(Refused, match=r"root has no x-initrd\.attach") as caught:
        await check_soft_reboot(bus, root)
    assert caught.value.reason == "EncryptedRoot"


async def test_each_open_device_counts(bus: Bus, systemd: FakeSystemd, root: Path) -> None:
    encrypt(root, "root")
    encrypt(root, "data", "dm-1")
    (root / "etc/crypttab").write_text("root UUID=1 none x-initrd.attach\ndata UUID=2 none noauto\n")
    with pytest.raises(Refused, match="data"):
        await check_soft_reboot(bus, root)


async def test_other_mapped_devices_do_not_count(bus: Bus, systemd: FakeSystemd, root: Path) -> None:
    encrypt(root, "vg-root", uuid="LVM-abcdef")
    await check_soft_reboot(bus, root)


async def test_a_crypttab_without_an_end(bus: Bus, systemd: FakeSystemd, root: Path) -> None:
    encrypt(root, "root")
    (root / "etc/crypttab").write_bytes(b"root UUID=1 none x-initrd.attach\n" + b"#\n" * (1 << 20))
    with pytest.raises(Refused, match="cannot be read") as caught:
        await check_soft_reboot(bus, root)
    assert caught.value.reason == "EncryptedRoot"


async def test_a_host_without_sysfs(bus: Bus, systemd: FakeSystemd, root: Path) -> None:
    (root / "sys/class/block/vda").rmdir()
    (root / "sys/class/block").rmdir()
    await check_soft_reboot(bus, root)


async def test_a_deployment_of_ours_may_be_prepared(bus: Bus, systemd: FakeSystemd, root: Path) -> None:
    """The adapter of the deployments checks which one it is."""
    _mounted(root)
    await check_soft_reboot(bus, root, same_system=False)
    with pytest.raises(Refused):
        await check_soft_reboot(bus, root)
