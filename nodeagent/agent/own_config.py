# SPDX-License-Identifier: Apache-2.0
"""The settings and the policy of the agent: their check in a config, and the policy of an update.

Those of a config are merged with those of the host and checked before the first byte is written. After the reboot it
would be too late: the agent would have to start without valid settings.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nodeagent.agent.report.report import Report
from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.text import plain_json
from nodeagent.core.plan.policy import RECOMMENDED, Policy, is_policy_file, layered, merge_order
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.domains import default_policy, with_rules
from nodeagent.domains.nodeagent import SETTINGS
from nodeagent.errors import AgentError, InvalidInput, Problem
from nodeagent.host.policy_files import read_policy_files
from nodeagent.settings.check import check_values
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.load import DIRECTORIES, Fragment, find, merge, parse_fragment, read
from nodeagent.settings.schema import Settings
from nodeagent.update.ports.store import Notes

# With other values the agent would start without the record of the update, or with another desired config.
_KEPT: Final = ("state_dir", "desired_config")

# The note in the store with the policy that was valid last.
NOTE: Final = "policy"


@dataclass(eq=False)
class OwnConfig:
    """Implements ``ports.Validator``. ``settings`` are those of this process."""

    settings: Settings
    directories: Sequence[str | Path] = DIRECTORIES

    async def check(self, old: MachineConfig, new: MachineConfig) -> Sequence[Problem]:
        return await asyncio.to_thread(lambda: tuple(self._problems(old, new)))

    def _problems(self, old: MachineConfig, new: MachineConfig) -> Iterator[Problem]:
        had, wants = _fragments(old), _fragments(new)
        if had != wants:
            yield from self._settings_problems(set(had) - set(wants), wants)
        policy = self.settings.policy
        for path in sorted(file for file in new.files if is_policy_file(policy, file)):
            entry = new.files[path]
            if old.files.get(path) == entry:
                continue
            try:
                parse_policy(entry.content, path)
            except InvalidInput as error:
                yield from error.problems or [Problem(path, error.message)]

    def _settings_problems(self, removed: set[str], wants: dict[str, bytes]) -> Iterator[Problem]:
        there = {path.name: path for path in find(self.directories)}
        # A file that leaves /etc uncovers the one of the same name below /run or /usr.
        below = {path.name: path for path in find(self.directories[:-1])}
        there = {name: path for name, path in there.items() if name not in removed} | {
            name: path for name, path in below.items() if name in removed
        }
        fragments: dict[str, Fragment] = {}
        problems: list[Problem] = []
        for name, text in there.items():
            # A file that is invalid already is not a problem of this config.
            with suppress(InvalidInput):
                fragments[name] = read(text)
        for name, content in wants.items():
            try:
                fragments[name] = parse_fragment(f"{SETTINGS}/{name}", content)
            except InvalidInput as error:
                problems += error.problems
        try:
            merged = merge(fragment for _, fragment in sorted(fragments.items()))
            settings = check_values(merged)
        except InvalidInput as error:
            # The settings may have been invalid already: only problems in files of this config count.
            yield from (*problems, *_among(wants, error.problems))
            return
        try:
            check_consistency(settings, {key: value.where for key, value in merged.items()})
        except InvalidInput as error:
            # A file that leaves may uncover the other half of a contradiction, which this config causes as well.
            first = [Problem(f"{SETTINGS}/{name}", error.message) for name in sorted(wants)[:1]]
            problems += _among(wants, error.problems) or first
        else:
            for name in _KEPT:
                if not problems and getattr(settings, name) != getattr(self.settings, name):
                    problems.append(Problem(SETTINGS, f"{name} cannot be changed by a config"))
        yield from problems


def _among(names: Collection[str], problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems in the settings files ``names``. The path of one has ":" and the line behind the file."""
    named = [(problem, problem.path.rpartition("/")[2].partition(":")[0]) for problem in problems]
    return [problem for problem, file in named if problem.path.startswith(f"{SETTINGS}/") and file in names]


def _fragments(config: MachineConfig) -> dict[str, bytes]:
    """Return the settings files of a config by name."""
    # The same names as in ``settings.load.find``: other files of the directory are no settings.
    within = f"{SETTINGS}/"
    return {
        path[len(within) :]: node.content
        for path, node in expand(config).items()
        if path.startswith(within)
        and isinstance(node, RegularFile)
        and "/" not in path[len(within) :]
        and path.endswith(".yaml")
        and not path[len(within) :].startswith(".")
    }


@dataclass(eq=False)
class HostPolicy:
    """The policy that an update is planned with: the files that the new config brings, and those of the host.

    If a policy file of the host cannot be read, that is a problem in the status, and its last valid content is used. A
    config that contains the file, or removes the one of its predecessor, solves the problem. ``settings`` returns the
    current settings.
    """

    notes: Notes
    report: Report
    settings: Callable[[], Settings]

    async def __call__(self, old: MachineConfig, new: MachineConfig) -> Policy:
        """Return the policy for the update from ``old`` to ``new``. Raises ``InvalidInput`` if none is valid."""
        path = self.settings().policy
        brought = {file: new.files[file].content for file in new.files if is_policy_file(path, file)}
        layers = {file: await _parsed(text, file) for file, text in brought.items()}
        texts = await asyncio.to_thread(read_policy_files, self.settings(), brought)
        broken: dict[str, AgentError] = {}
        last_good: Mapping[str, Policy] = {}
        for file, text in texts.items():
            try:
                layers[file] = await _parsed(text, file)
            except AgentError as error:
                broken[file] = error
        if broken:
            self.report.problem("policy", next(iter(broken.values())))
            last_good = await self._kept()
        # The files of a config are not those of the host yet, so a policy that contains them is not kept.
        elif not brought:
            await self._save(texts)
        for file, failure in broken.items():
            # Without the directory, no drop-in could be read.
            usable = {name: layer for name, layer in last_good.items() if name == file or name.startswith(f"{file}/")}
            if not usable and file not in old.files:
                raise failure
            # A file that can be read is newer than its kept copy.
            layers = {**usable, **layers}
        return layered(default_policy(), (layers[file] for file in merge_order(path, layers)))

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
        note = json.dumps(plain, sort_keys=True) if plain else ""
        try:
            if note != await self.notes.note(NOTE):
                await self.notes.keep_note(NOTE, note)
        except AgentError as error:
            self.report.problem("store", error)

    async def _kept(self) -> Mapping[str, Policy]:
        """Return the files that were valid last. {} if there are none, or if the store fails."""
        try:
            note: Any = plain_json.loads(await self.notes.note(NOTE) or "{}")
            texts = {str(path): str(text) for path, text in note.items()}
            return {path: await _parsed(text.encode(), path) for path, text in texts.items()}
        except (AgentError, ValueError, AttributeError):
            return {}


async def _parsed(text: bytes | AgentError, path: str) -> Policy:
    if isinstance(text, AgentError):
        raise text
    # In a thread: the YAML parser takes longer than the loop may stop.
    policy = await asyncio.to_thread(parse_policy, text, path)
    return with_rules(policy) if path == RECOMMENDED else policy
