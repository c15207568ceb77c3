# SPDX-License-Identifier: Apache-2.0
"""The links below /etc/systemd/system, and the unit files of this host: the ``UnitFiles`` port.

Everything is read relative to open directories, so that no link leads elsewhere. Links are written and removed as other
paths are (``fs.files``).
"""

from __future__ import annotations

import asyncio
import os
import platform
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import template_of
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.enablement.install import named
from nodeagent.core.plan.enablement.links import SUFFIXES, is_link_name, last_part
from nodeagent.core.plan.enablement.presets import PRESETS
from nodeagent.core.plan.enablement.unit_files import SEARCH_PATH, EnablementFacts, dropin_dirs, overlaid
from nodeagent.errors import AgentError, Refused
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.fs.paths import open_parent
from nodeagent.host.fs.read_inside import read_inside
from nodeagent.reasons import Reason

# Entries of one directory, and bytes of one file: far more than any host has.
MAX_ENTRIES: Final = 20_000
MAX_BYTES: Final = 1 << 20
# Also= of a unit names another one, which names another one.
ROUNDS: Final = 8
_OS_RELEASE: Final = {
    "A": "IMAGE_VERSION",
    "B": "BUILD_ID",
    "M": "IMAGE_ID",
    "o": "ID",
    "w": "VERSION_ID",
    "W": "VARIANT_ID",
}


