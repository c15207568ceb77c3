# SPDX-License-Identifier: Apache-2.0
"""The second disk of a machine: a registry for the stand-in of rpm-ostreed, with trees as container images.

It is read-only in the guest (/var/media) and never throttled, as a registry in the network would not be. The system
disk can be installed from such an image as well (`pulled`), so that the machine knows what it runs by its digest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.hosts.container.image import digest, layer
from integration.hosts.sources import code
from integration.hosts.vm import image
from integration.hosts.vm.image import DiskImage
from integration.trees import image_registry
from integration.trees.image_registry import Published, Pulled
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import Tree

FOLDER = "registry"  # on the disk
IN_GUEST = f"/var/media/{FOLDER}"
NAME = "quay.io/example/os"
MEGABYTES = 4096  # of the file's size; it is sparse


@dataclass(frozen=True, slots=True)
class RegistryDisk:
    disk: DiskImage
    published: tuple[Published, ...]  # in the order in which the trees were given

    def of(self, tree: Tree) -> Published:
        """The image of this version."""
        return next(image for image in self.published if image.tag == tree.version)


def make(ostree_repo: OstreeRepo, trees: Sequence[Tree]) -> RegistryDisk:
    """The disk with an image of each tree; its tag is the version. Made once for the same trees."""
    commits = [ostree_repo.commit(tree) for tree in trees]

    def fill(content: Path) -> str:
        filled = image_registry.Registry(content / FOLDER, ostree_repo)
        return json.dumps([filled.publish(commit, NAME, commit.version).digest for commit in commits])

    refs = [commit.ref.encode() for commit in commits]
    disk = image.media(FOLDER, b"\0".join([*refs, _sources()]), fill, MEGABYTES)
    digests = json.loads(disk.notes)
    published = [
        Published(NAME, commit.version, digest, commit) for commit, digest in zip(commits, digests, strict=True)
    ]
    return RegistryDisk(disk, tuple(published))


def pulled(ostree_repo: OstreeRepo, tree: Tree) -> Pulled:
    """The image of a tree as the stand-in pulls it, for image.system(). Made once for the same tree."""
    commit = ostree_repo.commit(tree)

    def build(path: Path) -> None:
        filled = image_registry.Registry(path, ostree_repo)
        made = filled.pulled(filled.publish(commit, NAME, commit.version))
        notes = {"repo": str(made.repo.relative_to(path)), "checksum": made.checksum, "origin": made.origin}
        (path / "notes").write_text(json.dumps(notes))
        shutil.rmtree(path / "repo")

    made = layer("vm-pulled", digest(commit.ref.encode(), _sources()), build)
    made.lock.close()  # it is read at once, and younger than what is pruned
    notes = json.loads((made.path / "notes").read_text())
    return Pulled(made.path / notes["repo"], notes["checksum"], notes["origin"])


def _sources() -> bytes:
    return code(__file__, image_registry.__file__)
