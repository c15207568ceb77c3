"""Whether this host has the accounts that are to own the changed files: found out later, it would cost a revert."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import Problem, Terminal
from nodeagent.host.fs.owners import Owners

__all__ = ["unknown"]


def unknown(root: Path, old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
    """One problem for each path, by its first name that nobody has. Blocking: reads the account files."""
    owners = Owners(str(root))
    had = expand(old)
    said: dict[tuple[str, int | str], str] = {}

    def why(kind: str, name: int | str, find: Callable[[int | str], int]) -> str:
        # A config may have ten thousand files of one owner.
        if (kind, name) not in said:
            try:
                find(name)
                said[kind, name] = ""
            except Terminal as error:
                said[kind, name] = error.message
        return said[kind, name]

    return tuple(
        Problem(path, problem)
        for path, node in expand(new).items()
        if had.get(path) != node
        if (problem := why("user", node.user, owners.uid) or why("group", node.group, owners.gid))
    )
