# SPDX-License-Identifier: Apache-2.0
"""The repository with all trees of a flavour, each committed once and known by the content of what it was made from.

The repository is in the cache directory of
`integration.hosts.container`, so that a host's repository, which is there as
well, takes its objects by hard link. A commit without a use in UNUSED_DAYS is forgotten.

    python -m integration.trees.ostree_repo [machine]      makes the repository with A, B and BAD
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.hosts import process
from integration.hosts.container.image import UNUSED_DAYS, cache_directory, derived_image
from integration.hosts.requirements import Say
from integration.hosts.sources import code
from integration.trees import delta, layout, tree
from integration.trees.base import Flavour, base, install
from integration.trees.toolbox import Toolbox, scratch, toolbox
from integration.trees.tree import Tree

REF = "test/tree"  # refs are REF/FLAVOUR/KEY; hosts are given the commit, not the ref


@dataclass(frozen=True, slots=True)
class Commit:
    checksum: str
    version: str
    ref: str


class OstreeRepo:
    """Commits of one flavour. Safe to use from several processes."""

    def __init__(self, flavour: Flavour, say: Say) -> None:
        """Raises Unavailable where no trees can be made."""
        self.flavour = flavour
        self.image = base(flavour, say)
        self._converted = derived_image(self.image, f"ostree-{flavour.value}", code(layout.__file__), layout.convert)
        self.repo = cache_directory() / f"trees-{flavour.value}" / "repo"
        self._say = say

    def commit(self, wanted: Tree) -> Commit:
        """The commit of a tree, made now unless it was made before."""
        ref, head = self._ref(wanted.key())
        with self._locked():
            if not head.exists():
                self._make(wanted, ref)
                self._forget(keep=head)
            os.utime(head)
            return Commit(head.read_text().strip(), wanted.version, ref)

    @contextlib.contextmanager
    def toolbox(self, *directories: Path) -> Iterator[Toolbox]:
        """The trees' ostree, seeing `directories` of this machine at their own paths."""
        with toolbox(self.image, *directories) as tools:
            yield tools

    @property
    def plain(self) -> str:
        """The ref of the commit over which those of trees without packages of their own are laid."""
        return self._ref(b"plain")[0]

    def close(self) -> None:
        self._converted.close()

    def _ref(self, wanted: bytes) -> tuple[str, Path]:
        sources = code(delta.__file__, __file__)
        parts = [wanted, sources, *(path.name.encode() for path in self._converted.paths)]
        key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
        ref = f"{REF}/{self.flavour.value}/{key}"
        return ref, self.repo / "refs/heads" / ref

    def _make(self, wanted: Tree, ref: str) -> None:
        started = time.monotonic()
        about = ("--bootable", f"--add-metadata-string=version={wanted.version}", f"--subject={wanted.version}")
        if wanted.packages:
            with scratch(self.image) as root:
                populate(root, wanted)
                layout.convert(root)
                layout.finish(root, wanted.version)
                self._write(ref, root, *about)
        else:
            self._make_variant(wanted, ref, about)
        self._say(f"committed the {self.flavour.value} tree {wanted.version} in {time.monotonic() - started:.1f} s")

    def _make_variant(self, wanted: Tree, ref: str, about: Sequence[str]) -> None:
        plain = self.plain
        plain_head = self.repo / "refs/heads" / plain
        with scratch(self._converted) as root, scratch(self._converted) as untouched:
            if not plain_head.exists():
                self._write(plain, untouched)
            os.utime(plain_head)
            with layout.etc_in_place(root):
                populate(root, wanted)
            layout.finish(root, wanted.version)
            changes = root.with_name("delta")
            if delta.extract(untouched, root, changes):
                self._write(ref, changes, f"--base={plain}", *about)
            else:
                self._write(ref, root, *about)

    def _write(self, ref: str, directory: Path, *options: str) -> None:
        with self.toolbox(directory, self.repo) as tools:
            if not (self.repo / "config").exists():
                tools.run("ostree", f"--repo={self.repo}", "init", "--mode=bare")
                # The cache may be lost with the machine's power; waiting for the disk would be most of the time.
                tools.run("ostree", f"--repo={self.repo}", "config", "set", "core.fsync", "false")
            # No xattrs: they would be those of the overlay, and file capabilities are of no use to any test.
            commit = ("commit", f"--branch={ref}", f"--tree=dir={directory}", "--no-xattrs", *options)
            tools.run("ostree", f"--repo={self.repo}", *commit)

    def _forget(self, keep: Path) -> None:
        oldest = time.time() - UNUSED_DAYS * 86400  # noqa: TID251 - compared with file times
        heads = self.repo / "refs/heads"
        old = [head for head in heads.rglob("*") if head.is_file() and head != keep and head.stat().st_mtime < oldest]
        if not old:
            return
        for head in old:
            head.unlink()
        with self.toolbox(self.repo) as tools:
            tools.run("ostree", f"--repo={self.repo}", "prune", "--refs-only")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.repo.mkdir(parents=True, exist_ok=True)
        with self.repo.with_name("lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def populate(root: Path, wanted: Tree) -> None:
    """Put what a tree declares into a root whose /etc is still /etc."""
    if wanted.packages:
        install(root, wanted.packages)
    units = {f"/usr/lib/systemd/system/{name}": text for name, text in wanted.units.items()}
    for path, text in {**wanted.files, **units}.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o644)
    enabled = [name for name, text in wanted.units.items() if "\n[Install]" in text]
    if enabled:
        process.run(["chroot", str(root), "systemctl", "enable", *enabled], timeout=30)
    for part in wanted.parts:
        part.install(root)


if __name__ == "__main__":
    ostree_repo = OstreeRepo(Flavour(sys.argv[1] if len(sys.argv) > 1 else "container"), print)
    for one in (tree.A, tree.B, tree.BAD):
        print(ostree_repo.commit(one))
