# SPDX-License-Identifier: Apache-2.0
"""The files and users of the host in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nodeagent.core.config.file_tree import FileTreeEntry, SymbolicLink
from nodeagent.errors import Problem, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import Survey
from tests.world.faults import Fault
from tests.world.unit_files import is_link, link_at, put_link
from tests.world.units import note_unit

if TYPE_CHECKING:
    from tests.world.world import World


@dataclass
class Disk:
    """Every boot has these files; those of /etc belong to the booted deployment."""

    disk: dict[str, FileTreeEntry] = field(default_factory=dict)
    dirs: set[str] = field(default_factory=lambda: {"/", "/etc"})
    contested: dict[str, str] = field(default_factory=dict)  # directory to who else than root can write there
    survey: Survey = field(default_factory=Survey)
    unknown_users: set[int | str] = field(default_factory=set)
    passwords: dict[str, str] = field(default_factory=lambda: {"core": "!"})


def full_disk() -> Fault:
    """Return the fault of every write while the disk is full."""
    return Fault("install", Terminal("no space left", reason=Reason.NO_SPACE), times=None)


class FakeFiles:
    def __init__(self, world: World) -> None:
        self.world = world

    async def capture(self, path: str) -> FileTreeEntry | None:
        self.world.tick()
        self._fault(path)
        return self._at(path)

    def _at(self, path: str) -> FileTreeEntry | None:
        return link_at(self.world, path) or self.world.disk.get(path)

    async def missing_dirs(self, paths: Sequence[str]) -> Sequence[str]:
        out: list[str] = []
        for path in paths:
            parts = path.split("/")[1:-1]
            for depth in range(1, len(parts) + 1):
                directory = "/" + "/".join(parts[:depth])
                if directory not in self.world.dirs and directory not in out:
                    out.append(directory)
        return out

    async def install(self, path: str, node: FileTreeEntry) -> Sequence[str]:
        self.world.tick()
        self._fault(path)
        self.world.meet("install")
        parents = (path.rsplit("/", depth)[0] for depth in range(1, path.count("/")))
        assert not any(parent in self.world.disk for parent in parents), f"a parent of {path} is a file"
        below = (other for other in self.world.disk if other.startswith(f"{path}/"))
        assert path not in self.world.dirs or not any(below), f"{path} is a directory"
        made = await self.missing_dirs([path])
        self.world.dirs.update(made)
        if is_link(path, node):
            assert isinstance(node, SymbolicLink)
            put_link(self.world, path, node.target)
        else:
            put_link(self.world, path, None)
            self.world.disk[path] = node
            note_unit(self.world, path, node)
        self.world.tick()
        return made

    async def remove(self, path: str, made_dirs: Sequence[str]) -> None:
        self.world.tick()
        self._fault(path)
        put_link(self.world, path, None)
        self.world.disk.pop(path, None)
        for directory in sorted(made_dirs, key=len, reverse=True):
            if path.startswith(f"{directory}/") and not any(p.startswith(f"{directory}/") for p in self.world.disk):
                self.world.dirs.discard(directory)
        self.world.tick()

    def _fault(self, path: str) -> None:
        self.world.meet(f"path {path}")

    async def survey(self, writes: Sequence[str], removes: Sequence[str]) -> Survey:
        return self.world.survey

    async def owner_problem(self, node: FileTreeEntry) -> str:
        return f"this host has no user {node.user!r}" if node.user in self.world.unknown_users else ""

    async def contested(self, path: str) -> str:
        return next((who for place, who in self.world.contested.items() if path.startswith(f"{place}/")), "")

    async def sweep(self, paths: Sequence[str]) -> Sequence[Problem]:
        return ()

    async def differs(self, path: str, node: FileTreeEntry | None) -> str:
        self._fault(path)
        return "" if self._at(path) == node else "differs"


class FakeUsers:
    def __init__(self, world: World) -> None:
        self.world = world

    async def password_hash(self, user: str) -> str | None:
        return self.world.passwords.get(user)

    async def set_password_hash(self, user: str, value: str) -> None:
        self.world.tick()
        self.world.passwords[user] = value
        self.world.tick()

    async def lock(self, user: str) -> None:
        self.world.tick()
        self.world.passwords[user] = "!" + self.world.passwords[user].lstrip("!")
        self.world.tick()
