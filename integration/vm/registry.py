"""The second disk of a machine: a registry for the stand-in of rpm-ostreed, with trees as container images.

It is read-only in the guest (/var/media) and never throttled, as a registry in the network would not be.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.trees import registry
from integration.trees.forest import Forest
from integration.trees.registry import Published
from integration.trees.tree import Tree
from integration.vm import image
from integration.vm.image import DiskImage

FOLDER = "registry"  # on the disk
IN_GUEST = f"/var/media/{FOLDER}"
NAME = "quay.io/example/os"
MEGABYTES = 4096  # of the file's size; it is sparse


@dataclass(frozen=True, slots=True)
class RegistryDisk:
    disk: DiskImage
    published: tuple[Published, ...]  # in the order in which the trees were given


def make(forest: Forest, trees: Sequence[Tree]) -> RegistryDisk:
    """The disk with an image of each tree; its tag is the version. Made once for the same trees."""
    commits = [forest.commit(tree) for tree in trees]

    def fill(content: Path) -> str:
        filled = registry.Registry(content / FOLDER, forest)
        return json.dumps([filled.publish(commit, NAME, commit.version).digest for commit in commits])

    sources = [Path(module).read_bytes() for module in (__file__, registry.__file__)]
    disk = image.media(FOLDER, b"\0".join([*(commit.ref.encode() for commit in commits), *sources]), fill, MEGABYTES)
    digests = json.loads(disk.notes)
    published = [
        Published(NAME, commit.version, digest, commit) for commit, digest in zip(commits, digests, strict=True)
    ]
    return RegistryDisk(disk, tuple(published))
