# SPDX-License-Identifier: Apache-2.0
"""Follow a directory of MachineConfigs, and write what they give as the desired config."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Final

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.fragments.render import OWN, is_fragment, read_fragment, render
from nodeagent.errors import AgentError, InvalidInput, Problem
from nodeagent.features.fragments.reasons import FragmentReason
from nodeagent.host.config_file import names_in, read_now, watch_directory
from nodeagent.update.ports.host import Files, Reporter
from nodeagent.update.ports.store import Notes

# Seconds without a change before the directory is read: what writes it, such as git, writes one file after another.
QUIET: Final = 5.0
# Seconds until what failed for another cause than its content, such as a full disk, is tried again.
RETRY: Final = 60.0
# The digest of the config that was written last, in the store.
_WRITTEN: Final = "fragments"
_TOPIC: Final = "configs"


class ConfigDirectory:
    """``target`` is the file of the desired config, which is written when the directory gives another config.

    A config that an operator applies or rolls back to replaces it until the directory changes.
    """

    def __init__(self, path: str, target: str, files: Files, notes: Notes, reporter: Reporter) -> None:
        self._path, self._target = path, target
        self._files, self._notes, self._reporter = files, notes, reporter
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Follow the directory. Never returns."""
        async with asyncio.TaskGroup() as tasks:
            for directory in (self._path, str(Path(self._path, OWN))):
                tasks.create_task(watch_directory(directory, is_fragment, self._changed.set))
            while True:
                await self._changed.wait()
                while self._changed.is_set():
                    self._changed.clear()
                    await asyncio.sleep(QUIET)
                if not await self.update():
                    asyncio.get_running_loop().call_later(RETRY, self._changed.set)

    async def update(self) -> bool:
        """Write the config that the directory gives, unless it was written already. Problems go to the status.

        Returns False if the same files may be written later.
        """
        try:
            text = await asyncio.to_thread(read_directory, self._path)
            if text is not None:
                await self._write(text)
        except AgentError as error:
            self._reporter.problem(_TOPIC, error)
            return isinstance(error, InvalidInput)
        self._reporter.solved(_TOPIC, f"the MachineConfigs in {self._path} are the desired config again")
        return True

    async def _write(self, text: bytes) -> None:
        digest = hashlib.sha256(text).hexdigest()
        if await self._notes.note(_WRITTEN) == digest:
            return
        # In this order: after a kill in between, it is written again.
        await self._files.install(self._target, RegularFile(text, 0o600))
        await self._notes.keep_note(_WRITTEN, digest)


def read_directory(path: str) -> bytes | None:
    """Return the config of the MachineConfigs in a directory; None if there is none, which removes nothing. Blocks.

    Raises ``InvalidInput`` with the problems of all files, and ``Terminal`` for a file that cannot be read.
    """
    fragments, problems = [], []
    for directory, own in ((path, False), (str(Path(path, OWN)), True)):
        for name in sorted(filter(is_fragment, names_in(directory))):
            file = str(Path(directory, name))
            # Without the content, the file has left since, which is one more change.
            if (text := read_now(file)) is None:
                continue
            try:
                fragments.append(read_fragment(text, file, own=own))
            except InvalidInput as error:
                problems += [Problem(f"{file}: {p.path}", p.message) for p in error.problems] or [
                    Problem(file, error.message)
                ]
    if problems:
        reason = FragmentReason.FRAGMENTS_INVALID
        message = f"MachineConfigs in {path} are invalid"
        raise InvalidInput(message, reason=reason, hint=reason.hint, problems=problems)
    return render(fragments) if fragments else None
