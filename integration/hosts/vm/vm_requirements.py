# SPDX-License-Identifier: Apache-2.0
"""What this machine must have to boot virtual machines, and whether its KVM really works."""

from __future__ import annotations

import functools
import platform
import subprocess
import tempfile
from pathlib import Path

from integration.hosts import requirements
from integration.hosts.errors import Unavailable
from integration.hosts.requirements import Say
from integration.hosts.vm import qemu

PROBE_TIMEOUT = 8.0  # seconds; with KVM the kernel needs one


def ensure(say: Say, *more: str) -> None:
    """Install what is missing; `more` are other programs. Raises Unavailable with the reason where nothing can boot."""
    requirements.ensure(say, build=True, more=("machines", *more))
    if platform.machine() != "x86_64":
        raise Unavailable(f"the virtual machines are x86_64, and without that processor too slow: {platform.machine()}")


@functools.cache
def accelerator(kernel: Path) -> str:
    """`kvm` where this machine's KVM boots `kernel` up to the panic for want of a root filesystem, `tcg` elsewhere.

    To open /dev/kvm is no proof: nested in some clouds it is there, starts a guest, and then emulates it wrongly.
    """
    if not Path("/dev/kvm").exists():
        return "tcg"
    with tempfile.TemporaryDirectory() as scratch:
        serial = Path(scratch) / "serial"
        kvm = qemu.PLATFORMS["kvm"]
        argv = [kvm.program, "-M", kvm.machine, "-accel", kvm.accel, "-cpu", kvm.cpu, "-m", "256", "-nodefaults"]
        argv += ["-display", "none", "-no-reboot", "-serial", f"file:{serial}", "-kernel", str(kernel)]
        argv += ["-append", "console=ttyS0 panic=-1"]
        try:
            subprocess.run(argv, timeout=PROBE_TIMEOUT, capture_output=True, check=False)
        except (subprocess.TimeoutExpired, OSError):
            return "tcg"
        return "kvm" if serial.exists() and qemu.PANIC in serial.read_bytes() else "tcg"
