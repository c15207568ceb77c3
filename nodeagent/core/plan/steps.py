# SPDX-License-Identifier: Apache-2.0
"""Steps: the operations of the executor on the host, as a closed union of comparable data.

A plan lists the *visible actions*, the steps are *all operations*, in order. They contain names only, so they can be
printed and stored; the executor reads the content from the desired config.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, get_args

from nodeagent.core.config.file_tree import FileTreeEntry, expand
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import template_of
from nodeagent.core.plan.change import ActionType, Plan
from nodeagent.core.plan.static_pods import owned_manifests


@dataclass(frozen=True, slots=True)
class WritePath:
    verb: ClassVar = "write"
    path: str


@dataclass(frozen=True, slots=True)
class RemovePath:
    """Restore the original file of a path, or remove the path."""

    verb: ClassVar = "remove"
    path: str


# The steps about enablement name the entries that change. The links belong to several units, so they are computed from
# all entries together (``enablement.link_plan``), and made with the first of these steps.
@dataclass(frozen=True, slots=True)
class DisableUnit:
    """Remove the links that start a unit, also those of a masked one: they would start it as soon as the mask is
    gone."""

    verb: ClassVar = "disable"
    unit: str


@dataclass(frozen=True, slots=True)
class EnableUnit:
    """Make the links that [Install] names, and remove those that it no longer names."""

    verb: ClassVar = "enable"
    unit: str


@dataclass(frozen=True, slots=True)
class PresetUnit:
    verb: ClassVar = "preset"
    # The presets of the host decide, as for a unit that comes with a package (systemd.preset(5)).
    unit: str


@dataclass(frozen=True, slots=True)
class RestoreUnit:
    """The config no longer sets the enablement of the unit: restore the original one."""

    verb: ClassVar = "restore enablement of"
    unit: str


@dataclass(frozen=True, slots=True)
class SetPassword:
    verb: ClassVar = "set password of"
    # The hash stays in the config: steps are printed, and stored in the record.
    user: str


@dataclass(frozen=True, slots=True)
class LockUser:
    """A user that leaves the config is locked, because an empty password hash allows logins without a password."""

    verb: ClassVar = "lock"
    user: str


@dataclass(frozen=True, slots=True)
class CreateUser:
    verb: ClassVar = "create user"
    user: str


@dataclass(frozen=True, slots=True)
class RetireUser:
    """Let the account expire that this agent created for a user that leaves the config. No account is deleted: its
    files stay, and another user must not get its number."""

    verb: ClassVar = "expire user"
    user: str


# A membership is written as user:group.
@dataclass(frozen=True, slots=True)
class JoinGroup:
    verb: ClassVar = "add to group"
    membership: str


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    verb: ClassVar = "remove from group"
    membership: str


@dataclass(frozen=True, slots=True)
class DaemonReload:
    verb: ClassVar = "daemon-reload"


@dataclass(frozen=True, slots=True)
class ClearState:
    """Stop a unit and remove files of its state that do not fit its new configuration.

    The restart or the reboot that follows starts the unit, which makes the files again.
    """

    unit: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopUnit:
    """Stop a unit whose file leaves with the config, or that is disabled or masked."""

    verb: ClassVar = "stop"
    unit: str


@dataclass(frozen=True, slots=True)
class ReloadUnit:
    verb: ClassVar = "reload"
    unit: str


@dataclass(frozen=True, slots=True)
class RestartUnit:
    verb: ClassVar = "restart"
    unit: str


@dataclass(frozen=True, slots=True)
class StartUnit:
    """Start a unit that is new or newly enabled, if a unit that runs wants it."""

    verb: ClassVar = "start"
    unit: str


@dataclass(frozen=True, slots=True)
class RestartStaticPod:
    """Replace the manifest of a static pod: take it away, wait for the end of the pod, put the new one.

    ``pod`` is namespace/name. The manifest is not written with the other files.
    """

    pod: str
    path: str


@dataclass(frozen=True, slots=True)
class Reboot:
    verb: ClassVar = "reboot"


UnitStep = DisableUnit | EnableUnit | PresetUnit | RestoreUnit
AccountStep = CreateUser | RetireUser | JoinGroup | LeaveGroup
WriteStep = WritePath | RemovePath | UnitStep | SetPassword | LockUser | AccountStep
ActStep = DaemonReload | ClearState | StopUnit | ReloadUnit | RestartUnit | StartUnit | RestartStaticPod | Reboot
Step = WriteStep | ActStep


def step_unit(step: ActStep) -> str:
    return step.unit if isinstance(step, ClearState | ReloadUnit | RestartUnit | StartUnit | StopUnit) else ""


def step_id(step: Step) -> str:
    """Return an identity by content, which recognizes a completed step in a recomputed list."""
    # The id depends on the content only, so a restarted agent finds the completed steps again.
    parts = [type(step).__name__, *(str(getattr(step, f.name)) for f in fields(step))]
    # 64 bits are enough to tell the steps of one update apart.
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


# Stored records have the names of these classes: renaming one needs a migration of the store.
_WRITE_STEPS: Mapping[str, type[WriteStep]] = {kind.__name__: kind for kind in get_args(WriteStep)}


def step_to_pair(step: WriteStep) -> tuple[str, str]:
    """Return type and argument, for the record."""
    (only,) = fields(step)
    return type(step).__name__, getattr(step, only.name)


def step_from_pair(kind: str, argument: str) -> WriteStep:
    """Return the step of ``step_to_pair``. Raises ``ValueError`` for an unknown kind."""
    if kind not in _WRITE_STEPS:
        raise ValueError(f"unknown step {kind!r}")
    return _WRITE_STEPS[kind](argument)


def describe(step: Step) -> str:
    """Return a description for messages: ``restart crio.service``."""
    match step:
        case ClearState(unit, paths):
            return f"stop {unit} and remove {', '.join(paths)}"
        case RestartStaticPod(pod, path):
            return f"restart static pod {pod} ({path})"
        case _:
            return " ".join((step.verb, *(getattr(step, field.name) for field in fields(step))))


def _enablement(unit: UnitEntry) -> WriteStep | None:
    match unit.enabled:
        case True if not unit.mask:
            return EnableUnit(unit.name)
        case None if not unit.mask:
            # A preset applies to units of the config; a drop-in alone must not enable a unit.
            return PresetUnit(unit.name) if unit.contents is not None else None
        case _:
            return DisableUnit(unit.name)


def decides_enablement(unit: UnitEntry) -> bool:
    """Return whether this entry sets the enablement of the unit.

    A drop-in alone does not. A mask disables, so that the result does not depend on the previous config.
    """
    return unit.mask or unit.enabled is not None or unit.contents is not None


def _files_of(unit: str, tree: Mapping[str, FileTreeEntry]) -> dict[str, FileTreeEntry]:
    """Return the unit file and the drop-ins of a unit that a config brings, also those of its template."""
    places = [f"{UNIT_DIR}/{name}" for name in (unit, template_of(unit)) if name]
    return {
        path: node
        for path, node in tree.items()
        if path in places or any(path.startswith(f"{place}.d/") for place in places)
    }


def _unit_steps(
    old: MachineConfig, new: MachineConfig, had: Mapping[str, FileTreeEntry], wants: Mapping[str, FileTreeEntry]
) -> list[WriteStep]:
    steps: list[WriteStep] = []
    # Files that are equal in both configs decide nothing.
    was_there = {path: node for path, node in had.items() if path.startswith(UNIT_DIR) and wants.get(path) != node}
    comes = {path: node for path, node in wants.items() if path.startswith(UNIT_DIR) and had.get(path) != node}
    for name in sorted({*old.units, *new.units}):
        was, now = old.units.get(name), new.units.get(name)
        if was == now:
            # A unit in storage.files, or the template of an instance, may have another [Install] section.
            if now is not None and now.enabled is True and (_files_of(name, was_there) or _files_of(name, comes)):
                steps.append(EnableUnit(name))
        elif now is not None and decides_enablement(now):
            if (step := _enablement(now)) is not None:
                steps.append(step)
        elif was is not None and decides_enablement(was):
            steps.append(RestoreUnit(name))
    return steps


def _password_steps(old: MachineConfig, new: MachineConfig) -> Iterator[WriteStep]:
    for name in sorted({*old.users, *new.users}):
        was, now = old.users.get(name), new.users.get(name)
        if now is not None and now.password_hash is not None:
            if was is None or was.password_hash != now.password_hash:
                yield SetPassword(name)
        elif was is not None and was.password_hash is not None:
            # The machine-config-daemon sets an empty hash here, with which PAM may allow a login without a password.
            yield LockUser(name)


def accounts_of(config: MachineConfig) -> set[str]:
    return {name for name, user in config.users.items() if user.account is not None}


def memberships_of(config: MachineConfig) -> set[str]:
    return {f"{name}:{group}" for name, user in config.users.items() for group in user.groups}


def write_steps(old: MachineConfig, new: MachineConfig) -> tuple[WriteStep, ...]:
    """Return all writes, in order: new accounts, paths, the enablement of units, passwords, accounts that leave.

    ``old`` is the current config, not the disk: manual changes elsewhere are drift and are not undone. A manifest that
    an operator writes is never written or removed.
    """
    had, wants = expand(old), expand(new)
    # Removals come first, the deepest at the beginning: a file may become a directory, or a directory a file.
    removals = [
        RemovePath(path) for path in sorted(had.keys() - wants.keys() - owned_manifests(old).keys(), reverse=True)
    ]
    # Entries that are equal in both configs are not written.
    ours = wants.keys() - owned_manifests(new).keys()
    writes = [WritePath(path) for path in sorted(ours) if had.get(path) != wants[path]]
    # A membership of a user that leaves is one that leaves.
    had_accounts, accounts = accounts_of(old), accounts_of(new)
    joined, left = memberships_of(new) - memberships_of(old), memberships_of(old) - memberships_of(new)
    return (
        # Files may belong to them.
        *(CreateUser(name) for name in sorted(accounts - had_accounts)),
        *(JoinGroup(membership) for membership in sorted(joined)),
        *removals,
        *writes,
        *_unit_steps(old, new, had, wants),
        *_password_steps(old, new),
        *(LeaveGroup(membership) for membership in sorted(left)),
        *(RetireUser(name) for name in sorted(had_accounts - accounts)),
    )


def act_steps(plan: Plan) -> tuple[ActStep, ...]:
    """Return the actions of the plan as steps, in order. ``None`` needs no step, and a drain has a phase of its own."""
    steps: list[ActStep] = []
    for action in plan.actions:
        match action.type:
            case ActionType.NONE | ActionType.DRAIN:
                pass
            case ActionType.DAEMON_RELOAD:
                steps.append(DaemonReload())
            case ActionType.CLEAR_STATE:
                steps.append(ClearState(action.unit, action.paths))
            case ActionType.STOP:
                steps.append(StopUnit(action.unit))
            case ActionType.RELOAD:
                steps.append(ReloadUnit(action.unit))
            case ActionType.RESTART:
                steps.append(RestartUnit(action.unit))
            case ActionType.START:
                steps.append(StartUnit(action.unit))
            case ActionType.RESTART_STATIC_POD:
                steps += [RestartStaticPod(action.unit, path) for path in action.paths]
            case ActionType.REBOOT:
                steps.append(Reboot())
    return tuple(steps)
