"""What a MachineConfig means for the file system: one node for each path we manage.

Files, unit files, drop-ins, masks and ssh keys all become paths here, so that writing, verifying and reverting is
one mechanism instead of four.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig, UserEntry
from nodeagent.core.config.paths import dropin_path, ssh_keys_path, unit_path

__all__ = ["DEV_NULL", "FileNode", "LinkNode", "Node", "expand"]

DEV_NULL = "/dev/null"


@dataclass(frozen=True, slots=True)
class FileNode:
    """A regular file. ``label`` is a SELinux context to restore; None asks the policy of the host.

    ``dir_mode`` and ``dir_owner`` apply to parents that we have to create.
    """

    content: bytes = field(repr=False)
    mode: int = 0o644
    user: int | str = 0
    group: int | str = 0
    label: str | None = None
    dir_mode: int = 0o755
    dir_owner: int | str = 0


@dataclass(frozen=True, slots=True)
class LinkNode:
    target: str
    user: int | str = 0
    group: int | str = 0
    label: str | None = None


Node = FileNode | LinkNode


def _keys_node(user: UserEntry) -> FileNode:
    content = "".join(f"{key.rstrip()}\n" for key in user.ssh_keys).encode()
    return FileNode(content, 0o600, user.name, user.name, dir_mode=0o700, dir_owner=user.name)


def _nodes(config: MachineConfig) -> Iterator[tuple[str, Node]]:
    for file in config.files.values():
        yield file.path, FileNode(file.content, file.mode, file.user, file.group)
    for unit in config.units.values():
        if unit.mask:
            yield unit_path(unit.name), LinkNode(DEV_NULL)
        elif unit.contents is not None:
            yield unit_path(unit.name), FileNode(unit.contents.encode())
        for name, text in unit.dropins.items():
            yield dropin_path(unit.name, name), FileNode(text.encode())
    core = config.users.get(CORE_USER)
    if core is not None and core.ssh_keys:
        yield ssh_keys_path(CORE_USER), _keys_node(core)


def expand(config: MachineConfig) -> dict[str, Node]:
    """All managed paths of ``config``, in path order. Two entries for one path were refused by the parser."""
    return dict(sorted(_nodes(config)))
