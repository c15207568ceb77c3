# SPDX-License-Identifier: Apache-2.0
"""The count of boots in GRUB's environment block: what a host has, and what is written by which command."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dbus_next import Variant

from nodeagent.errors import ServiceUnavailable, Terminal
from nodeagent.features.boot_counting.counter import HostBootCounter
from nodeagent.features.boot_counting.decide import BootCount, BootCounting, CountedBy
from nodeagent.host.dbus.client import Bus
from tests.features.boot_counting.test_decide import COUNTING, block
from tests.host.fake_systemd import FakeSystemd
from tests.support.fixtures import PrivateBus

pytestmark = pytest.mark.usefixtures("no_leaked_fds")

LOADER = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
ID = f"fedora-coreos-{'a' * 64}.0"


@pytest.fixture
async def manager(private_bus: PrivateBus) -> AsyncIterator[FakeSystemd]:
    peer = FakeSystemd()
    peer.units["boot.mount"] = {"Options": Variant("s", "rw,relatime")}
    await peer.start(private_bus.address)
    yield peer
    await peer.stop()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of a host whose GRUB counts."""
    for directory in ("boot/grub2", "boot/loader/entries", "ostree/repo"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "boot/grub2/grub.cfg").write_text(COUNTING)
    (tmp_path / "boot/grub2/grubenv").write_bytes(block("kernelopts=quiet\n"))
    return tmp_path


@pytest.fixture
def counter(private_bus: PrivateBus, root: Path) -> HostBootCounter:
    return HostBootCounter(make_bus=lambda: Bus(private_bus.address, connect_for=2, patience=20), root=root, deadline=5)


DD = ["/usr/bin/dd", "bs=1024", "count=1", "iflag=fullblock", "oflag=nofollow", "conv=notrunc,nocreat,fsync"]
DD += ["status=none"]


def edits(manager: FakeSystemd, root: Path, cut: int = 1024) -> None:
    """Run the command of each transient unit. ``cut``: bytes that it is given before the power is cut."""

    async def run(job: int, unit: str) -> None:
        *command, target = manager.transient[-1][1]
        properties = manager.transient_properties[-1]
        assert properties["StandardInput"] == "data"
        argv = [*command, f"of={root}{target.removeprefix('of=')}"]
        data = properties["StandardInputData"][:cut]
        ended = await asyncio.to_thread(subprocess.run, argv, input=data, capture_output=True, check=False)
        await manager.finish(job, unit, "failed" if ended.returncode else "done")

    manager.job_script = run


async def test_counting_begins_and_ends(counter: HostBootCounter, manager: FakeSystemd, root: Path) -> None:
    edits(manager, root)
    env = root / "boot/grub2/grubenv"
    inode = env.stat().st_ino
    assert await counter.counting() == BootCounting(CountedBy.GRUB)
    await counter.begin(ID, 3)
    assert await counter.read() == BootCount(3, ID)
    await counter.end()
    assert await counter.read() == BootCount(success=True)
    assert b"kernelopts=quiet\n" in env.read_bytes()
    assert (len(env.read_bytes()), env.stat().st_ino) == (1024, inode), "GRUB knows the file by its blocks"
    assert [command for _, command in manager.transient] == [[*DD, "of=/boot/grub2/grubenv"]] * 2


async def test_a_power_cut_before_the_write_leaves_the_old_block(
    counter: HostBootCounter, manager: FakeSystemd, root: Path
) -> None:
    """The file is open for writing, and nothing was written yet: it is whole. grub-editenv empties it there."""
    env = root / "boot/grub2/grubenv"
    before = env.read_bytes()
    edits(manager, root, cut=0)
    with pytest.raises(Terminal, match="not as they were written"):
        await counter.begin(ID, 3)
    assert env.read_bytes() == before


async def test_a_torn_write_leaves_a_block(counter: HostBootCounter, manager: FakeSystemd, root: Path) -> None:
    """A disk wrote the first sector and lost the second one, which both blocks have in common."""
    edits(manager, root, cut=512)
    await counter.begin(ID, 3)
    assert await counter.read() == BootCount(3, ID)


