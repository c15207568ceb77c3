"""Check that this host has the accounts that own the changed files. Found during the write, it would cost a revert."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import Problem, Terminal
from nodeagent.host.fs.owners import Owners

__all__ = ["unknown"]


def unknown(root: Path, old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
    """Return one problem for each changed path, with its first unknown account. Blocking: reads the account files."""
    owners = Owners(str(root))
    had = expand(old)
    # A config may have ten thousand files of one owner, so each account is resolved once.
    problems: dict[tuple[str, int | str], str] = {}

    def problem_of(kind: str, name: int | str, find: Callable[[int | str], int]) -> str:
        if (kind, name) not in problems:
            try:
                find(name)
                problems[kind, name] = ""
            except Terminal as error:
                problems[kind, name] = error.message
        return problems[kind, name]

    return tuple(
        Problem(path, problem)
        for path, node in expand(new).items()
        if had.get(path) != node
        if (problem := problem_of("user", node.user, owners.uid) or problem_of("group", node.group, owners.gid))
    )
