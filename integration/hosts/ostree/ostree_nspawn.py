# SPDX-License-Identifier: Apache-2.0
"""The container of an ostree host: each start of it, also after a reboot, boots what is the default by then.

systemd-nspawn makes /run and /proc of a guest itself, so the guest's first program puts there what came from the
initramfs and becomes systemd. Its arguments are those of the kernel, as those of a real init are; in a container
systemd (and with it `ConditionKernelCommandLine=`) reads them from there, everything else reads /proc/cmdline.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from integration.hosts.container.nspawn import Container
from integration.hosts.ostree import initramfs

PROGRAM = Path(initramfs.__file__)
INIT = """\
set -e
cp -a /run/initramfs/ostree /run/initramfs/ostree-booted /run/
mount --bind /run/initramfs/initramfs/cmdline /proc/cmdline
exec /usr/lib/systemd/systemd "$@"
"""


class OstreeContainer(Container):
    def __init__(self, name: str, disk: Path, state: Path, extra: Sequence[str] = ()) -> None:
        super().__init__(name, disk, state, extra)
        self._disk = disk
        self._work = state / "initramfs"
        self._work.mkdir()

    def files(self) -> list[str]:
        """Return the command prefix that runs a program on the files of the next boot while the host is off."""
        return [*self._initramfs("files"), "chroot", str(self._work / "sysroot")]

    def _command(self, nspawn: list[str]) -> list[str]:
        return [
            *self._initramfs("boot"),
            *nspawn,
            f"--directory={self._work / 'sysroot'}",
            f"--bind-ro={self._work / 'run'}:/run/initramfs",
            # Left alone, nspawn would write to the deployment's /etc and /var on behalf of this machine.
            *("--resolv-conf=off", "--timezone=off", "--link-journal=no"),
            "--kill-signal=SIGRTMIN+3",  # nspawn sets this itself only where it chooses the init
            *("/bin/sh", "-c", INIT, "init", "{options}"),
        ]

    def _initramfs(self, mode: str) -> list[str]:
        return [sys.executable, "-I", "-S", str(PROGRAM), mode, str(self._disk), str(self._work)]
