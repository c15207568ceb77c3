# SPDX-License-Identifier: Apache-2.0
"""Disks of virtual machines, cached by the content of their sources, in the cache of `integration.hosts.container`.

A disk has one tree deployed, from `integration.trees` with the parts of `guest.py`. No program writes to it: a
machine gets an overlay.

    python -m integration.hosts.vm.image [xfs]      builds the disk with the tree A and says how long each step took
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.hosts.container.image import Layer, digest, layer
from integration.hosts.requirements import Say
from integration.hosts.sources import code
from integration.hosts.vm import disk, guest
from integration.trees import tree
from integration.trees.base import Flavour
from integration.trees.image_registry import Pulled
from integration.trees.ostree_repo import Commit, OstreeRepo

OSNAME = "fedora-coreos"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class DiskImage:
    """A read-only disk. `close()` gives it free for pruning."""

    layer: Layer

    @property
    def path(self) -> Path:
        return self.layer.path / "disk.raw"

    @property
    def notes(self) -> str:
        """Return the stored facts about the content of a second disk."""
        return (self.layer.path / "notes").read_text()

    @property
    def key(self) -> str:
        return self.layer.path.name

    @property
    def made(self) -> str:
        """The time of the build. A repeated build has the same files, but other bytes."""
        return str(self.path.stat().st_mtime_ns)

    def close(self) -> None:
        self.layer.lock.close()


def system(
    ostree_repo: OstreeRepo,
    commit: Commit | Pulled,
    say: Say,
    *,
    filesystem: str = "ext4",
    kargs: Sequence[str] = (),
    journal: int | None = None,
    label: Callable[[Path, Path], None] | None = None,
) -> DiskImage:
    """The system disk with a commit or an image deployed, booting with guest.KARGS and `kargs`; `journal`: MiB, as
    disk.make has it. `label` gets the directories of root and /boot before the disk is made. Raises Unavailable."""
    arguments = [*guest.KARGS, f"rootfstype={filesystem}", *kargs]

    def build(path: Path) -> None:
        started = time.monotonic()
        path.mkdir()
        work = path / "work"
        sysroot, boot = work / "sysroot", work / "boot"
        for directory in (sysroot, boot):
            directory.mkdir(parents=True)
        _deploy(ostree_repo, commit, sysroot, arguments)
        # What ostree put into boot/ belongs to a filesystem of its own, which is mounted there.
        for entry in (sysroot / "boot").iterdir():
            entry.rename(boot / entry.name)
        if label is not None:
            label(sysroot, boot)
        disk.make(path / "disk.raw", sysroot, boot, filesystem, journal)
        disk.remove(work)
        say(f"made the {filesystem} disk with {commit.checksum[:8]} in {time.monotonic() - started:.1f} s")

    key = digest(commit.checksum.encode(), f"{filesystem} {journal}".encode(), " ".join(arguments).encode(), _sources())
    return DiskImage(layer("vm-disk", key, build))


def media(name: str, key: bytes, fill: Callable[[Path], str], megabytes: int) -> DiskImage:
    """A second disk with what `fill` puts into a directory, made once for every `key`. `fill` returns the notes."""

    def build(path: Path) -> None:
        content = path / "content"
        content.mkdir(parents=True)
        (path / "notes").write_text(fill(content))
        disk.make_media(path / "disk.raw", content, megabytes * MIB)
        disk.remove(content)

    return DiskImage(layer("vm-media", digest(name.encode(), key, str(megabytes).encode()), build))


def _deploy(ostree_repo: OstreeRepo, commit: Commit | Pulled, sysroot: Path, arguments: Sequence[str]) -> None:
    repo = sysroot / "ostree/repo"
    fetched = (str(commit.repo),) if isinstance(commit, Pulled) else (str(ostree_repo.repo), commit.checksum)
    with ostree_repo.toolbox(sysroot, Path(fetched[0])) as tools:
        tools.run("ostree", "admin", "init-fs", "--modern", str(sysroot))
        for key, value in (("sysroot.readonly", "true"), ("sysroot.bootloader", "none")):
            tools.run("ostree", "config", f"--repo={repo}", "set", key, value)
        tools.run("ostree", "admin", f"--sysroot={sysroot}", "os-init", OSNAME)
        # The refs of an image are not the ones that its commits were made for.
        tools.run("ostree", f"--repo={repo}", "pull-local", "--disable-fsync", "--disable-verify-bindings", *fetched)
        origin = []
        if isinstance(commit, Pulled):
            (sysroot / "origin").write_text(commit.origin)
            origin = [f"--origin-file={sysroot / 'origin'}"]
        tools.run(
            *("ostree", "admin", f"--sysroot={sysroot}", "deploy", "--no-prune", f"--os={OSNAME}", *origin),
            *(f"--karg={argument}" for argument in arguments),
            commit.checksum,
        )
    (sysroot / "origin").unlink(missing_ok=True)
    etc = next((sysroot / "ostree/deploy" / OSNAME / "deploy").glob("*.0")) / "etc"
    # All machines of a disk share it, so that a snapshot of one of them serves all.
    (etc / "machine-id").write_text(hashlib.sha256(commit.checksum.encode()).hexdigest()[:32] + "\n")


def _sources() -> bytes:
    return code(__file__, disk.__file__)


if __name__ == "__main__":
    begun = time.monotonic()
    grown = OstreeRepo(Flavour.MACHINE, print)
    committed = grown.commit(tree.A.having(guest.part()))
    image = system(grown, committed, print, filesystem="xfs" if "xfs" in sys.argv else "ext4")
    print(f"{image.path}: ready in {time.monotonic() - begun:.1f} s")
