# SPDX-License-Identifier: Apache-2.0
"""Programs of aarch64 on this machine: while this is registered, the kernel starts them under QEMU's user emulation.

The handler is opened when it is registered (flag F), so it works in every root and mount namespace. It is the kernel's,
and therefore of the whole machine: the last process that needs it removes it. After a kill it stays until the next use
where the machine has binfmt_misc mounted, which does no harm, and goes with the process elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from integration.hosts import process, requirements
from integration.hosts.errors import Unavailable
from integration.hosts.requirements import Say

EMULATOR = "qemu-aarch64-static"
NAME = "nodeagent-aarch64"
# Not in the cache directory, because all caches of the machine share its kernel.
LOCK = Path(f"/run/{NAME}.lock")
# The header of an ELF program or shared object for that processor, as QEMU's package for Debian registers it.
MAGIC = r"\x7fELF\x02\x01\x01" + r"\x00" * 9 + r"\x02\x00\xb7\x00"
MASK = r"\xff" * 7 + r"\x00" + r"\xff" * 8 + r"\xfe\xff\xff\xff"
READY = b"ready\n"
TIMEOUT = 30.0
SLOWER = 5.0  # the factor of all deadlines
# In a mount namespace of its own, because the machine may have it mounted elsewhere, read-only, or not at all.
ENTER = ("unshare", "--mount", "--propagation=private", "sh", "-c")
MOUNT = "mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc && cd /proc/sys/fs/binfmt_misc && "
# Kernels since 6.7 forget all handlers with the last mount, so this one stays until the end of the standard input.
HOLD = MOUNT + '{ [ -e "$1" ] || printf %s "$2" >register; } && [ -e "$1" ] && echo ready && cat'
REMOVE = MOUNT + '{ [ ! -e "$1" ] || printf %s -1 >"$1"; }'


@contextlib.contextmanager
def aarch64(say: Say) -> Iterator[None]:
    """Be able to start programs of aarch64. Raises Unavailable with the reason."""
    requirements.install(say, "aarch64")
    emulator = shutil.which(EMULATOR)
    assert emulator is not None, "it was just installed"
    hold = [*ENTER, HOLD, "sh", NAME, f":{NAME}:M::{MAGIC}:{MASK}:{emulator}:F"]
    with LOCK.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            if holder.stdout.readline() != READY:
                reason = holder.communicate()[1].decode(errors="replace").strip()
                raise Unavailable(f"the kernel starts no programs of aarch64 here (binfmt_misc): {reason}")
            try:
                with process.slowed(SLOWER):
                    yield
            finally:
                # Another process that uses it holds the lock, and removes it when it ends.
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    process.run([*ENTER, REMOVE, "sh", NAME], timeout=TIMEOUT)
                holder.communicate()
