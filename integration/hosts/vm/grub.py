# SPDX-License-Identifier: Apache-2.0
"""Machines that GRUB boots: it reads /boot of their disk, counts boots in grubenv, and writes that back.

QEMU starts GRUB as a kernel (``lnxboot.img`` in front of its core image), so that the disk needs no boot sector. From
there on it is GRUB on a BIOS: it reads the disk through the firmware, runs /boot/grub/grub.cfg of the guest, which has
greenboot's script, writes the block with its own ``save_env``, and loads the kernel of the entry that it chose.

Two things are not as on Fedora. Debian's GRUB cannot read the entries of the Boot Loader Specification, so that the
harness writes the menu from them before each start. And it has no command ``decrement``, so that the menu defines it.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from integration.hosts import process, requirements
from integration.hosts.container.image import digest, layer
from integration.hosts.errors import HostGone, Unavailable
from integration.hosts.ostree import bls
from integration.hosts.sources import code
from integration.hosts.vm.disk import BOOT_OFFSET, BOOT_SIZE, Unbootable
from integration.hosts.vm.qemu import End, Kernel
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import Part

TIMEOUT = 300.0
PACKAGES = ("grub-common", "grub-pc-bin")
MODULES = (
    *("biosdisk", "part_gpt", "ext2", "memdisk", "tar", "serial", "terminal"),
    *("normal", "configfile", "loadenv", "test", "echo", "linux", "boot"),
)
MODULES_FOLDER = "usr/lib/grub/i386-pc"
FOLDER = "/boot/grub"

# The script of greenboot-rs 0.16 (grub2/08_greenboot.cfg), behind what each grub.cfg has before it. Its first line
# loads a module of Fedora, which is left out.
CONFIG = """\
load_env
if [ -n "${boot_counter}" -a "${boot_success}" = "0" ]; then
  if  [ "${boot_counter}" = "0" -o "${boot_counter}" = "-1" ]; then
    set default=1
    set boot_counter=-1
  else
    decrement boot_counter
  fi
  save_env boot_counter
fi
set boot_success=0
save_env boot_success
"""

MENU = """\
serial --unit=0
terminal_output serial
set timeout=0
set default=0
set prefix=(hd0,gpt1)/grub
function decrement {
  if [ "$boot_counter" = "3" ]; then set boot_counter=2
  elif [ "$boot_counter" = "2" ]; then set boot_counter=1
  elif [ "$boot_counter" = "1" ]; then set boot_counter=0
  fi
}
source (hd0,gpt1)/grub/grub.cfg
set root=(hd0,gpt1)
"""
ENTRY = """\
menuentry "{number}" {{
  echo "GRUB: entry {number}, counter ${{boot_counter}}."
  linux {linux} {options}
  initrd {initrd}
}}
"""
TRIED = re.compile(r"GRUB: entry (\d+), counter (-?\d*)\.")


def programs() -> Path:
    """GRUB for a BIOS. Raises Unavailable on another distribution than Debian."""
    return packages("vm-grub", PACKAGES, "GRUB for a BIOS")


def part(grub: Path) -> Part:
    """The program that edits grubenv, for a tree."""
    program = (grub / "usr/bin/grub-editenv").read_bytes()

    def put(root: Path) -> None:
        (root / "usr/bin/grub-editenv").write_bytes(program)
        (root / "usr/bin/grub-editenv").chmod(0o755)

    return Part("grub-editenv", digest(program).encode(), put)


def install(vm: Vm) -> None:
    """Give the guest's /boot what GRUB reads."""
    vm.run(["mount", "-o", "remount,rw", "/boot"])
    vm.run(["mkdir", FOLDER])
    vm.write(f"{FOLDER}/grub.cfg", CONFIG)
    vm.run(["grub-editenv", f"{FOLDER}/grubenv", "create"])
    vm.run(["mount", "-o", "remount,ro", "/boot"])


def variables(vm: Vm) -> dict[str, str]:
    lines = vm.run(["grub-editenv", f"{FOLDER}/grubenv", "list"]).stdout.splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


class GrubVm(Vm):
    """A machine that GRUB boots from its first reboot on. A kernel that panics reboots it."""

    def __init__(self, *arguments: Any, grub: Path, **options: Any) -> None:
        self._grub = grub
        self._pressed = False
        super().__init__(*arguments, **options)

    def press_reset(self) -> None:
        """Reset a guest of which the agent does not answer, as a watchdog or an operator does."""
        with self._changed:
            if self._qemu is None:
                raise HostGone(f"{self.name} is off")
            self._pressed = True
            self._qemu.qmp.execute("system_reset")

    def console(self) -> str:
        """All that this machine wrote to its console, in all boots."""
        return console(self.directory)

    def tried(self) -> list[tuple[int, str]]:
        """The entries that GRUB started, each with the counter at that time, "" for none."""
        return [(int(number), counter) for number, counter in TRIED.findall(self.console())]

    def _next_kernel(self) -> Kernel:
        return Kernel(_image(self._grub, self.disk, self.directory), None, "GRUB")

    def _goes_on(self, end: End) -> bool:
        pressed, self._pressed = self._pressed, False
        return pressed or end in (End.REBOOT, End.CRASH)


