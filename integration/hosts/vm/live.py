# SPDX-License-Identifier: Apache-2.0
"""Booted guests to start from: a boot is paid for once, and every test goes on from there in a second or two.

Cached like disks. What resumes has the boot id of the guest that was frozen, its uptime and its journal; the agent
sets its clock, and the kernel stirs its random numbers because the machine's generation (vmgenid) is a new one.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from integration.hosts import process
from integration.hosts.container.image import Layer, digest, layer
from integration.hosts.requirements import Say
from integration.hosts.sources import code
from integration.hosts.vm import qemu, virtual_machine
from integration.hosts.vm.image import DiskImage
from integration.hosts.vm.virtual_machine import Live, Vm


@dataclass(frozen=True, slots=True)
class LiveImage:
    """A frozen guest and the disks below it. `close()` gives it free for pruning."""

    image: DiskImage
    media: DiskImage | None
    accel: str
    layer: Layer

    def vm(self, make: Callable[..., Vm] = Vm) -> Vm:
        """A machine, off, which goes on from here at its first boot()."""
        directory = self.layer.path
        live = Live(directory, (directory / "options").read_text())
        return make(self.image, media=self.media, accel=self.accel, live=live)

    def close(self) -> None:
        self.layer.lock.close()


def frozen(
    image: DiskImage,
    say: Say,
    *,
    media: DiskImage | None = None,
    accel: str = "tcg",
    prepare: tuple[bytes, Callable[[Vm], None]] | None = None,
) -> LiveImage:
    """A guest of this image after a complete boot, and after what `prepare` does to it (with a key of its content)."""

    def build(path: Path) -> None:
        started = time.monotonic()
        with Vm(image, media=media, accel=accel) as vm:
            boot = vm.boot()
            if prepare is not None:
                prepare[1](vm)
            path.mkdir()
            vm.freeze(path)
        say(
            f"booted and froze {image.key} in {time.monotonic() - started:.0f} s "
            f"(the agent answered after {boot.seconds:.0f} s)"
        )

    # A guest in memory knows the very bytes of its disks.
    disks = [part for disk in (image, media) if disk is not None for part in (disk.key, disk.made)]
    parts = [*disks, accel, _version(accel)]
    key = digest(
        *(part.encode() for part in parts),
        code(virtual_machine.__file__, qemu.__file__),
        prepare[0] if prepare is not None else b"",
    )
    return LiveImage(image, media, accel, layer("vm-live", key, build))


def _version(accel: str) -> str:
    """Return the version of QEMU: another one may not understand the state."""
    program = qemu.PLATFORMS[accel].program
    said: subprocess.CompletedProcess[bytes] = process.run([program, "--version"], timeout=10)
    return said.stdout.decode().splitlines()[0] + (shutil.which(program) or "")
