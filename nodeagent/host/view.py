# SPDX-License-Identifier: Apache-2.0
"""Read the files of this host that the domains name: configuration of programs that no config manages."""

from __future__ import annotations

import asyncio
import glob
import itertools
import logging
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from nodeagent import domains
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.sides import NO_CONFIG, HostView, Sides
from nodeagent.domains import kubelet, static_pods
from nodeagent.host.fs.read_inside import read_regular

log = logging.getLogger(__name__)

# A unit names an environment file, its variables name a configuration file, which names a directory.
ROUNDS: Final = 4
# Bytes of one file; larger files are left out.
MAX_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 1000
# Paths below it may be patterns, as in sysctl.d(5). One that matches more files is left out.
PATTERNS: Final = "/proc/sys/"
MAX_MATCHES: Final = 1000
# Levels below a directory that a domain names.
MAX_DEPTH: Final = 4


async def read_view(old: MachineConfig, new: MachineConfig, root: Path = Path("/")) -> HostView:
    """Return the files that the domains read on either side of an update. A file that cannot be read is left out."""
    return HostView(await asyncio.to_thread(read_files, domains.reads, old, new, root))


def read_files(
    reads: Callable[[Sides], Collection[str]],
    old: MachineConfig = NO_CONFIG,
    new: MachineConfig = NO_CONFIG,
    root: Path = Path("/"),
) -> dict[str, bytes]:
    """Return the files that ``reads`` names, by path. ``reads`` is a function as ``Domain.reads``. Blocks."""
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    view = HostView()
    for _ in range(ROUNDS):
        wanted = set(reads(Sides(old, new, view))) - seen
        if not wanted:
            break
        seen |= wanted
        for path in sorted(wanted):
            if path.startswith(PATTERNS) and glob.has_magic(path):
                files |= _matching(root, path)
                continue
            for file in _below(root, path) if path.endswith("/") else [path]:
                if len(files) < MAX_FILES and file not in files and (content := _content(root, file)) is not None:
                    files[file] = content
        view = HostView(dict(files))
    return files


def host_directory(root: Path) -> str:
    """Return the directory of static pods, by the file, drop-ins and flags of the kubelet of this host. Blocks."""
    return static_pods.directory(read_files(kubelet.DOMAIN.reads, root=root))


def host_listing(root: Path) -> float:
    """Return the seconds between two full listings of manifests by the kubelet of this host. Blocks."""
    return static_pods.listing(read_files(kubelet.DOMAIN.reads, root=root))


def _below(root: Path, directory: str, depth: int = 0) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(_at(root, directory)), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries[:MAX_FILES]:
        if not entry.is_dir(follow_symlinks=False):
            yield f"{directory}{entry.name}"
        elif depth < MAX_DEPTH:
            yield from _below(root, f"{directory}{entry.name}/", depth + 1)


def _matching(root: Path, pattern: str) -> dict[str, bytes]:
    """Return the files that match, and under the pattern itself their paths, one a line; {} for too many."""
    # In sysctl.d(5) two stars are one, and here they are any number of directories.
    if "**" in pattern:
        return {}
    matches = itertools.islice(root.glob(pattern.lstrip("/")), MAX_MATCHES + 1)
    paths = [f"/{path.relative_to(root)}" for path in matches]
    if len(paths) > MAX_MATCHES:
        return {}
    files = {path: content for path in paths if (content := _content(root, path)) is not None}
    return {**files, pattern: "\n".join(sorted(paths)).encode()}


def _content(root: Path, path: str) -> bytes | None:
    """Return the content of a regular file up to the bound, None for anything else."""
    try:
        return read_regular(_at(root, path), MAX_BYTES)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            log.debug("%s cannot be read: %s", path, error)
        return None


def _at(root: Path, path: str) -> Path:
    return root / path.lstrip("/")
