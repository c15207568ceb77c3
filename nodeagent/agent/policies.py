"""The policy that an update is planned with: the one that the new config brings, or the one of the host.

If the policy of the host cannot be read, that is a problem in the status, and the last valid one is used. A config that
contains a policy, or removes the one of its predecessor, solves the problem.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from nodeagent.agent.last_good_settings import SettingsStore
from nodeagent.agent.report.report import Report
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.policy import Policy, merge
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.domains import default_policy
from nodeagent.errors import AgentError, InvalidInput
from nodeagent.host import config_file
from nodeagent.reasons import Reason
from nodeagent.settings.schema import Settings

__all__ = ["HostPolicy"]

NOTE: Final = "policy"


class HostPolicy:
    """``settings`` returns the current settings."""

    def __init__(self, notes: SettingsStore, report: Report, settings: Callable[[], Settings]) -> None:
        self._notes = notes
        self._report = report
        self._settings = settings

    async def __call__(self, old: MachineConfig, new: MachineConfig) -> Policy:
        """Return the policy for the update from ``old`` to ``new``. Raises ``InvalidInput`` if none is valid."""
        path = self._settings().policy
        if path in new.files:
            return await _parsed(new.files[path].content, path)
        try:
            return await self.of_host()
        except AgentError as error:
            self._report.problem("policy", error)
            if (kept := await self._kept(path)) is not None:
                return kept
            if path in old.files:
                return default_policy()
            raise

    async def look(self) -> None:
        """Reports a policy that cannot be read before an update needs it."""
        try:
            await self.of_host()
        except AgentError as error:
            self._report.problem("policy", error)

    async def of_host(self) -> Policy:
        """Return the policy of the host, and save it for a time when the file cannot be read."""
        path = self._settings().policy
        text = await config_file.read(path) if path else None
        if text is None:
            if path and path != Settings().policy:
                raise InvalidInput(f"{path} does not exist", reason=Reason.NO_POLICY)
            found, text = default_policy(), b""
        else:
            found = await _parsed(text, path)
        self._report.solved("policy", "the policy is valid again")
        kept = text.decode(errors="replace")
        try:
            if kept != await self._notes.note(NOTE):
                await self._notes.keep_note(NOTE, kept)
        except AgentError as error:
            self._report.problem("store", error)
        return found

    async def _kept(self, path: str) -> Policy | None:
        try:
            text = await self._notes.note(NOTE)
            return await _parsed(text.encode(), path) if text else None
        except AgentError:
            return None


async def _parsed(text: bytes, path: str) -> Policy:
    return merge(default_policy(), await asyncio.to_thread(parse_policy, text, path))
