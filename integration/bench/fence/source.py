# SPDX-License-Identifier: Apache-2.0
"""The second disk of the benchmark's machine: what is staged, and an etcd. It is read-only and never slowed.

A repository (bare-user, so that ostree copies and fsyncs each object as it does with an image) with the tree that the
machine has and, for each round, other content: some commits as the layers of an image, and one with the tree and all
of them.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.cluster import programs as cluster_tools
from integration.hosts.requirements import Say
from integration.hosts.sources import code
from integration.hosts.vm import image
from integration.hosts.vm.image import DiskImage
from integration.trees.ostree_repo import Commit, OstreeRepo
from integration.trees.toolbox import Toolbox

__all__ = ["LAYERS", "Source", "make"]

LAYERS = 5
KIB = 1024
# How many files of which sizes (KiB) a layer has: many small ones, and a few as large as programs and kernels are.
SIZES: Sequence[tuple[int, int, int]] = ((540, 1, 40), (56, 64, 448), (4, 2048, 6144))
MEGABYTES = 8192  # of the disk's file, which is sparse


@dataclass(frozen=True, slots=True)
class Source:
    disk: DiskImage
    rounds: Sequence[Sequence[str]]  # commits, in the order in which they are pulled; the last is deployed
    size: int  # bytes of new files in each round
    files: int


def make(ostree_repo: OstreeRepo, commit: Commit, say: Say, rounds: int) -> Source:
    """The disk for machines that run about what ``commit`` is, made once. Raises Unavailable without an etcd."""
    etcd = cluster_tools.build(say).etcd

    def fill(content: Path) -> str:
        shutil.copy2(etcd, content / "etcd")
        repo = content / "repo"
        with ostree_repo.toolbox(content, ostree_repo.repo) as tools:
            tools.run("ostree", "init", f"--repo={repo}", "--mode=bare-user")
            tools.run("ostree", "config", f"--repo={repo}", "set", "core.fsync", "false")
            fetch = ("pull-local", "--disable-verify-bindings", str(ostree_repo.repo), commit.checksum)
            tools.run("ostree", f"--repo={repo}", *fetch)
            made = [_commits(tools, repo, content / "work", commit.checksum, number) for number in range(rounds)]
        return json.dumps(made)

    said = f"{etcd.stat().st_size}-{etcd.parent.name}-{rounds}"
    disk = image.media("bench", b"\0".join([commit.ref.encode(), said.encode(), code(__file__)]), fill, MEGABYTES)
    sizes = [size for layer in range(LAYERS) for size in _sizes(layer)]
    return Source(disk, json.loads(disk.notes), sum(sizes), len(sizes))


def _commits(tools: Toolbox, repo: Path, work: Path, base: str, number: int) -> list[str]:
    layers = []
    everything = work / "all"
    for layer in range(LAYERS):
        directory = work / f"layer{layer}"
        for name, data in _files(number, layer).items():
            for root in (directory, everything):
                path = root / "usr/share/bench" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        layers.append(_commit(tools, repo, f"bench/{number}/{layer}", f"--tree=dir={directory}"))
    merged = _commit(tools, repo, f"bench/{number}/all", "--bootable", f"--base={base}", f"--tree=dir={everything}")
    shutil.rmtree(work)
    return [*layers, merged]


def _commit(tools: Toolbox, repo: Path, branch: str, *options: str) -> str:
    owned = ("--owner-uid=0", "--owner-gid=0", "--no-xattrs")
    return tools.said("ostree", "commit", f"--repo={repo}", f"--branch={branch}", *owned, *options)


def _files(number: int, layer: int) -> Mapping[str, bytes]:
    seeded = random.Random(f"{number} {layer}")
    return {f"{layer}/{index % 40:02}/{index:04}": seeded.randbytes(size) for index, size in enumerate(_sizes(layer))}


def _sizes(layer: int) -> Iterator[int]:
    """The same in every round, so that rounds can be compared; ``layer`` is all that makes a difference."""
    seeded = random.Random(layer)
    return (seeded.randint(low, high) * KIB for count, low, high in SIZES for _ in range(count))
