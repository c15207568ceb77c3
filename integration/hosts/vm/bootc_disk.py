# SPDX-License-Identifier: Apache-2.0
"""The second disk of a machine that bootc updates: the blobs of its registry, with trees as real images.

A program of the guest serves them on its loopback (`integration.hosts.ostree.small_registry`). The system disk is
installed from such an image, as the real `ostree container` pulls it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from integration.hosts.container.image import digest, layer
from integration.hosts.ostree import small_registry
from integration.hosts.sources import code
from integration.hosts.vm import image
from integration.hosts.vm.registry_disk import MEGABYTES, NAME, RegistryDisk
from integration.trees import encapsulated
from integration.trees.encapsulated import Encapsulated
from integration.trees.image_registry import Published, Pulled
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import Tree

FOLDER = "images"  # on the disk
SERVED = f"/var/media/{FOLDER}"


def make(ostree_repo: OstreeRepo, trees: Sequence[Tree]) -> RegistryDisk:
    """The disk with an image of each tree. Made once for the same trees. Raises Unavailable."""
    commits = [ostree_repo.commit(tree) for tree in trees]

    def fill(content: Path) -> str:
        images = Encapsulated(ostree_repo, content / FOLDER)
        digests = [images.publish(commit, NAME).digest for commit in commits]
        images.close()
        return json.dumps(digests)

    refs = [commit.ref.encode() for commit in commits]
    disk = image.media(FOLDER, b"\0".join([*refs, _sources()]), fill, MEGABYTES)
    digests = json.loads(disk.notes)
    published = [Published(NAME, commit.version, made, commit) for commit, made in zip(commits, digests, strict=True)]
    return RegistryDisk(disk, tuple(published))


def pulled(ostree_repo: OstreeRepo, tree: Tree) -> Pulled:
    """The image of a tree in a repository of its own, for image.system(). Made once for the same tree."""
    commit = ostree_repo.commit(tree)

    def build(path: Path) -> None:
        images = Encapsulated(ostree_repo, path)
        made = images.pulled(images.publish(commit, NAME))
        images.close()
        notes = {"repo": str(made.repo.relative_to(path)), "checksum": made.checksum, "origin": made.origin}
        (path / "notes").write_text(json.dumps(notes))
        shutil.rmtree(path / small_registry.BLOBS)

    made = layer("vm-bootc", digest(commit.ref.encode(), _sources()), build)
    made.lock.close()  # it is read at once, and younger than what is pruned
    notes = json.loads((made.path / "notes").read_text())
    return Pulled(made.path / notes["repo"], notes["checksum"], notes["origin"])


def _sources() -> bytes:
    return code(__file__, encapsulated.__file__)