async def test_a_file_that_is_gone_is_not_made(counter: HostBootCounter, manager: FakeSystemd, root: Path) -> None:
    env = root / "boot/grub2/grubenv"
    edits(manager, root)
    inner = manager.job_script

    def remove_first(job: int, unit: str) -> object:
        env.unlink()
        return inner(job, unit)

    manager.job_script = remove_first
    with pytest.raises(Terminal):
        await counter.begin(ID, 3)
    assert not env.exists()


async def test_a_block_that_is_full(counter: HostBootCounter, manager: FakeSystemd, root: Path) -> None:
    (root / "boot/grub2/grubenv").write_bytes(block(f"long={'x' * 980}\n"))
    with pytest.raises(Terminal, match="is full") as caught:
        await counter.begin(ID, 3)
    assert (caught.value.reason, manager.transient) == ("BootCountFailed", [])


@pytest.mark.parametrize("place", ["usr/lib/systemd/system", "etc/systemd/system"])
async def test_greenboot(counter: HostBootCounter, root: Path, place: str) -> None:
    (root / place).mkdir(parents=True)
    (root / place / "greenboot-healthcheck.service").touch()
    assert await counter.counting() == BootCounting(CountedBy.GRUB, greenboot=True)


MOUNT = "/usr/bin/mount"
AROUND = {
    "ExecStartPre": [[MOUNT, [MOUNT, "-o", "remount,rw", "/boot"], False]],
    "ExecStopPost": [[MOUNT, [MOUNT, "-o", "remount,bind,ro", "/boot"], True]],
}


@pytest.mark.parametrize(
    ("active", "options", "around"),
    [
        ("active", "ro,nosuid,relatime", AROUND),
        ("active", "rw,relatime,errors=remount-ro", {}),
        ("inactive", "ro", {}),
    ],
)
async def test_boot_is_writable_while_the_command_runs(
    counter: HostBootCounter,
    manager: FakeSystemd,
    root: Path,
    active: str,
    options: str,
    around: dict[str, object],
) -> None:
    edits(manager, root)
    manager.units["boot.mount"] = {"ActiveState": Variant("s", active), "Options": Variant("s", options)}
    await counter.begin(ID, 3)
    (_, _, properties, _) = next(body for member, body in manager.calls if member == "StartTransientUnit")
    found = {name: value.value for name, value in properties}
    assert {name: found[name] for name in found.keys() & AROUND.keys()} == around


async def test_an_environment_on_the_efi_partition(counter: HostBootCounter, manager: FakeSystemd, root: Path) -> None:
    efi = root / "boot/efi/EFI/fedora"
    efi.mkdir(parents=True)
    (root / "boot/grub2/grubenv").rename(efi / "grubenv")
    (root / "boot/grub2/grubenv").symlink_to("../efi/EFI/fedora/grubenv")
    edits(manager, root)
    await counter.begin(ID, 3)
    assert manager.transient[0][1][-1] == "of=/boot/efi/EFI/fedora/grubenv"
    assert (root / "boot/grub2/grubenv").is_symlink()


async def test_the_names_of_debian(counter: HostBootCounter, root: Path) -> None:
    (root / "boot/grub2").rename(root / "boot/grub")
    assert await counter.counting() == BootCounting(CountedBy.GRUB)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda root: (root / "boot/grub2/grub.cfg").unlink(), "the boot loader is not GRUB"),
        (lambda root: (root / "boot/grub2/grub.cfg").write_text("load_env\n"), "does not count boots"),
        (lambda root: (root / "boot/grub2/grub.cfg").write_text("#" * (1 << 20) + "\n"), "grub.cfg: it has more than"),
        (lambda root: (root / "boot/grub2/grubenv").unlink(), "No such file"),
        (lambda root: (root / "boot/grub2/grubenv").write_bytes(b""), "no environment block"),
        (lambda root: (root / "boot/grub2/grubenv").write_bytes(block("") * 2), "grubenv: it has more than"),
    ],
)
async def test_hosts_that_cannot_count(counter: HostBootCounter, root: Path, change: object, why: str) -> None:
    assert callable(change)
    change(root)
    assert why in (await counter.counting()).why
    assert await counter.read() == BootCount()
    with pytest.raises(Terminal, match=why) as caught:
        await counter.end()
    assert caught.value.reason == "BootCountFailed"


