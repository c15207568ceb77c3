# SPDX-License-Identifier: Apache-2.0
"""Write and remove the paths of a config; a revert puts the snapshots back.

Others than root can reach some paths, such as those below the home directory of ``core``: the owner of a directory can
replace everything in it at any time. Such a path is left alone and reported. It blocks itself, and not the update.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass

from nodeagent.core.config.file_tree import Directory, FileTreeEntry, RegularFile
from nodeagent.core.plan.steps import RemovePath, WritePath
from nodeagent.errors import AgentError, Refused, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import Warned
from nodeagent.update.ports.host import MAX_KEPT
from nodeagent.update.ports.store import Snapshot
from nodeagent.update.run import Ports, Update, narrate
from nodeagent.update.steps.originals import original_of


@dataclass(slots=True)
class Paths:
    """``tree`` is that of the new config. ``made_dirs`` are removed with their last file. ``saved_bytes`` counts those
    of snapshots."""

    ports: Ports
    update: Update
    tree: Mapping[str, FileTreeEntry]
    made_dirs: Sequence[str] = ()
    saved_bytes: int = 0

    async def snapshot(self, key: str) -> Snapshot | None:
        """Return the present state of a path; None for a path that is left alone. Raises ``Refused``
        (``RevertTooLarge``)."""
        path = key.partition(":")[2]
        try:
            node = await self._capture(path)
            size = len(node.content) if isinstance(node, RegularFile) else 0
            if self.saved_bytes + size > MAX_KEPT:
                text = f"no room to keep {path} for a revert beside {self.saved_bytes} bytes of other files"
                raise Refused(text, reason=Reason.REVERT_TOO_LARGE)
        except AgentError as error:
            if not await self._left_alone(path, error):
                raise
            return None
        self.saved_bytes += size
        return Snapshot(key, node=node)

    async def _capture(self, path: str) -> FileTreeEntry | None:
        node = await self.ports.files.capture(path)
        if not isinstance(node, Directory) or isinstance(self.tree.get(path), Directory):
            return node
        # What a directory in the place of a file means depends on the other steps.
        leaving = [step.path for step in self.update.writes if isinstance(step, RemovePath)]
        if path in leaving:
            return node
        # The directory disappears with its last file, so that a file of the same name can take its place.
        if any(other.startswith(f"{path}/") for other in leaving):
            return None
        raise Terminal(f"{path} is a directory, where a file should be", reason=Reason.NOT_A_FILE)

    async def do(self, step: WritePath | RemovePath) -> None:
        match step:
            case WritePath(path):
                await self._unless_contested(path, self.ports.files.install(path, self.tree[path]))
            case RemovePath(path):
                original = await original_of(self.ports, path)
                # The pre-flight has found a directory only where the config had one.
                await self._unless_contested(path, self._put(path, original.node, directory=True))

    async def undo(self, snapshot: Snapshot) -> None:
        path = snapshot.key.partition(":")[2]
        await self._unless_contested(path, self.put_back(path, snapshot.node))

    async def put_back(self, path: str, node: FileTreeEntry | None) -> None:
        try:
            await self._put(path, node, directory=isinstance(self.tree.get(path), Directory))
        except AgentError as error:
            # The path is a directory and was no file before. The agent never replaces a file by a directory, so another
            # program made it.
            if error.reason != Reason.NOT_A_FILE or node is not None:
                raise

    async def _put(self, path: str, node: FileTreeEntry | None, *, directory: bool) -> None:
        if node is None:
            await self.ports.files.remove(path, self.made_dirs, directory=directory)
        elif await self.ports.files.differs(path, node):
            await self.ports.files.install(path, node)

    async def _unless_contested(self, path: str, work: Awaitable[object]) -> None:
        try:
            await work
        except AgentError as error:
            if not await self._left_alone(path, error):
                raise

    async def _left_alone(self, path: str, error: AgentError) -> bool:
        """Report that ``path`` could not be written, read or removed, if others than root can be the cause."""
        owner = await self.ports.files.contested(path)
        if owner:
            note = f"left alone: {error} ({owner})"
            narrate(self.ports, self.update.record, Warned, note, Reason.PATH_CONTESTED)
        return bool(owner)
