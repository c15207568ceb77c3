"""The count of boots in GRUB's environment block: what a host has, and what is written by which command."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dbus_next import Variant

from nodeagent.core.boot_count import BootCount
from nodeagent.errors import ServiceUnavailable, Terminal
from nodeagent.host.boot_counter import HostBootCounter
from nodeagent.host.dbus.client import Bus
from tests.core.test_boot_count import COUNTING, block
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
    for directory in ("boot/grub2", "boot/loader/entries", "usr/bin", "ostree/repo"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "boot/grub2/grub.cfg").write_text(COUNTING)
    (tmp_path / "boot/grub2/grubenv").write_bytes(block("kernelopts=quiet\n"))
    (tmp_path / "usr/bin/grub2-editenv").touch()
    return tmp_path


@pytest.fixture
def counter(private_bus: PrivateBus, root: Path) -> HostBootCounter:
    return HostBootCounter(make_bus=lambda: Bus(private_bus.address, connect_for=1), root=root, deadline=5)


def edits(manager: FakeSystemd, root: Path) -> None:
    """Let each transient unit do what grub2-editenv does: with the real one, if this machine has it."""
    real = shutil.which("grub-editenv") or shutil.which("grub2-editenv")

    async def run(job: int, unit: str) -> None:
        _, path, verb, *words = manager.transient[-1][1]
        file = root / path.lstrip("/")
        if real is not None:
            await asyncio.to_thread(subprocess.run, [real, str(file), verb, *words], check=True)
        else:
            file.write_bytes(edited(file.read_bytes(), verb, words))
        await manager.finish(job, unit, "done")

    manager.job_script = run


def edited(data: bytes, verb: str, words: list[str]) -> bytes:
    lines = [line for line in data.decode().splitlines() if "=" in line]
    names = [word.partition("=")[0] for word in words]
    kept = [line for line in lines if line.partition("=")[0] not in names]
    return block("".join(f"{line}\n" for line in [*kept, *(words if verb == "set" else ())]))


async def test_counting_begins_and_ends(counter: HostBootCounter, manager: FakeSystemd, root: Path) -> None:
    edits(manager, root)
    inode = (root / "boot/grub2/grubenv").stat().st_ino
    assert await counter.problem() == ""
    await counter.begin(ID, 3)
    assert await counter.read() == BootCount(3, ID)
    await counter.end()
    assert await counter.read() == BootCount(success=True)
    env = root / "boot/grub2/grubenv"
    assert b"kernelopts=quiet\n" in env.read_bytes()
    assert (len(env.read_bytes()), env.stat().st_ino) == (1024, inode), "GRUB knows the file by its blocks"
    program = "/usr/bin/grub2-editenv"
    assert [command for _, command in manager.transient] == [
        [program, "/boot/grub2/grubenv", "set", "boot_counter=3", "boot_success=0", f"nodeagent_deployment={ID}"],
        [program, "/boot/grub2/grubenv", "set", "boot_success=1"],
        [program, "/boot/grub2/grubenv", "unset", "boot_counter", "nodeagent_deployment"],
    ]


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
    assert manager.transient[0][1][1] == "/boot/efi/EFI/fedora/grubenv"
    assert (root / "boot/grub2/grubenv").is_symlink()


async def test_the_names_of_debian(counter: HostBootCounter, root: Path) -> None:
    (root / "boot/grub2").rename(root / "boot/grub")
    (root / "usr/bin/grub2-editenv").rename(root / "usr/bin/grub-editenv")
    assert await counter.problem() == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda root: (root / "boot/grub2/grub.cfg").unlink(), "the boot loader is not GRUB"),
        (lambda root: (root / "boot/grub2/grub.cfg").write_text("load_env\n"), "does not count boots"),
        (lambda root: (root / "boot/grub2/grub.cfg").write_text("#" * (1 << 20) + "\n"), "grub.cfg is too large"),
        (lambda root: (root / "boot/grub2/grubenv").unlink(), "No such file"),
        (lambda root: (root / "boot/grub2/grubenv").write_bytes(b""), "no environment block"),
        (lambda root: (root / "boot/grub2/grubenv").write_bytes(block("") * 2), "grubenv is too large"),
        (lambda root: (root / "usr/bin/grub2-editenv").unlink(), "no grub2-editenv"),
    ],
)
async def test_hosts_that_cannot_count(counter: HostBootCounter, root: Path, change: object, why: str) -> None:
    assert callable(change)
    change(root)
    assert why in await counter.problem()
    assert await counter.read() == BootCount()
    with pytest.raises(Terminal, match=why) as caught:
        await counter.end()
    assert caught.value.reason == "BootCountFailed"


async def test_a_link_out_of_boot_is_not_followed(counter: HostBootCounter, root: Path) -> None:
    (root / "boot/grub2/grubenv").rename(root / "usr/grubenv")
    (root / "boot/grub2/grubenv").symlink_to("../../usr/grubenv")
    assert "a link out of /boot" in await counter.problem()


async def test_a_pipe_is_not_read(counter: HostBootCounter, root: Path) -> None:
    (root / "boot/grub2/grubenv").unlink()
    subprocess.run(["mkfifo", str(root / "boot/grub2/grubenv")], check=True)
    assert "no regular file" in await counter.problem()


async def test_the_setting(private_bus: PrivateBus, root: Path) -> None:
    counter = HostBootCounter(enabled=False, make_bus=lambda: Bus(private_bus.address, connect_for=1), root=root)
    assert "os.count_boots" in await counter.problem()
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
    assert "boot-counting-tries" in await counter.problem()
    config.write_text("[sysroot]\nboot-counting-tries=0\n")
    assert "boot-counting-tries" in await counter.problem()
    config.write_text("[sysroot]\nboot-counting-tries=3\n")
    assert await counter.problem() == ""
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
