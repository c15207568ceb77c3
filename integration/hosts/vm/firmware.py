# SPDX-License-Identifier: Apache-2.0
"""Machines with Secure Boot: OVMF with Microsoft's keys, Debian's shim and GRUB, and kernels that these verify.

All of them are real and signed, and come from packages that are unpacked and not installed. The harness makes the EFI
system partition before each start, with the kernels of the entries on it and a menu of them, because Debian's GRUB
cannot read the entries of the Boot Loader Specification. A kernel that shim refuses leaves the machine at a prompt of
GRUB: QEMU neither ends nor resets, so only its console shows that.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from integration.hosts import process
from integration.hosts.container.image import digest
from integration.hosts.sources import code
from integration.hosts.vm import grub
from integration.hosts.vm.qemu import Firmware, Kernel, clock_options
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import Part

PACKAGES: Final = (
    *("ovmf", "shim-signed", "shim-helpers-amd64-signed", "grub-efi-amd64-signed"),
    *("mtools", "dosfstools"),
)
TIMEOUT: Final = 300.0
MIB: Final = 1 << 20
SECTOR: Final = 512
# Two kernels with their initramfs, which is not compressed.
ESP_SIZE: Final = 256 * MIB
ESP_TYPE: Final = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"

CODE: Final = "usr/share/OVMF/OVMF_CODE_4M.secboot.fd"
VARIABLES: Final = "usr/share/OVMF/OVMF_VARS_4M.ms.fd"
# shim starts the GRUB in its own directory. Debian's GRUB has the directory of its menu compiled in.
PROGRAMS: Final = {
    "usr/lib/shim/shimx64.efi.signed": "EFI/BOOT/BOOTX64.EFI",
    "usr/lib/shim/mmx64.efi.signed": "EFI/BOOT/mmx64.efi",
    "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed": "EFI/BOOT/grubx64.efi",
}
MENU: Final = "EFI/debian/grub.cfg"
ENTRY: Final = """\
menuentry "{number}" {{
  echo "GRUB: entry {number}."
  linux /{number}/linux {options}
  initrd /{number}/initrd
}}
"""

# What GRUB writes about a kernel that shim refuses: its verifier, or its loader in older versions. Ten seconds later it
# gives up, and waits without end.
REFUSED: Final = re.compile("bad shim signature|has invalid signature")
STOPPED: Final = "Failed to boot both default and fallback entries"

# The name in Debian's signatures that leads to the certificate within its shim, and another of the same length.
SIGNER: Final = b"Debian Secure Boot CA"
FOREIGN: Final = b"Vendor Secure Boot CA"


def programs() -> Path:
    """Firmware, shim and GRUB. Raises Unavailable on another distribution than Debian."""
    return grub.packages("vm-firmware", PACKAGES, "a firmware with Secure Boot")


class SecureVm(Vm):
    """A machine whose firmware verifies what it starts, from its first reboot on."""

    def __init__(self, *arguments: Any, firmware: Path, **options: Any) -> None:
        self._programs = firmware
        super().__init__(*arguments, **options)
        # The firmware and shim write to it, so it is a part of the machine.
        self._variables = self.directory / "variables.fd"
        shutil.copyfile(firmware / VARIABLES, self._variables)

    def console(self) -> str:
        return grub.console(self.directory)

    def _next_kernel(self) -> Kernel:
        esp = self.directory / "esp.img"
        _make_esp(self._programs, self.disk, esp, clock_options(self.hardware.accel))
        return Kernel(esp, None, "firmware", Firmware(self._programs / CODE, self._variables, esp))


def _make_esp(programs: Path, disk: Path, image: Path, clock: str) -> None:
    """Make a disk with one partition: the bootloader, and the kernels of all entries that `disk` has now."""
    with tempfile.TemporaryDirectory(dir=image.parent) as scratch:
        work, content = Path(scratch), Path(scratch) / "content"
        for source, name in PROGRAMS.items():
            _put(programs / source, content / name)
        menu = "set timeout=0\nset default=0\n"
        for number, entry in enumerate(grub.read_entries(disk, work)):
            for field, name in (("linux", "linux"), ("initrd", "initrd")):
                _put(work / "boot" / entry.fields[field].lstrip("/"), content / str(number) / name)
            menu += ENTRY.format(number=number, options=f"{entry.options}{clock}")
        (content / MENU).parent.mkdir(parents=True)
        (content / MENU).write_text(menu)
        _fat(programs, content, work / "fat")
        _partitioned(work / "fat", image)


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _fat(programs: Path, content: Path, image: Path) -> None:
    """Make a file system with these files."""
    with image.open("xb") as file:
        file.truncate(ESP_SIZE)
    # The package of an older Debian has it in /sbin.
    mkfs = next(path for path in (programs / "usr/sbin/mkfs.fat", programs / "sbin/mkfs.fat") if path.exists())
    # With less than 65525 clusters it is no FAT32, so a cluster has one sector.
    process.run([str(mkfs), "-F", "32", "-s", "1", "-n", "ESP", str(image)], timeout=TIMEOUT)
    entries = sorted(str(path) for path in content.iterdir())
    copy: Sequence[str] = ("-c", "mcopy", "-s", "-Q", "-i", str(image), *entries, "::")
    process.run([str(programs / "usr/bin/mtools"), *copy], timeout=TIMEOUT)


def _partitioned(content: Path, disk: Path) -> None:
    """Make a raw disk with a partition of these bytes."""
    disk.unlink(missing_ok=True)
    with disk.open("xb") as file:
        file.truncate(ESP_SIZE + 2 * MIB)
    table = f"label: gpt\nstart={MIB // SECTOR}, size={ESP_SIZE // SECTOR}, type={ESP_TYPE}, name=esp\n"
    process.run(["sfdisk", "--quiet", str(disk)], stdin=table.encode(), timeout=TIMEOUT)
    with disk.open("r+b") as file, content.open("rb") as data:
        file.seek(MIB)
        shutil.copyfileobj(data, file, MIB)


def foreign_kernel() -> Part:
    """A kernel whose signature names a signer that Debian's shim does not have. Its code is the same."""

    def put(root: Path) -> None:
        (path,) = root.glob("usr/lib/modules/*/vmlinuz")
        data = path.read_bytes()
        # It may be a hard link into a cache.
        path.unlink()
        path.write_bytes(foreign(data))

    return Part("foreign kernel", code(__file__), put)


