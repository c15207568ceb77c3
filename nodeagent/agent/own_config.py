"""The check of the settings and the policy of the agent in a config.

They are merged with those of the host and checked before the first byte is written. After the reboot it would be too
late: the agent would have to start without valid settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.policy_files import is_policy_file
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.domains.nodeagent import SETTINGS
from nodeagent.errors import InvalidInput, Problem
from nodeagent.settings.check import check_consistency, check_values
from nodeagent.settings.load import DIRECTORIES, Fragment, find, merge, parse_fragment, read
from nodeagent.settings.schema import Settings

# With other values the agent would start without the record of the update, or with another desired config.
_KEPT: Final = ("state_dir", "desired_config")


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
        for path in sorted(each for each in new.files if is_policy_file(policy, each)):
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
        for name, found in there.items():
            # A file that is invalid already is not a problem of this config.
            with suppress(InvalidInput):
                fragments[name] = read(found)
        for name, content in wants.items():
            try:
                fragments[name] = parse_fragment(f"{SETTINGS}/{name}", content)
            except InvalidInput as error:
                problems += error.problems
        try:
            settings = check_values(merge(fragment for _, fragment in sorted(fragments.items())))
            check_consistency(settings)
        except InvalidInput as error:
            # The settings may have been invalid already: only problems in files of this config count.
            wrong = error.problems or [Problem(f"{SETTINGS}/{name}", error.message) for name in sorted(wants)[:1]]
            # The path of a problem is that of the file, with ":" and the line.
            named = [(each, each.path.rpartition("/")[2].partition(":")[0]) for each in wrong]
            problems += [each for each, file in named if each.path.startswith(f"{SETTINGS}/") and file in wants]
        else:
            for name in _KEPT:
                if not problems and getattr(settings, name) != getattr(self.settings, name):
                    problems.append(Problem(SETTINGS, f"{name} cannot be changed by a config"))
        yield from problems


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
