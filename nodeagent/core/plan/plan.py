"""From two configs and a policy to the ordered list of actions: the least that makes every change take effect.

The rules, in order:

1. Without a change there is nothing to do: ``()``.
2. Each change requests the actions of the policy entry that matches it; an unlisted change requests Drain and Reboot. A
   Reboot always includes a Drain, because a reboot ends all workloads of the node. A unit whose file leaves with the
   config requests a Stop too, unless its entry acts on the unit: systemd would keep it running without a file.
3. A Reboot replaces all other actions except the Drain: after a boot each service has read its new files.
4. Otherwise each action occurs once: Drain, DaemonReload, the stops, the reloads, the restarts. A Reload is dropped if
   the same unit restarts, and its changes count for the Restart. Reloads and restarts keep the order of each policy
   list (``core.plan.toposort``).
5. If there are changes, but no action, the only action is None.

Each action names the changes that requested it. The result does not depend on the order of the input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import unit_name_problem
from nodeagent.core.config.units import OWN_UNIT
from nodeagent.core.plan.change import Action, ActionType, Change, ChangeKind, Plan, PlannedChange, PolicySource
from nodeagent.core.plan.diff import diff
from nodeagent.core.plan.policy import DRAIN, NONE, REBOOT, UNLISTED, Policy, match, only_by_user
from nodeagent.core.plan.toposort import merge_orders

__all__ = ["DISRUPTION_WORDS", "combine", "disruption", "make_plan", "plan_changes", "widen"]

UNIT_ACTIONS: Final = (ActionType.RELOAD, ActionType.RESTART)

DISRUPTION: Final[Mapping[ActionType, str]] = {
    ActionType.NONE: "none",
    ActionType.DAEMON_RELOAD: "reload",
    ActionType.STOP: "restart",
    ActionType.RELOAD: "reload",
    ActionType.RESTART: "restart",
    ActionType.DRAIN: "drain",
    ActionType.REBOOT: "reboot",
}
DISRUPTION_WORDS: Final = ("none", "reload", "restart", "drain", "reboot")  # from the weakest to the strongest


def make_plan(
    old: MachineConfig, new: MachineConfig, policy: Policy, from_name: str | None = None, to_name: str | None = None
) -> Plan:
    """Return the plan of an update from ``old`` to ``new``. ``reconcile`` decides whether it is possible.

    The names default to those of the configs. The daemon passes its own if ``old`` is the effective config of the host.
    """
    return plan_changes(
        diff(old, new),
        old,
        new,
        policy,
        old.name if from_name is None else from_name,
        new.name if to_name is None else to_name,
    )


def plan_changes(
    changes: Iterable[Change], old: MachineConfig, new: MachineConfig, policy: Policy, from_name: str, to_name: str
) -> Plan:
    """Return the plan of these changes."""
    ordered = sorted(set(changes), key=attrgetter("domain", "key", "kind"))
    planned = tuple(_planned(change, old, new, policy) for change in ordered)
    return Plan(from_name, to_name, planned, combine([(p.change.id, p.actions) for p in planned]))


def _planned(change: Change, old: MachineConfig, new: MachineConfig, policy: Policy) -> PlannedChange:
    found = match(policy, change)
    if found is None:
        return PlannedChange(change, PolicySource.NONE, UNLISTED)
    verdict = found.entry.decide(old, new)
    actions = widen(verdict.actions)
    if (unit := leaving_unit(change, old, new)) and REBOOT not in actions and all(a.unit != unit for a in actions):
        actions = (*(action for action in actions if action != NONE), Action(ActionType.STOP, unit))
    avoids = REBOOT not in actions and only_by_user(policy, change)
    return PlannedChange(change, found.entry.source, actions, verdict.why, avoids)


def leaving_unit(change: Change, old: MachineConfig, new: MachineConfig) -> str:
    """Return the unit that loses its file with this change, "" if there is none.

    nodeagent.service never counts, because it makes the update.
    """
    if change.domain == "file" and change.kind is ChangeKind.REMOVED:
        directory, _, unit = change.key.rpartition("/")
        return unit if directory == UNIT_DIR and unit_name_problem(unit) is None and unit != OWN_UNIT else ""
    was, now = old.units.get(change.key), new.units.get(change.key)
    if change.domain != "unit" or was is None or was.mask or was.contents is None or change.key == OWN_UNIT:
        return ""
    return change.key if now is None or (now.contents is None and not now.mask) else ""


def widen(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Return the actions of an entry, with the Drain that a Reboot includes."""
    return (DRAIN, REBOOT) if REBOOT in actions else actions


def combine(requested: Sequence[tuple[str, tuple[Action, ...]]]) -> tuple[Action, ...]:
    """Combine the actions of all changes. ``requested`` pairs the id of a change with the actions that it requests."""
    if not requested:
        return ()
    because: dict[tuple[ActionType, str], set[str]] = {}
    for change, actions in requested:
        for action in actions:
            because.setdefault((action.type, action.unit), set()).add(change)
    if (ActionType.REBOOT, "") in because:
        kept = [(ActionType.DRAIN, ""), (ActionType.REBOOT, "")]
    else:
        kept = [(ActionType.DRAIN, ""), (ActionType.DAEMON_RELOAD, "")]
        kept += sorted(key for key in because if key[0] is ActionType.STOP)
        kept += _unit_actions({actions for _, actions in requested}, because)
    done = tuple(Action(*key, tuple(sorted(because[key]))) for key in kept if key in because)
    return done or (Action(ActionType.NONE, "", tuple(sorted(change for change, _ in requested))),)


def _unit_actions(
    lists: Collection[Sequence[Action]], because: dict[tuple[ActionType, str], set[str]]
) -> list[tuple[ActionType, str]]:
    """Return the reloads, then the restarts, in order. A restart takes over the changes of a reload of its unit."""
    restarted = {unit for verb, unit in because if verb is ActionType.RESTART}
    for unit in restarted:
        because[ActionType.RESTART, unit] |= because.pop((ActionType.RELOAD, unit), set())

    def sequence(actions: Sequence[Action], verb: ActionType) -> list[str]:
        """Return the units of one list under ``verb``. A reload that became a restart keeps its place."""
        own = {action.unit for action in actions if action.type is ActionType.RESTART}
        return [
            action.unit
            for action in actions
            if action.type is verb
            or (verb is ActionType.RESTART and action.type is ActionType.RELOAD and action.unit in restarted - own)
        ]

    # Each verb is merged separately: two lists that differ in the place of a reload only do not conflict.
    return [
        (verb, unit)
        for verb in UNIT_ACTIONS
        for unit in merge_orders(sequence(actions, verb) for actions in lists)
        if (verb, unit) in because
    ]


def disruption(plan: Plan) -> str:
    """Return the strongest of: none, reload, restart, drain, reboot."""
    words = {DISRUPTION[action.type] for action in plan.actions}
    return max(words, key=DISRUPTION_WORDS.index, default="none")
