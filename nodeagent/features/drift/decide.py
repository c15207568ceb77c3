# SPDX-License-Identifier: Apache-2.0
"""Drift: managed entries of this host that differ from its current config, as data.

It also decides which of them are put back without an update, and when: never what disrupts, and never in a fight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import ActionType, Plan
from nodeagent.core.plan.entries import entries_by_path, without
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import Policy
from nodeagent.core.plan.steps import PresetUnit, WriteStep, write_steps

# It has the passwords of all users, so a change of it need not be drift.
SHADOW: Final = "/etc/shadow"
# Those of the accounts, also of others than a config has.
PASSWD: Final = "/etc/passwd"  # noqa: S105 - a path
GROUP: Final = "/etc/group"
# Entries in a message; the status has all of them.
SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class DriftedEntry:
    """``entry`` is an id (``file:/etc/x``), ``why`` the difference without content. ``since`` is the time
    of the first check that reported the difference.

    ``by`` names the program or user that made the change, "" if that is unknown.
    """

    entry: str
    why: str
    since: str
    by: str = ""


Drift = Sequence[DriftedEntry]


def watched_paths(config: MachineConfig) -> dict[str, frozenset[str]]:
    """Return the paths whose change may be drift, with the ids of their entries."""
    passwords = {f"password:{name}" for name, user in config.users.items() if user.password_hash is not None}
    accounts = {f"user:{name}" for name, user in config.users.items() if user.account is not None}
    of_users = {PASSWD: accounts, GROUP: accounts, SHADOW: passwords | accounts}
    watched = {path: frozenset(entries) for path, entries in of_users.items() if entries}
    for path, entry in entries_by_path(config).items():
        watched[path] = watched.get(path, frozenset()) | {entry}
    return watched


def updated(
    previous: Drift, checked: Collection[str] | None, differences: Mapping[str, str], now: str, by: Mapping[str, str]
) -> Drift:
    """Return the drift after a check of the entries ``checked`` (None: of all). ``differences`` is the result.

    An entry that differed before keeps its time, and its culprit unless there is a newer one.
    """
    before = {drifted.entry: drifted for drifted in previous}
    unchecked = [] if checked is None else [drifted for drifted in previous if drifted.entry not in checked]
    fresh = [
        _entry(before.get(entry), entry, difference, now, by.get(entry, ""))
        for entry, difference in differences.items()
    ]
    return tuple(sorted([*unchecked, *fresh], key=lambda drifted: drifted.entry))


def _entry(before: DriftedEntry | None, entry: str, difference: str, now: str, by: str) -> DriftedEntry:
    if before is None:
        return DriftedEntry(entry, difference, now, by)
    return replace(before, why=difference, by=by or before.by)


def describe_drift(drift: Iterable[DriftedEntry]) -> str:
    """Return the entries as a phrase for messages."""
    entries = list(drift)
    shown = [f"{entry.entry} {entry.why}" + (f" (by {entry.by})" if entry.by else "") for entry in entries[:SHOWN]]
    if len(entries) > SHOWN:
        shown.append(f"{len(entries) - SHOWN} more")
    return "; ".join(shown)


# Seconds from a repair of an entry to the next one, doubled with each.
FIRST_PAUSE: Final = 60.0
LONGEST_PAUSE: Final = 3600.0

# Repairs of one entry after which another program counts as fighting for it.
CONTENDED: Final = 3

# Seconds without drift after which the repairs of an entry are forgotten.
FORGET: Final = 6 * 3600.0

_HARMLESS: Final = frozenset({ActionType.NONE, ActionType.DAEMON_RELOAD})


@dataclass(frozen=True, slots=True)
class Repair:
    """``entries`` are put back by ``steps``. ``left`` are the others, each with the actions that it would take."""

    entries: frozenset[str]
    steps: tuple[WriteStep, ...]
    daemon_reload: bool
    left: dict[str, str]


def plan_repair(config: MachineConfig, drifted: Collection[str], policy: Policy) -> Repair:
    """Return the entries that can be put back without an action other than a daemon-reload."""
    # The actions are those of the policy for entries that are new: what was on the disk instead does not decide.
    plan = make_plan(without(config, drifted), config, policy)
    actions = {planned.change.id: [action.type for action in planned.actions] for planned in plan.changes}
    # A plan has no entry for what is no change of a config, such as the enablement of a unit without a file.
    harmless = frozenset(entry for entry in drifted if entry in actions and _HARMLESS.issuperset(actions[entry]))
    steps = write_steps(without(config, harmless), config)
    return Repair(
        harmless,
        # A preset is for new units. It would decide about a unit of which the config says nothing.
        tuple(step for step in steps if not isinstance(step, PresetUnit)),
        any(ActionType.DAEMON_RELOAD in actions[entry] for entry in harmless),
        {entry: _needed(plan, entry) for entry in drifted if entry not in harmless},
    )


def _needed(plan: Plan, entry: str) -> str:
    required = [change.actions for change in plan.changes if change.change.id == entry]
    return ", ".join(f"{action.type} {action.unit}".strip() for actions in required for action in actions)


@dataclass(frozen=True, slots=True)
class _Attempts:
    count: int = 0
    put_back: int = 0
    last: float = 0.0


class RepairPace:
    """When an entry may be put back again. Times are seconds of a steady clock."""

    def __init__(self) -> None:
        self._attempts: dict[str, _Attempts] = {}

    def due(self, entries: Iterable[str], now: float) -> frozenset[str]:
        """Return the entries that may be put back now."""
        return frozenset(entry for entry in entries if self._next(entry) <= now)

    def tried(self, entries: Iterable[str], put_back: Collection[str], now: float) -> None:
        """Note an attempt for ``entries``, which succeeded for ``put_back``."""
        for entry in entries:
            attempts = self._attempts.get(entry, _Attempts())
            self._attempts[entry] = _Attempts(attempts.count + 1, attempts.put_back + (entry in put_back), now)

    def wait(self, entries: Iterable[str], now: float) -> float | None:
        """Return the seconds until one of these entries may be put back, None without entries."""
        return min((max(0.0, self._next(entry) - now) for entry in entries), default=None)

    def contended(self, drifted: Collection[str], now: float) -> dict[str, int]:
        """Return the entries that were put back too often, with the number of repairs. ``drifted`` differ now."""
        for entry, attempts in [*self._attempts.items()]:
            if entry not in drifted and now - attempts.last > FORGET:
                del self._attempts[entry]
        repairs = {entry: self._attempts[entry].put_back for entry in drifted if entry in self._attempts}
        return {entry: count for entry, count in repairs.items() if count >= CONTENDED}

    def _next(self, entry: str) -> float:
        if entry not in self._attempts:
            return float("-inf")
        attempts = self._attempts[entry]
        # The exponent is bounded, because a float cannot hold two to the number of attempts of some weeks.
        return float(attempts.last + min(FIRST_PAUSE * 2 ** min(attempts.count - 1, 10), LONGEST_PAUSE))
