# SPDX-License-Identifier: Apache-2.0
"""Plan an update: from two configs and a policy to the smallest ordered list of actions for all changes.

The rules, in order:

1. Without a change there is nothing to do: ``()``.
2. Each change requests the actions of the policy entry that matches it; an unlisted change requests Drain and Reboot. A
   Reboot always includes a Drain, because a reboot ends all workloads of the node. The actions on a unit fit its type:
   one whose file leaves, or that is masked, is stopped if that makes sense (``unit_changes``).
3. A Reboot replaces all other actions except the Drain, the removal of state and the static pods: after a boot each
   service has read its new files. A static pod is replaced before the reboot, because the kubelet reads a manifest as
   soon as it is written.
4. Otherwise each action occurs once: Drain, DaemonReload, the removals of state, the stops, the reloads, the restarts,
   the starts, the static pods.
   A Reload or a Start is dropped if the same unit restarts, and a Reload and a Restart if it is stopped: the changes
   count for what is left. Reloads and restarts keep the order of each policy list (``merge_orders``).
5. If there are changes, but no action, the only action is None.

Each action names the changes that requested it. The result does not depend on the order of the input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from nodeagent.core.config.file_tree import RegularFile, SymbolicLink
from nodeagent.core.config.machineconfig import DirectoryEntry, FileEntry, LinkEntry, MachineConfig
from nodeagent.core.config.unit_names import template_of
from nodeagent.core.plan.change import CHOSEN, Action, ActionType, Change, ChangeKind, Plan, PlannedChange, PolicySource
from nodeagent.core.plan.diff import diff
from nodeagent.core.plan.policy import DRAIN, NONE, REBOOT, UNLISTED, Policy, PolicyMatch, match, only_by_user
from nodeagent.core.plan.sides import NO_CONFIG, HostView, Sides
from nodeagent.core.plan.unit_changes import fitting, possible
from nodeagent.core.plan.unit_origin import unit_files, unit_of_dropin
from nodeagent.core.plan.unit_types import order_of
from nodeagent.errors import Problem, Refused
from nodeagent.reasons import Reason

SAME: Final = "the host's own version is the same"
DIRECTORY: Final = "programs see mode and owner of a directory at once"
LINK: Final = "the content that the link leads to is not known here"
UNIT_ACTIONS: Final = (ActionType.RELOAD, ActionType.RESTART)
NO_HOST: Final = HostView()
NO_UNITS: Final[Mapping[str, str]] = MappingProxyType({})

DISRUPTION: Final[Mapping[ActionType, str]] = {
    ActionType.NONE: "none",
    ActionType.DAEMON_RELOAD: "reload",
    ActionType.CLEAR_STATE: "restart",
    ActionType.RESTART_STATIC_POD: "restart",
    ActionType.STOP: "restart",
    ActionType.START: "restart",
    ActionType.RELOAD: "reload",
    ActionType.RESTART: "restart",
    ActionType.DRAIN: "drain",
    ActionType.REBOOT: "reboot",
}
# From the weakest to the strongest.
DISRUPTION_WORDS: Final = ("none", "reload", "restart", "drain", "reboot")


def make_plan(
    old: MachineConfig,
    new: MachineConfig,
    policy: Policy,
    from_name: str | None = None,
    host: HostView = NO_HOST,
    idle: Mapping[str, str] = NO_UNITS,
) -> Plan:
    """Return the plan of an update from ``old`` to ``new``. ``reconcile`` decides whether it is possible.

    ``from_name`` defaults to the name of ``old``. The daemon passes its own if that is the effective config of a host.
    A change of the units in ``idle`` takes no action, with the reason why.
    """
    sides = Sides(old, new, host)
    # ``diff`` has an order of its own, so equal updates have equal plans.
    planned = tuple(_planned(change, sides, policy, idle) for change in diff(old, new))
    name = old.name if from_name is None else from_name
    actions = combine([(p.change.id, p.actions) for p in planned], frozenset(unit_files(new)))
    return Plan(name, new.name, planned, actions, len(diff(NO_CONFIG, old)))


def _planned(change: Change, sides: Sides, policy: Policy, idle: Mapping[str, str]) -> PlannedChange:
    matched = match(policy, change)
    if (planned := _without_content(change, sides, matched)) is not None:
        return planned
    if (unit := change.key if change.domain == "unit" else unit_of_dropin(change.key)) in idle:
        source = matched.entry.source if matched is not None else PolicySource.DEFAULT
        return PlannedChange(change, source, (NONE,), idle[unit])
    if matched is None and _is_restored_unchanged(change, sides):
        return PlannedChange(change, PolicySource.NONE, (NONE,), SAME)
    if matched is None:
        # A file of the host may name the directory of this one, which no built-in path covers.
        for rule in policy.unlisted if change.domain == "file" else ():
            if (verdict := rule(change, sides)).actions != UNLISTED:
                return PlannedChange(change, PolicySource.DEFAULT, verdict.actions, verdict.why, keys=verdict.keys)
        return PlannedChange(change, PolicySource.NONE, UNLISTED)
    if _is_restored_unchanged(change, sides):
        return PlannedChange(change, matched.entry.source, (NONE,), SAME)
    verdict = matched.entry.decide(change, sides)
    actions, note = fitting(change, widen(verdict.actions), sides), ""
    if matched.entry.source not in CHOSEN:
        # An entry of the admin is refused instead.
        actions, note = possible(actions, sides.host.rejected)
    # The history counts reboots that an entry of the user has avoided.
    avoids = REBOOT not in actions and only_by_user(policy, change)
    note = "; ".join(text for text in (verdict.why, note) if text)
    return PlannedChange(change, matched.entry.source, actions, note, avoids, verdict.keys)


def _without_content(change: Change, sides: Sides, matched: PolicyMatch | None) -> PlannedChange | None:
    """Return the decision about a directory, or a link at a path whose content decides; None for other changes."""
    entries = [side.storage.get(change.key) for side in (sides.old, sides.new)]
    if change.domain != "file" or (matched is not None and matched.entry.source in CHOSEN):
        return None
    # The kernel checks mode and owner at each access, and what is in it are entries of their own.
    if any(isinstance(entry, DirectoryEntry) for entry in entries):
        return PlannedChange(change, PolicySource.DEFAULT, (NONE,), DIRECTORY)
    ruled = matched is not None and matched.entry.rule is not None
    if ruled and any(isinstance(entry, LinkEntry) for entry in entries) and not _is_restored_unchanged(change, sides):
        return PlannedChange(change, PolicySource.DEFAULT, UNLISTED, LINK)
    return None


def _is_restored_unchanged(change: Change, sides: Sides) -> bool:
    """Return whether a file that leaves the config is left as it is: the host's own version is the same."""
    if change.domain != "file" or change.kind is not ChangeKind.REMOVED:
        return False
    match sides.old.storage.get(change.key), sides.host.restored.get(change.key):
        case FileEntry() as was, RegularFile() as now:
            return (now.content, now.mode, now.user, now.group) == (was.content, was.mode, was.user, was.group)
        case LinkEntry() as link, SymbolicLink() as now_link:
            return (now_link.target, now_link.user, now_link.group) == (link.target, link.user, link.group)
        case _:
            return False


