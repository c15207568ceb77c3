# SPDX-License-Identifier: Apache-2.0
"""Changes between two MachineConfigs, and the actions that they request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ChangeKind(StrEnum):
    ADDED = "added"
    MODIFIED = "modified"
    REMOVED = "removed"


class PolicySource(StrEnum):
    """The source of the decision about a change: the built-in table, the recommended policy that the package has and a
    setting switches on, the user, or none (unlisted: Drain and Reboot)."""

    DEFAULT = "default"
    RECOMMENDED = "recommended"
    USER = "user"
    NONE = "none"


# Sources of entries that are added to the built-in ones, because an admin chose them.
CHOSEN: Final = frozenset({PolicySource.RECOMMENDED, PolicySource.USER})


# Domains whose entries are files and services of the userspace. Each other domain is a part of the OS.
USERSPACE: Final = frozenset({"file", "unit", "user", "sshkey", "password"})
# A plan that stops it needs the check of the quorum.
ETCD_UNIT: Final = "etcd.service"
# In place of a value that may be a secret.
HIDDEN: Final = "(not shown)"
# Characters of a value in a plan.
LONGEST: Final = 200
# In place of a key of a manifest: the whole static pod is added or removed.
POD: Final = "pod"


def shortened(text: str) -> str:
    """Return a value as a plan shows it."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


class ActionType(StrEnum):
    NONE = "None"
    DRAIN = "Drain"
    DAEMON_RELOAD = "DaemonReload"
    # Stops a unit and removes files of its state. A policy cannot request it.
    CLEAR_STATE = "ClearState"
    # Stops a unit whose file leaves with the config, or that is disabled or masked. A policy cannot request it.
    STOP = "Stop"
    # Starts a unit that is new or newly enabled. A policy cannot request it.
    START = "Start"
    RELOAD = "Reload"
    RESTART = "Restart"
    # Replaces the manifest of a static pod; ``unit`` is namespace/name. A policy cannot request it.
    RESTART_STATIC_POD = "RestartStaticPod"
    REBOOT = "Reboot"


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """One change. ``domain`` is file, unit, sshkey, osImageURL, kernelArguments, kernelType, extensions, fips, ...

    ``key`` names the entry: a path, a unit name, a user, or the name of the field.
    """

    domain: str
    key: str
    kind: ChangeKind

    @property
    def id(self) -> str:
        return f"{self.domain}:{self.key}"


@dataclass(frozen=True, slots=True)
class Action:
    """An action. ``unit`` is "" for types without one; ``because`` has the ids of changes, sorted.

    ``paths`` are the files that a ClearState removes, or the manifests of a RestartStaticPod, sorted. All data of an
    action is in the plan, because the steps of an update that is resumed are computed from the recorded plan alone.
    """

    type: ActionType
    unit: str = ""
    because: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One key that differs between the documents that a program reads before and after an update.

    ``document`` is the path or the unit of the changed entry that brings the difference. ``before`` and ``after`` are
    JSON, "" for a key that is not set; a value that may be a secret is replaced by ``(not shown)``. A key that needs no
    action and counts from the next start of a unit has that unit in ``next_start``.
    """

    document: str
    key: str
    before: str
    after: str
    actions: tuple[Action, ...]
    why: str = ""
    next_start: str = ""


@dataclass(frozen=True, slots=True)
class Detail:
    """How one property of a changed entry differs; ``what`` is content, mode, owner, state, argument, key, ...

    ``before`` and ``after`` are values without secrets, "" for none. ``added`` and ``removed`` count lines; None if
    they were not counted.
    """

    what: str
    before: str = ""
    after: str = ""
    added: int | None = None
    removed: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change with its decision. ``why`` is set if a domain compared the contents, ``keys`` if it compared keys."""

    change: Change
    policy: PolicySource
    # Actions of this change, with an empty ``because``.
    actions: tuple[Action, ...]
    why: str = ""
    # An entry of the user replaces a reboot.
    avoids_reboot: bool = False
    keys: tuple[KeyChange, ...] = ()
    # See core.plan.plan_values.
    details: tuple[Detail, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of an update. ``actions`` is the ordered list that the executor runs."""

    from_name: str
    to_name: str
    changes: tuple[PlannedChange, ...]
    actions: tuple[Action, ...]
    # Entries of the old config.
    total: int = 0

    def count(self, kind: ChangeKind) -> int:
        return sum(planned.change.kind is kind for planned in self.changes)

    @property
    def drain(self) -> bool:
        return any(a.type is ActionType.DRAIN for a in self.actions)

    @property
    def reboot(self) -> bool:
        return any(a.type is ActionType.REBOOT for a in self.actions)

    @property
    def stops_static_pods(self) -> bool:
        """Whether a static pod ends for a while. An added one does not, unless it replaces a pod that the host has
        without a config: then its keys differ from those of that pod."""
        stopped = [planned for planned in self.changes if not _adds_pod(planned)]
        return any(a.type is ActionType.RESTART_STATIC_POD for planned in stopped for a in planned.actions)

    @property
    def stops_etcd(self) -> bool:
        """Whether the unit of etcd ends for a while. A static pod may be etcd as well."""
        # A reload leaves the process running.
        stopping = (ActionType.RESTART, ActionType.STOP, ActionType.CLEAR_STATE)
        return any(a.unit == ETCD_UNIT and a.type in stopping for a in self.actions)

    @property
    def avoids_reboot(self) -> bool:
        return not self.reboot and any(planned.avoids_reboot for planned in self.changes)


def _adds_pod(planned: PlannedChange) -> bool:
    added = planned.change.kind is ChangeKind.ADDED
    return added and all(key.key == POD and not key.before for key in planned.keys)