class HostUnitFiles:
    """``root`` may be the tree of another deployment."""

    def __init__(self, root: str = "/") -> None:
        self._root = root

    async def facts(
        self, units: Collection[str], changes: Mapping[str, FileTreeEntry | None] | None = None
    ) -> EnablementFacts:
        return await asyncio.to_thread(self.read, units, changes or {})

    async def shipped(self, deployment: Deployment, units: Collection[str]) -> Mapping[str, FileTreeEntry]:
        tree = f"ostree/deploy/{deployment.osname}/deploy/{deployment.id.removeprefix(f'{deployment.osname}-')}"
        facts = await HostUnitFiles(os.path.join(self._root, tree)).facts(units)  # noqa: PTH118
        # Its /etc is made of that of the running deployment when it is finalized.
        return {path: node for path, node in facts.files.items() if path.startswith("/usr/")}

    def read(self, units: Collection[str], changes: Mapping[str, FileTreeEntry | None]) -> EnablementFacts:
        """As ``facts``. Blocks; raises ``AgentError``."""
        links = self.links()
        if not units:
            return EnablementFacts(links)
        listing = {directory: frozenset(self._names(directory)) for directory in SEARCH_PATH}
        specifiers = _specifiers(self._root)
        facts = EnablementFacts(links, {}, self._presets(changes), specifiers)
        seen: set[str] = set()
        for _ in range(ROUNDS):
            wanted = named(units, EnablementFacts(files=overlaid(facts.files, changes), specifiers=specifiers))
            wanted |= named(units, facts)
            wanted |= {template_of(unit) for unit in wanted} - {""}
            if wanted <= seen:
                break
            files = dict(facts.files)
            for unit in wanted - seen:
                files |= self._files(unit, listing)
            seen |= wanted
            facts = EnablementFacts(links, files, facts.presets, specifiers)
        return facts

    def links(self) -> dict[str, str]:
        """Return all links below /etc/systemd/system that enable units, with their targets."""
        links: dict[str, str] = {}
        for name in self._names(UNIT_DIR):
            path = f"{UNIT_DIR}/{name}"
            below = [name]
            if name.endswith(SUFFIXES):
                below = [f"{name}/{entry}" for entry in self._names(path)]
            for link in below:
                if is_link_name(link) and isinstance(node := self._node(f"{UNIT_DIR}/{link}"), SymbolicLink):
                    links[link] = node.target
        return links

    def _names(self, directory: str) -> list[str]:
        try:
            with translated("read", directory), open_parent(self._root, f"{directory}/x") as parent:
                names = [] if parent.missing else sorted(os.listdir(parent.fd))  # noqa: PTH208 - a handle
        except AgentError as error:
            # A link or a file in the place of a directory has no links of units in it.
            if error.reason in (Reason.NOT_A_DIRECTORY, Reason.LINK_REFUSED):
                return []
            raise
        if len(names) > MAX_ENTRIES:
            raise Refused(f"{directory} has more than {MAX_ENTRIES} entries", reason=Reason.REVERT_TOO_LARGE)
        return names

    def _files(self, unit: str, listing: Mapping[str, Collection[str]]) -> dict[str, FileTreeEntry]:
        paths = [f"{directory}/{unit}" for directory, names in listing.items() if unit in names]
        for dropins in dropin_dirs(unit):
            for directory, names in listing.items():
                if dropins in names:
                    place = f"{directory}/{dropins}"
                    paths += [f"{place}/{name}" for name in self._names(place) if name.endswith(".conf")]
        nodes = {path: self._node(path) for path in paths}
        return {path: node for path, node in nodes.items() if node is not None}

    def _node(self, path: str) -> FileTreeEntry | None:
        """Return a link or a file, None for anything else, or a file that cannot be read."""
        with suppress(OSError, ValueError, AgentError), open_parent(self._root, path) as parent:
            if parent.missing:
                return None
            kind = os.stat(parent.name, dir_fd=parent.fd, follow_symlinks=False).st_mode
            if stat.S_ISREG(kind):
                return RegularFile(read_inside(Path(self._root), path, MAX_BYTES))
            if stat.S_ISLNK(kind):
                target = os.readlink(parent.name, dir_fd=parent.fd)
                return self._linked(path, target) or SymbolicLink(target)
        return None

    def _linked(self, path: str, target: str) -> RegularFile | None:
        """Return the file behind a link of the same name: a unit file or a drop-in that is kept elsewhere."""
        if last_part(path) != last_part(target) or path.rpartition("/")[0].endswith(SUFFIXES):
            return None
        where = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120
        with suppress(OSError, ValueError, AgentError):
            return RegularFile(read_inside(Path(self._root), where, MAX_BYTES))
        return None

    def _presets(self, changes: Mapping[str, FileTreeEntry | None]) -> list[str]:
        """Return the presets as they are after ``changes``."""
        nodes: dict[str, FileTreeEntry | None] = {}
        for directory in PRESETS:
            paths = [f"{directory}/{name}" for name in self._names(directory)]
            paths += [path for path in changes if path.rpartition("/")[0] == directory]
            for path in paths:
                node = changes[path] if path in changes else self._node(path)
                # The first directory wins.
                if path.endswith(".preset") and node is not None:
                    nodes.setdefault(last_part(path), node)
        presets = [nodes[name] for name in sorted(nodes)]
        return [node.content.decode(errors="replace") for node in presets if isinstance(node, RegularFile)]


def _specifiers(root: str) -> dict[str, str]:
    """Return the specifiers of systemd.unit(5) that [Install] sections use, besides those of the unit itself."""
    return dict(_system_specifiers(root))


def _system_specifiers(root: str) -> Iterator[tuple[str, str]]:
    host = platform.node()
    yield "H", host
    yield "l", host.partition(".")[0]
    yield "v", platform.release()
    # systemd runs as root.
    yield from (("u", "root"), ("U", "0"), ("g", "root"), ("G", "0"))
    for path in ("/usr/lib/os-release", "/etc/os-release"):
        with suppress(OSError, ValueError, AgentError):
            lines = read_inside(Path(root), path, MAX_BYTES).decode(errors="replace").splitlines()
            values = {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in lines)}
            yield from ((letter, values.get(key, "")) for letter, key in _OS_RELEASE.items())
    with suppress(OSError, ValueError, AgentError):
        yield "m", read_inside(Path(root), "/etc/machine-id", MAX_BYTES).decode().strip()
