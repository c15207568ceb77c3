# SPDX-License-Identifier: Apache-2.0
"""The settings that the daemon starts with: those on the disk, or the last valid ones, which the store keeps.

An invalid file must not keep the agent from starting, least of all in the middle of an update that may have written
that file and has to be reverted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.agent.report.report import Report
from nodeagent.core.config.text import plain_json
from nodeagent.errors import AgentError, InvalidInput
from nodeagent.settings.check import valid_values
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.load import DIRECTORIES, load, salvage
from nodeagent.settings.schema import Settings, flatten
from nodeagent.update.ports.store import Notes

NOTE: Final = "settings"


@dataclass(frozen=True, slots=True)
class FoundSettings:
    """With an ``error``, ``settings`` are the valid values of invalid settings: enough to find the store."""

    settings: Settings
    error: InvalidInput | None = None


def read_settings(directories: Sequence[str | Path] = DIRECTORIES) -> FoundSettings:
    """Read and check the settings on the disk. Blocks."""
    try:
        loaded = load(directories)
        check_consistency(loaded.settings, loaded.origins)
    except InvalidInput as error:
        return FoundSettings(salvage(directories), error)
    return FoundSettings(loaded.settings)


async def choose(settings_read: FoundSettings, notes: Notes, report: Report) -> Settings:
    """Return the settings to use. Raises ``found.error`` if the store has no valid settings."""
    if settings_read.error is None:
        return settings_read.settings
    last_good = await _kept(notes)
    if last_good is None:
        raise settings_read.error
    words = f"the last valid settings are used: {settings_read.error.message}"
    report.problem(
        "settings", InvalidInput(words, reason=settings_read.error.reason, problems=settings_read.error.problems)
    )
    return last_good


async def keep(settings: Settings, notes: Notes, report: Report) -> None:
    """Save valid settings after a start or a reload. If the store fails, that is a problem in the status only."""
    # The keys are sorted, so that equal settings are equal texts.
    text = json.dumps(flatten(settings), sort_keys=True)
    try:
        # Each start would otherwise cost a durable write, on disks that etcd may share.
        if text != await notes.note(NOTE):
            await notes.keep_note(NOTE, text)
    except AgentError as error:
        report.problem("store", error)


async def _kept(notes: Notes) -> Settings | None:
    text = await notes.note(NOTE)
    if not text:
        return None
    try:
        values = plain_json.loads(text)
        settings = valid_values(values)
        await asyncio.to_thread(check_consistency, settings)
    # An older version may have kept a value that this one rejects. The error of the files is then the one to report.
    except (ValueError, AttributeError, InvalidInput):
        return None
    return settings