def read_entries(disk: Path, work: Path) -> list[bls.Entry]:
    """Copy /boot of the qcow2 `disk` into `work`, and return its entries, the default one first."""
    (work / "boot").mkdir()
    raw = f"driver=raw,offset={BOOT_OFFSET},size={BOOT_SIZE},file.driver=qcow2,file.file.filename={disk}"
    process.run(["qemu-img", "convert", "-U", "--image-opts", raw, "-O", "raw", f"{work}/img"], timeout=TIMEOUT)
    process.run(["debugfs", "-R", f"rdump / {work}/boot", f"{work}/img"], timeout=TIMEOUT)
    entries = bls.entries(work)
    if not entries:
        raise Unbootable("there is no boot loader entry in /boot/loader/entries")
    return entries


def packages(kind: str, names: Sequence[str], what: str) -> Path:
    """Packages of this machine's Debian, unpacked and not installed. Raises Unavailable on another distribution."""
    if requirements.distribution() != "debian":
        raise Unavailable(f"{what} comes from Debian's archive, by apt-get of this machine")

    def build(path: Path) -> None:
        path.mkdir()
        process.run(["sh", "-c", 'cd "$0" && apt-get download -q "$@"', str(path), *names], timeout=TIMEOUT)
        for package in path.glob("*.deb"):
            process.run(["dpkg-deb", "--extract", str(package), str(path)], timeout=TIMEOUT)

    made = layer(kind, digest(" ".join(names).encode()), build)
    made.lock.close()
    return made.path


def console(directory: Path) -> str:
    """All that the machine with this directory wrote to its console, in all boots, without codes of a terminal."""
    texts = [directory / name for name in ("console.log", "serial.log")]
    found = "".join(path.read_text(errors="replace") for path in texts if path.exists())
    return re.sub(r"\x1b\[[0-9;?=]*[A-Za-z]", "", found)


def _image(grub: Path, disk: Path, into: Path) -> Path:
    """Make GRUB with a menu of the entries that the disk has now."""
    with tempfile.TemporaryDirectory(dir=into) as scratch:
        work = Path(scratch)
        entries = read_entries(disk, work)
        menu = MENU + "".join(ENTRY.format(number=number, **each.fields) for number, each in enumerate(entries))
        (work / "menu.cfg").write_text(menu)
        (work / "early.cfg").write_text("set root=(memdisk)\nconfigfile (memdisk)/menu.cfg\n")
        process.run(["tar", "-C", str(work), "-cf", f"{work}/menu.tar", "menu.cfg"], timeout=TIMEOUT)
        modules = grub / MODULES_FOLDER
        make = [str(grub / "usr/bin/grub-mkimage"), "--format=i386-pc", f"--directory={modules}", "--prefix=(memdisk)"]
        make += [f"--config={work}/early.cfg", f"--memdisk={work}/menu.tar", f"--output={work}/core.img", *MODULES]
        process.run(make, timeout=TIMEOUT)
        image = into / "grub.lnx"
        image.write_bytes((modules / "lnxboot.img").read_bytes() + (work / "core.img").read_bytes())
        return image


# An initramfs with a program that writes a text, and then exits or waits without end: made by hand, so that it needs no
# compiler. A kernel panics when its first process exits.
EXIT = bytes.fromhex("bf01000000 b83c000000 0f05")
WAIT = bytes.fromhex("b822000000 0f05 ebf7")


def broken(name: str, end: bytes) -> Part:
    """An initramfs that writes `name` to the console and runs `end`."""

    def put(root: Path) -> None:
        for path in (root / "usr/lib/modules").glob("*/initramfs.img"):
            # It may be a hard link into a cache.
            path.unlink()
            path.write_bytes(_archive(_program(f"{name}\n".encode(), end)))

    return Part(name, name.encode() + end + code(__file__), put)


def _program(text: bytes, end: bytes) -> bytes:
    """A static ELF program for x86-64."""
    start, base = 64 + 56, 0x400000
    write = bytes.fromhex("bf01000000 488d35") + struct.pack("<i", 12 + len(end))
    write += b"\xba" + struct.pack("<i", len(text)) + bytes.fromhex("b801000000 0f05")
    body = write + end + text
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, base + start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    header += struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, start + len(body), start + len(body), 4096)
    return header + body


def _archive(program: bytes) -> bytes:
    """A cpio archive with /dev/console and /init."""
    entries = [("dev", 0o040755, 0, b""), ("dev/console", 0o020600, 5 << 8 | 1, b""), ("init", 0o100755, 0, program)]
    out = b""
    for number, (name, mode, device, data) in enumerate([*entries, ("TRAILER!!!", 0, 0, b"")], 1):
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, device >> 8, device & 0xFF, len(name) + 1, 0]
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return out
