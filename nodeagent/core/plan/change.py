"""Changes between two MachineConfigs, and the actions that they request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Action", "ActionType", "Change", "ChangeKind", "Plan", "PlannedChange", "PolicySource"]


class ChangeKind(StrEnum):
    ADDED = "added"
    MODIFIED = "modified"
    REMOVED = "removed"


class PolicySource(StrEnum):
    """The source of the decision about a change: the built-in table, the user, or none (unlisted: Drain and Reboot)."""

    DEFAULT = "default"
    USER = "user"
    NONE = "none"


class ActionType(StrEnum):
    NONE = "None"
    DRAIN = "Drain"
    DAEMON_RELOAD = "DaemonReload"
    STOP = "Stop"  # for a unit whose file leaves with the config; a policy cannot request it
    RELOAD = "Reload"
    RESTART = "Restart"
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
    """An action. ``unit`` is "" for types without one; ``because`` has the ids of changes, sorted."""

    type: ActionType
    unit: str = ""
    because: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change with its decision. ``why`` is set if a rule compared the contents."""

    change: Change
    policy: PolicySource
    actions: tuple[Action, ...]  # those of this change; ``because`` is empty
    why: str = ""
    avoids_reboot: bool = False  # an entry of the user replaces a reboot


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of an update. ``actions`` is the ordered list that the executor runs."""

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
