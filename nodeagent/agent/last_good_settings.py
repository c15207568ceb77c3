"""The settings that the daemon starts with: those on the disk, or the last valid ones, which the store keeps.

A file that somebody broke must not take the agent from its host, least of all in the middle of an update that may have
brought that very file and has to be reverted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from nodeagent import log
from nodeagent.agent.report.report import Report
from nodeagent.core.config.text import plain_json
from nodeagent.errors import AgentError, InvalidInput
from nodeagent.settings.check import check_consistency, valid_values
from nodeagent.settings.load import DIRECTORIES, load, salvage
from nodeagent.settings.schema import Settings, flatten

__all__ = ["FoundSettings", "NoteStore", "choose", "keep", "read_settings"]

NOTE: Final = "settings"
_log = log.get(__name__)


class NoteStore(Protocol):
    async def note(self, key: str) -> str: ...

    async def keep_note(self, key: str, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class FoundSettings:
    """With an ``error``, ``settings`` are what could be read of invalid ones: enough to find the store."""

    settings: Settings
    error: InvalidInput | None = None


def read_settings(directories: Sequence[str | Path] = DIRECTORIES) -> FoundSettings:
    """Read and check the settings on the disk. Blocks. Logs a warning for each key that is no longer a setting."""
    try:
        loaded = load(directories)
        check_consistency(loaded.settings)
    except InvalidInput as error:
        return FoundSettings(salvage(directories), error)
    for problem in loaded.warnings:
        _log.warning(f"{problem.path}: {problem.message}")
    return FoundSettings(loaded.settings)


async def choose(found: FoundSettings, notes: NoteStore, report: Report) -> Settings:
    """Raises ``found.error`` where no valid settings were ever kept."""
    if found.error is None:
        return found.settings
    kept = await _kept(notes)
    if kept is None:
        raise found.error
    report.problem("settings", _with("the last valid settings are used", found.error))
    return kept


async def keep(settings: Settings, notes: NoteStore, report: Report) -> None:
    """Whenever a start or a reload was good. A store that takes nothing just now is a problem, not a failure."""
    text = json.dumps(flatten(settings), sort_keys=True)
    try:
        if text != await notes.note(NOTE):
            await notes.keep_note(NOTE, text)
    except AgentError as error:
        report.problem("store", error)


async def _kept(notes: NoteStore) -> Settings | None:
    text = await notes.note(NOTE)
    if not text:
        return None
    try:
        values = plain_json.loads(text)
        settings = valid_values(values)
        await asyncio.to_thread(check_consistency, settings)
    except (ValueError, AttributeError, InvalidInput):
        return None
    return settings


def _with(words: str, error: InvalidInput) -> InvalidInput:
    return InvalidInput(f"{words}: {error.message}", reason=error.reason, problems=error.problems)
