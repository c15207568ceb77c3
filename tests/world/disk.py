# SPDX-License-Identifier: Apache-2.0
"""The files and users of the host in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nodeagent.core.config.file_tree import Directory, FileTreeEntry, SymbolicLink
from nodeagent.core.config.machineconfig import UserEntry
from nodeagent.core.config.paths import home_path
from nodeagent.errors import Problem, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import HostAccount, Survey
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
    accounts: dict[str, HostAccount] = field(default_factory=lambda: {"core": HostAccount(1000, "/home/core")})
    unfinished: set[str] = field(default_factory=set)  # accounts whose creation was killed, or failed
    user_problems: dict[str, str] = field(default_factory=dict)
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
        node = link_at(self.world, path) or self.world.disk.get(path)
        return Directory(0o755, 0, 0) if node is None and path in self.world.dirs else node

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
        files = [parent for parent in parents if not isinstance(self.world.disk.get(parent), Directory | None)]
        assert not files, f"a parent of {path} is a file"
        made = await self.missing_dirs([path])
        self.world.dirs.update(made)
        if isinstance(node, Directory):
            self._put_directory(path, node)
            return made
        below = (other for other in self.world.disk if other.startswith(f"{path}/"))
        assert path not in self.world.dirs or not any(below), f"{path} is a directory"
        if is_link(path, node):
            assert isinstance(node, SymbolicLink)
            put_link(self.world, path, node.target)
        else:
            put_link(self.world, path, None)
            self.world.disk[path] = node
            note_unit(self.world, path, node)
        self.world.tick()
        return made

    def _put_directory(self, path: str, node: Directory) -> None:
        now = self._at(path)
        assert isinstance(now, Directory | None), f"{path} is no directory"
        before = now or Directory(0o755, 0, 0)
        attributes = ((getattr(node, name), getattr(before, name)) for name in ("mode", "user", "group"))
        self.world.disk[path] = Directory(*(had if wanted is None else wanted for wanted, had in attributes))
        self.world.dirs.add(path)
        self.world.tick()

    async def resolved(self, paths: Sequence[str]) -> Sequence[str]:
        return paths

    async def remove(self, path: str, made_dirs: Sequence[str], *, directory: bool = False) -> None:
        self.world.tick()
        self._fault(path)
        if directory and path in self.world.dirs:
            if any(other.startswith(f"{path}/") for other in {*self.world.disk, *self.world.dirs}):
                return
            self.world.dirs.discard(path)
        put_link(self.world, path, None)
        self.world.disk.pop(path, None)
        for place in sorted(made_dirs, key=len, reverse=True):
            if path.startswith(f"{place}/") and not any(p.startswith(f"{place}/") for p in self.world.disk):
                self.world.dirs.discard(place)
        self.world.tick()

    def _fault(self, path: str) -> None:
        self.world.meet(f"path {path}")

    async def survey(self, writes: Sequence[str], removes: Sequence[str], directories: Sequence[str] = ()) -> Survey:
        return self.world.survey

    async def owner_problem(self, node: FileTreeEntry) -> str:
        return f"this host has no user {node.user!r}" if node.user in self.world.unknown_users else ""

    async def contested(self, path: str) -> str:
        return next((who for place, who in self.world.contested.items() if path.startswith(f"{place}/")), "")

    async def sweep(self, paths: Sequence[str]) -> Sequence[Problem]:
        return ()

    async def differs(self, path: str, node: FileTreeEntry | None) -> str:
        self._fault(path)
        now = self._at(path)
        if isinstance(node, Directory) and isinstance(now, Directory):
            attributes = ((getattr(node, name), getattr(now, name)) for name in ("mode", "user", "group"))
            return "" if all(wanted in (None, has) for wanted, has in attributes) else "differs"
        return "" if now == node else "differs"


class FakeUsers:
    def __init__(self, world: World) -> None:
        self.world = world

    async def account(self, user: str) -> HostAccount | None:
        return self.world.accounts.get(user)

    async def problem(self, user: UserEntry) -> str:
        return self.world.user_problems.get(user.name, "")

    async def create(self, user: UserEntry) -> None:
        self.world.tick()
        if user.name in self.world.unfinished:
            del self.world.accounts[user.name]
            self.world.tick()
        if user.name not in self.world.accounts:
            self.world.accounts[user.name] = HostAccount(1001, home_path(user.name, user.home), expired=True)
            self.world.unfinished.add(user.name)
            self.world.tick()
            self.world.meet(f"user {user.name}")
            self.world.passwords[user.name] = "!"
            self.world.unfinished.discard(user.name)
        self._expire(user.name, expired=False)

    async def reinstate(self, user: str) -> None:
        self.world.tick()
        self._expire(user, expired=False)

    async def retire(self, user: str) -> None:
        self.world.tick()
        self._expire(user, expired=True)

    def _expire(self, user: str, *, expired: bool) -> None:
        if user in self.world.accounts:
            self.world.accounts[user] = replace(self.world.accounts[user], expired=expired)
        self.world.tick()

    async def set_member(self, user: str, group: str, *, member: bool) -> None:
        self.world.tick()
        self.world.meet(f"group {group}")
        account = self.world.accounts[user]
        groups = account.groups | {group} if member else account.groups - {group}
        self.world.accounts[user] = replace(account, groups=groups)
        self.world.tick()

    async def password_hash(self, user: str) -> str | None:
        return self.world.passwords.get(user)

    async def set_password_hash(self, user: str, value: str) -> None:
        self.world.tick()
        self.world.passwords[user] = value
        self.world.tick()

    async def lock(self, user: str) -> None:
        self.world.tick()
        if user in self.world.passwords:
            self.world.passwords[user] = "!" + self.world.passwords[user].lstrip("!")
        self.world.tick()
