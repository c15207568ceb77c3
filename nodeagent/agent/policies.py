"""The policy that an update is planned with: the files that the new config brings, and those of the host.

If a policy file of the host cannot be read, that is a problem in the status, and its last valid content is used. A
config that contains the file, or removes the one of its predecessor, solves the problem.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.agent.report.report import Report
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.text import plain_json
from nodeagent.core.plan.policy import Policy
from nodeagent.core.plan.policy_files import RECOMMENDED, is_policy_file, layered, merge_order
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.core.update.ports.store import Notes
from nodeagent.domains import default_policy, with_rules
from nodeagent.errors import AgentError
from nodeagent.host.policy_files import read_policy_files
from nodeagent.settings.schema import Settings

NOTE: Final = "policy"


@dataclass(eq=False)
class HostPolicy:
    """``settings`` returns the current settings."""

    notes: Notes
    report: Report
    settings: Callable[[], Settings]

    async def __call__(self, old: MachineConfig, new: MachineConfig) -> Policy:
        """Return the policy for the update from ``old`` to ``new``. Raises ``InvalidInput`` if none is valid."""
        path = self.settings().policy
        brought = {each: new.files[each].content for each in new.files if is_policy_file(path, each)}
        layers = {each: await _parsed(text, each) for each, text in brought.items()}
        texts = await asyncio.to_thread(read_policy_files, self.settings(), brought)
        broken: dict[str, AgentError] = {}
        kept: Mapping[str, Policy] = {}
        for each, text in texts.items():
            try:
                layers[each] = await _parsed(text, each)
            except AgentError as error:
                broken[each] = error
        if broken:
            self.report.problem("policy", next(iter(broken.values())))
            kept = await self._kept()
        # The files of a config are not those of the host yet, so a policy that contains them is not kept.
        elif not brought:
            await self._save(texts)
        for each, failure in broken.items():
            # Without the directory, no drop-in could be read.
            usable = {name: layer for name, layer in kept.items() if name == each or name.startswith(f"{each}/")}
            if not usable and each not in old.files:
                raise failure
            # A file that can be read is newer than its kept copy.
            layers = {**usable, **layers}
        return layered(default_policy(), (layers[each] for each in merge_order(path, layers)))

    async def check(self) -> None:
        """Report a policy that cannot be read before an update needs it."""
        try:
            await self(MachineConfig(""), MachineConfig(""))
        except AgentError as error:
            self.report.problem("policy", error)

    async def _save(self, texts: Mapping[str, bytes | AgentError]) -> None:
        """Save a valid policy for a time when a file cannot be read."""
        self.report.solved("policy", "the policy is valid again")
        plain = {path: text.decode(errors="replace") for path, text in texts.items() if isinstance(text, bytes)}
        kept = json.dumps(plain, sort_keys=True) if plain else ""
        try:
            if kept != await self.notes.note(NOTE):
                await self.notes.keep_note(NOTE, kept)
        except AgentError as error:
            self.report.problem("store", error)

    async def _kept(self) -> Mapping[str, Policy]:
        """Return the files that were valid last. {} if there are none, or if the store fails."""
        try:
            found: Any = plain_json.loads(await self.notes.note(NOTE) or "{}")
            texts = {str(path): str(text) for path, text in found.items()}
            return {path: await _parsed(text.encode(), path) for path, text in texts.items()}
        except (AgentError, ValueError, AttributeError):
            return {}


async def _parsed(text: bytes | AgentError, path: str) -> Policy:
    if isinstance(text, AgentError):
        raise text
    # In a thread: the YAML parser takes longer than the loop may stop.
    policy = await asyncio.to_thread(parse_policy, text, path)
    return with_rules(policy) if path == RECOMMENDED else policy