def foreign(kernel: bytes) -> bytes:
    """Return this signed kernel with the name of another signer."""
    start = int.from_bytes(kernel[0x3C:0x40], "little")
    # Of a PE32+ image: the fifth directory has position and size of its signatures.
    directory = start + 24 + 112 + 32
    at, size = (int.from_bytes(kernel[place : place + 4], "little") for place in (directory, directory + 4))
    signatures = kernel[at : at + size]
    assert SIGNER in signatures, "the kernel of the tree is not signed by Debian"
    return kernel[:at] + signatures.replace(SIGNER, FOREIGN) + kernel[at + size :]


def bootupd(payload: str, installed: str) -> Part:
    """bootupctl with the JSON of bootupd, metadata `payload` of this OS, and what is installed."""
    status = '{"aleph-version":null,"boot-method":"EFI","components":{"EFI":{'
    status += f'"installed":{installed},"interrupted":null,"update":{payload},'
    status += '"updatable":"upgradable","adopted-from":null}},"adoptable":{}}'
    program = f'#!/bin/sh\ntest -n "$INVOCATION_ID" && test "$1" = status && echo \'{status}\'\n'

    def put(root: Path) -> None:
        updates = root / "usr/lib/bootupd/updates"
        updates.mkdir(parents=True)
        (updates / "EFI.json").write_text(payload)
        (root / "usr/bin/bootupctl").write_text(program)
        (root / "usr/bin/bootupctl").chmod(0o755)

    return Part("bootupd", digest(program.encode(), payload.encode()).encode(), put)