def widen(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Return the actions of an entry, with the Drain that a Reboot includes."""
    if REBOOT not in actions:
        return actions
    return (DRAIN, *(action for action in actions if action.type is ActionType.CLEAR_STATE), REBOOT)


def combine(
    requested: Sequence[tuple[str, tuple[Action, ...]]], files: Collection[str] = frozenset()
) -> tuple[Action, ...]:
    """Combine the actions of all changes. ``requested`` pairs the id of a change with the actions that it requests.

    ``files`` are the unit files of the new config.
    """
    if not requested:
        return ()
    because: dict[tuple[ActionType, str], set[str]] = {}
    paths: dict[tuple[ActionType, str], set[str]] = {}
    for change, actions in requested:
        for action in actions:
            because.setdefault((action.type, action.unit), set()).add(change)
            paths.setdefault((action.type, action.unit), set()).update(action.paths)
    _drop_jobs_of_stopped(because, files)
    clears = sorted(key for key in because if key[0] is ActionType.CLEAR_STATE)
    static_pods = sorted(key for key in because if key[0] is ActionType.RESTART_STATIC_POD)
    # A reboot includes all other actions, except the removal of state that the reboot would not remove, and the pods
    # that the kubelet would restart before it.
    if (ActionType.REBOOT, "") in because:
        keys = [(ActionType.DRAIN, ""), *clears, *static_pods, (ActionType.REBOOT, "")]
    else:
        keys = [(ActionType.DRAIN, ""), (ActionType.DAEMON_RELOAD, ""), *clears]
        keys += _sorted(because, ActionType.STOP)
        keys += _unit_actions({actions for _, actions in requested}, because)
        keys += _sorted(because, ActionType.START)
        keys += static_pods
    done = tuple(
        Action(*key, tuple(sorted(because[key])), tuple(sorted(paths.get(key, ())))) for key in keys if key in because
    )
    return done or (Action(ActionType.NONE, "", tuple(sorted(change for change, _ in requested))),)


def _sorted(keys: Iterable[tuple[ActionType, str]], verb: ActionType) -> list[tuple[ActionType, str]]:
    return sorted((key for key in keys if key[0] is verb), key=lambda key: order_of(key[1]))


def _drop_jobs_of_stopped(because: dict[tuple[ActionType, str], set[str]], files: Collection[str]) -> None:
    """Drop the reload and the restart of a unit that is stopped because its file leaves, and of the instances of a
    template that is. The stop takes over their changes."""
    for verb, unit in [key for key in because if key[0] in UNIT_ACTIONS]:
        for stopped in (unit, template_of(unit)):
            if (ActionType.STOP, stopped) in because and unit not in files:
                because[ActionType.STOP, stopped] |= because.pop((verb, unit), set())


def _unit_actions(
    lists: Collection[Sequence[Action]], because: dict[tuple[ActionType, str], set[str]]
) -> list[tuple[ActionType, str]]:
    """Return the reloads, then the restarts, in order. A restart takes over the changes of a reload of its unit."""
    restarted = {unit for verb, unit in because if verb is ActionType.RESTART}
    for unit in restarted:
        # A restart reads the configuration like a reload, and starts the unit, so only the restart is left.
        for weaker in (ActionType.RELOAD, ActionType.START):
            because[ActionType.RESTART, unit] |= because.pop((weaker, unit), set())

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


def merge_orders(sequences: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return all names of ``sequences``, each once, in the order in which units are reloaded or restarted.

    Each policy entry lists its actions in a deliberate order: the trust store is rebuilt before the runtime that reads
    it restarts. The lists of all entries are partial orders, and the result keeps each of them. The first place of a
    repeated name counts. Unrelated units are sorted by type and name (a socket before its service), so that the same
    change always runs in the same order. If lists contradict each other, the units of that cycle are sorted so, and all
    other orders still hold.
    """
    after: dict[str, set[str]] = {}
    for sequence in sequences:
        names = tuple(dict.fromkeys(sequence))
        for index, name in enumerate(names):
            after.setdefault(name, set()).update(names[index + 1 :])
    # Orders are transitive: a list may put a unit before one that another list puts before a third.
    later = {name: _reachable(after, name) - {name} for name in after}
    earlier: dict[str, set[str]] = {name: set() for name in after}
    for name, others in later.items():
        for other in others:
            # The names of a cycle do not wait for each other.
            if name not in later[other]:
                earlier[other].add(name)
    ordered: list[str] = []
    left = sorted(after, key=order_of)
    while left:
        done = set(ordered)
        # There always is one: only a cycle could leave none, and the names of a cycle do not wait for each other.
        name = next(name for name in left if earlier[name] <= done)
        ordered.append(name)
        left.remove(name)
    return tuple(ordered)


def _reachable(after: Mapping[str, set[str]], start: str) -> set[str]:
    reachable: set[str] = set()
    todo = [start]
    while todo:
        new = after[todo.pop()] - reachable
        reachable |= new
        todo.extend(new)
    return reachable


def disruption(plan: Plan) -> str:
    """Return the strongest of: none, reload, restart, drain, reboot."""
    words = {DISRUPTION[action.type] for action in plan.actions}
    return max(words, key=DISRUPTION_WORDS.index, default="none")


def check_disruption(plan: Plan, allowed: str) -> None:
    """Raise ``Refused`` (``DisruptionExceeded``) if the plan disrupts more than ``allowed``, one of the words."""
    word = disruption(plan)
    if DISRUPTION_WORDS.index(word) <= DISRUPTION_WORDS.index(allowed):
        return
    strongest = [action for action in plan.actions if DISRUPTION[action.type] == word]
    problems = tuple(Problem(change, f"needs a {word}") for action in strongest for change in action.because)
    message = f"the change needs a {word}, at most {allowed} is allowed"
    reason = Reason.DISRUPTION_EXCEEDED
    raise Refused(message, reason=reason, hint=reason.hint, problems=problems)