async def test_a_link_out_of_boot_is_not_followed(counter: HostBootCounter, root: Path) -> None:
    (root / "boot/grub2/grubenv").rename(root / "grubenv")
    (root / "boot/grub2/grubenv").symlink_to("../../grubenv")
    assert "a link out of /boot" in (await counter.counting()).why


async def test_a_pipe_is_not_read(counter: HostBootCounter, root: Path) -> None:
    (root / "boot/grub2/grubenv").unlink()
    subprocess.run(["mkfifo", str(root / "boot/grub2/grubenv")], check=True)
    assert "no regular file" in (await counter.counting()).why


async def test_the_setting(private_bus: PrivateBus, root: Path) -> None:
    counter = HostBootCounter(
        enabled=False, make_bus=lambda: Bus(private_bus.address, connect_for=2, patience=20), root=root
    )
    assert "os.count_boots" in (await counter.counting()).why
    (root / "boot/grub2/grubenv").write_bytes(block("boot_counter=2\nnodeagent_deployment=x\n"))
    assert await counter.read() == BootCount(2, "x"), "what was begun before the change is ended"


async def test_a_command_that_fails(counter: HostBootCounter, manager: FakeSystemd) -> None:
    manager.properties["ExecMainStatus"] = Variant("i", 1)
    manager.job_script = lambda job, unit: manager.finish(job, unit, "failed")
    with pytest.raises(Terminal, match="exit status 1") as caught:
        await counter.begin(ID, 3)
    assert caught.value.reason == "BootCountFailed"


async def test_a_command_that_does_nothing(counter: HostBootCounter, manager: FakeSystemd, root: Path) -> None:
    with pytest.raises(Terminal, match="not as they were written"):
        await counter.begin(ID, 3)
    (root / "boot/grub2/grubenv").write_bytes(block("boot_counter=2\n"))
    with pytest.raises(Terminal, match="still set"):
        await counter.end()


async def test_without_systemd_it_is_no_failure_of_the_count(counter: HostBootCounter) -> None:
    with pytest.raises(ServiceUnavailable):
        await counter.begin(ID, 3)


# -- systemd-boot -----------------------------------------------------------------------------------------------------


@pytest.fixture
def systemd_boot(root: Path) -> Path:
    shutil.rmtree(root / "boot/grub2")
    (root / LOADER).parent.mkdir(parents=True)
    (root / LOADER).write_bytes(b"\x06\0\0\0" + "systemd-boot 257.3\0".encode("utf-16-le"))
    return root


async def test_systemd_boot_counts_if_ostree_names_the_entries_so(
    counter: HostBootCounter, manager: FakeSystemd, systemd_boot: Path
) -> None:
    config = systemd_boot / "ostree/repo/config"
    assert "boot-counting-tries" in (await counter.counting()).why
    config.write_text("[sysroot]\nboot-counting-tries=0\n")
    assert "boot-counting-tries" in (await counter.counting()).why
    config.write_text("[sysroot]\nboot-counting-tries=3\n")
    assert await counter.counting() == BootCounting(CountedBy.SYSTEMD_BOOT)
    await counter.begin(ID, 3)
    assert not manager.transient


@pytest.mark.parametrize(
    ("name", "left"), [("ostree-2.conf", None), ("ostree-2+3.conf", 3), ("ostree-2+0-3.conf", 0), ("x+y.conf", None)]
)
async def test_the_tries_of_an_entry(counter: HostBootCounter, systemd_boot: Path, name: str, left: int | None) -> None:
    link = systemd_boot / "ostree/boot.1/fedora-coreos/b/0"
    link.parent.mkdir(parents=True)
    link.symlink_to(f"../../../deploy/fedora-coreos/deploy/{'a' * 64}.0")
    entry = "linux /vmlinuz\noptions quiet ostree=/ostree/boot.1/fedora-coreos/b/0\n"
    (systemd_boot / "boot/loader/entries" / name).write_text(entry)
    assert await counter.tries_left(ID) == left
    assert await counter.tries_left("another.0") is None
