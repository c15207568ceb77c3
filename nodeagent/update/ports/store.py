# SPDX-License-Identifier: Apache-2.0
"""The port to the store: records, configs, snapshots and history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.update.history.lasting import Confirmation, Hold
from nodeagent.update.record import Record


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """Apply the config with this digest as soon as it is the desired one, also if it failed here or was rolled back.

    ``avoid`` and ``avoid_meaning`` are of the config that it takes the place of, for a rollback: that one is applied
    again on request only. With ``cancel``, the request is the opposite: the update to this config, whose name is
    ``name``, ends, and it is applied again on request only. ``requester`` is the operator. The others as in ``Hold``.
    """

    digest: str
    avoid: str = ""
    avoid_meaning: str = ""
    cancel: bool = False
    name: str = ""
    requester: str = ""
    no_reboot: bool = False
    boot_staged: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    # See ``Confirmation``.
    removes: int = 0
    lockout: bool = False

    @property
    def confirmed(self) -> Confirmation | None:
        if not (self.removes or self.lockout):
            return None
        return Confirmation(self.digest, self.removes, self.lockout)

    def held(self, hold: Hold | None) -> ApplyRequest:
        """Return the request with ``hold``."""
        return self if hold is None else replace(self, **(asdict(hold) | {"digest": self.digest}))

    @property
    def hold(self) -> Hold | None:
        if not (self.no_reboot or self.boot_staged or self.options):
            return None
        return Hold(self.digest, self.no_reboot, self.requester, self.boot_staged, self.options)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The original state of an entry. ``key`` is ``path:/etc/x``, ``unit:x.service`` or ``password:core``.

    ``node`` is for paths (None if the path was missing), ``text`` for the others.
    """

    key: str
    node: FileTreeEntry | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """An ended update."""

    update_id: str
    from_name: str
    to_name: str
    started: str
    finished: str
    # A value of ``update.history.outcome.UpdateOutcome``.
    outcome: str
    # None, reload, restart, drain, reboot: as planned.
    disruption: str = "none"
    # Reboots that the agent requested.
    reboots: int = 0
    reboot_avoided: bool = False
    seconds: float = 0.0
    reason: str = ""
    message: str = ""
    # An unplanned reboot because an action failed.
    fallback: bool = False
    # Of the reboots, those that started the services and no kernel.
    soft_reboots: int = 0
    # Boots during the update, whatever their cause: also those of a power cut.
    boots: int = 0
    # Digest of the new config.
    to_digest: str = ""
    # The unit that failed last.
    failed_unit: str = ""
    # The config that superseded the update.
    successor: str = ""
    # The latency around the staging, as a feature measured it; {} without one.
    etcd_disk: Mapping[str, Any] = field(default_factory=dict)
    # A summary of the plan, see ``update.history.entry``; {} in old entries.
    plan: Mapping[str, Any] = field(default_factory=dict)
    # See ``update.history.trail``; {} as above.
    trail: Mapping[str, Any] = field(default_factory=dict)


# The note with the feature that has staged an OS on this host.
SERVED_BY: Final = "deployments"


class Notes(Protocol):
    """Texts by key. Durable when the call returns."""

    async def note(self, key: str) -> str: ...

    async def keep_note(self, key: str, text: str) -> None: ...


class Store(Notes, Protocol):
    """The database. Changes are durable when the call returns."""

    async def load(self) -> Record: ...

    async def save(self, record: Record) -> None: ...

    async def request(self) -> ApplyRequest | None:
        """Return the request of an operator that has not begun yet."""
        ...

    async def keep_request(self, request: ApplyRequest) -> None:
        """Keep a request; it replaces an earlier one."""
        ...

    async def drop_request(self, digest: str) -> None:
        """Drop the request if it is for that config."""
        ...

    async def begin(self, record: Record) -> None:
        """Save the record of a new update and drop the request for its config, in one transaction."""
        ...

    async def set_record_aside(self, reason: str, message: str) -> Record:
        """Keep an unreadable record for later, and return a degraded one in its place."""
        ...

    async def put_config(self, source: ConfigSource) -> None: ...

    async def get_config(self, digest: str) -> ConfigSource: ...

    async def config_named(self, name: str) -> ConfigSource | None:
        """Return the newest kept config of this name, None if there is none."""
        ...

    async def fetched(self) -> ConfigSource | None:
        """Return the config that another source than the file of this host desired last."""
        ...

    async def keep_fetched(self, source: ConfigSource | None) -> None: ...

    async def current(self) -> str:
        """Return the digest of the current config, "" before the first one."""
        ...

    async def previous(self) -> str:
        """Return the digest of the previous config, "" if there was only one. Its text is kept."""
        ...

    async def remember(self, update_id: str, snapshots: Sequence[Snapshot]) -> None:
        """Keep snapshots for this update. The first one of a key wins: after a crash the disk may have new content."""
        ...

    async def remembered(self, update_id: str) -> Sequence[Snapshot]:
        """Return the snapshots in the order in which they were kept."""
        ...

    async def keep_originals(self, snapshots: Sequence[Snapshot]) -> None:
        """Keep the original state of keys for the time when they leave the config. The first one wins."""
        ...

    async def original(self, key: str) -> Snapshot | None: ...

    async def forget_originals(self, keys: Sequence[str]) -> None: ...

    async def made_dirs(self) -> Sequence[str]: ...

    async def add_made_dirs(self, paths: Sequence[str]) -> None: ...

    async def promote(self, record: Record, current: str, entry: HistoryEntry) -> None:
        """Save record, current config and history, and drop the snapshots, in one transaction."""
        ...

    async def close_update(self, record: Record, entry: HistoryEntry) -> None:
        """Save record and history of an update that failed, in one transaction. The current config remains."""
        ...

    async def end_trail(self, record: Record, update_id: str, trail: Mapping[str, Any]) -> None:
        """Save the record, and the complete trail in the newest entry of the history if it is of that update."""
        ...

    async def history(self, limit: int, skip: int = 0) -> Sequence[HistoryEntry]:
        """Return the newest entries without the first ``skip``, newest first. Delays no write."""
        ...

    def history_version(self) -> object:
        """Return another object after each change of the history."""
        ...
