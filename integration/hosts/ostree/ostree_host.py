# SPDX-License-Identifier: Apache-2.0
"""A test host that boots from an ostree deployment; everything that a Host can do, and OS updates.

    with OstreeHost(ostree_repo, ostree_repo.commit(A)) as host:
        host.boot()
        host.add(b := ostree_repo.commit(B))
        host.run(["ostree", "admin", "deploy", "--stage", b.checksum])
        with host.rebooting():
            host.run(["systemctl", "reboot"])
        assert host.booted == b.checksum

It is real as far as a container can be: systemd 257 with D-Bus, logind and polkit, libostree that sees a booted
deployment, `ostree-finalize-staged.service` at shutdown and `ostree-boot-complete.service` after the boot, generated
mounts, a /run that is lost with the power. `initramfs.py` says how it comes to that, `disk.py` what the disk is. What
it has not: a kernel of its own (so no cgroup controllers and no disk to slow down) and a bootloader.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image
from integration.hosts.container.nspawn import Container
from integration.hosts.ostree import bls, disk
from integration.hosts.ostree.ostree_nspawn import OstreeContainer
from integration.hosts.testhost import TestHost
from integration.trees.image_registry import Pulled
from integration.trees.ostree_repo import Commit, OstreeRepo

FINALIZE = "ostree-finalize-staged.service"
BOOT_COMPLETE = "ostree-boot-complete.service"
STAGED = "/run/ostree/staged-deployment"
LOCKED = "(finalization locked)"
# One deployment of `ostree admin status`, which has no other form in the guest's version.
STATUS = re.compile(r"^([* ]) \S+ ([0-9a-f]{64})\.(\d+)(.*)$")


@dataclass(frozen=True, slots=True)
class Deployment:
    checksum: str
    serial: int
    booted: bool
    staged: bool
    locked: bool  # staged, and the shutdown will leave it alone
    pinned: bool


class OstreeHost(Host):
    """Off until boot(), like any Host. `root` is its disk (/sysroot in the guest), not its root filesystem."""

    def __init__(
        self,
        ostree_repo: OstreeRepo,
        source: Commit | Pulled,
        *,
        kargs: Sequence[str] = disk.KARGS,
        size: str = disk.SIZE,
        boot_size: str | None = None,
        read_only: Mapping[str, Path] | None = None,
    ) -> None:
        """A disk of `size` on which `source` is deployed with the kernel arguments `kargs` and boots.

        `boot_size` makes /boot a filesystem of its own. Both sizes are as in mount(8), such as "64m".
        """
        self._ostree_repo, self._source, self._kargs, self._boot_size = ostree_repo, source, kargs, boot_size
        super().__init__(ostree_repo.image, disk=size, read_only=read_only)

    def _install(self, image: Image, size: str | None, binds: Sequence[str]) -> Container:
        self.root = self.directory / "disk"
        disk.install(self.root, self._ostree_repo, self._source, self._kargs, size or disk.SIZE, self._boot_size)
        self._container = OstreeContainer(self.name, self.root, self.directory, binds)
        return self._container

    def _enter_files(self) -> list[str]:
        return self._container.files()

    # Operating systems

    def add(self, commit: Commit) -> None:
        """Put a commit into the host's repository as if it had been pulled before."""
        disk.add(self.root, self._ostree_repo, commit)

    def stage(self, commit: Commit, *options: str) -> None:
        """Stage a commit as an admin at a console does. `options` are of `ostree admin deploy`."""
        self.add(commit)
        self.run(["ostree", "admin", "deploy", "--stage", *options, commit.checksum])

    def deployments(self) -> list[Deployment]:
        """Return the deployments as libostree in the host lists them: the next to boot first."""
        return deployments_of(self)

    @property
    def booted(self) -> str:
        """The commit that runs, as libostree in the host says."""
        (checksum,) = [deployment.checksum for deployment in self.deployments() if deployment.booted]
        return checksum

    @property
    def cmdline(self) -> list[str]:
        """The arguments of the kernel as everything in the host sees them."""
        return self.read_text("/proc/cmdline").split()

    @property
    def next_boot(self) -> bls.Entry:
        """The boot loader entry that the next boot takes."""
        return bls.entries(self.root)[0]


def deployments_of(host: TestHost) -> list[Deployment]:
    """Return the deployments of a running host in boot order."""
    return _parse_status(host.run(["ostree", "admin", "status"]).stdout)


def _parse_status(text: str) -> list[Deployment]:
    lines = text.splitlines()
    starts = [(number, match) for number, line in enumerate(lines) if (match := STATUS.match(line))]
    ends = [number for number, _ in starts[1:]] + [len(lines)]
    return [
        Deployment(
            checksum=match[2],
            serial=int(match[3]),
            booted=match[1] == "*",
            # libostree shows one of the two words.
            staged="(staged)" in match[4] or LOCKED in match[4],
            locked=LOCKED in match[4],
            pinned="    Pinned: yes" in lines[number:end],
        )
        for (number, match), end in zip(starts, ends, strict=True)
    ]
