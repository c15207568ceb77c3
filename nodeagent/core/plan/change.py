"""Differences between two MachineConfigs, and the actions they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Action", "ActionType", "Change", "ChangeKind", "Plan", "PlannedChange", "PolicySource"]


class ChangeKind(StrEnum):
    ADDED = "added"
    MODIFIED = "modified"
    REMOVED = "removed"


class PolicySource(StrEnum):
    """Who decided what a change needs: the built-in table, the admin, or nobody (unlisted: Drain and Reboot)."""

    DEFAULT = "default"
    USER = "user"
    NONE = "none"


class ActionType(StrEnum):
    NONE = "None"
    DRAIN = "Drain"
    DAEMON_RELOAD = "DaemonReload"
    STOP = "Stop"  # of a unit whose file leaves with the config; a policy cannot ask for it
    RELOAD = "Reload"
    RESTART = "Restart"
    REBOOT = "Reboot"


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """``domain`` is file, unit, sshkey, osImageURL, kernelArguments, kernelType, extensions, fips, ...; ``key`` names
    the entry in it (a path, a unit name, a user, the field's name)."""

    domain: str
    key: str
    kind: ChangeKind

    @property
    def id(self) -> str:
        return f"{self.domain}:{self.key}"


@dataclass(frozen=True, slots=True)
class Action:
    """``unit`` is "" for types without one; ``because`` names changes by their id, sorted."""

    type: ActionType
    unit: str = ""
    because: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """``why`` is there where a rule looked at what exactly changed."""

    change: Change
    policy: PolicySource
    actions: tuple[Action, ...]  # what this change alone asks for; ``because`` is empty here
    why: str = ""
    avoids_reboot: bool = False  # the admin's entry replaces a reboot that the built-in policy asks for


@dataclass(frozen=True, slots=True)
class Plan:
    """What an update from one config to another will do. ``actions`` is the ordered list that the executor runs."""

    from_name: str
    to_name: str
    changes: tuple[PlannedChange, ...]
    actions: tuple[Action, ...]

    @property
    def drain(self) -> bool:
        return any(a.type is ActionType.DRAIN for a in self.actions)

    @property
    def reboot(self) -> bool:
        return any(a.type is ActionType.REBOOT for a in self.actions)

    @property
    def avoids_reboot(self) -> bool:
        return not self.reboot and any(planned.avoids_reboot for planned in self.changes)
