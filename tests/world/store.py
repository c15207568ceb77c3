# SPDX-License-Identifier: Apache-2.0
"""The store of the host in memory: it survives kills and reboots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.errors import Refused
from nodeagent.host.store.record_codec import record_from_dict, record_to_dict, salvaged
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.store import ApplyRequest, HistoryEntry, Snapshot
from nodeagent.update.record import Record

if TYPE_CHECKING:
    from tests.world.world import World


@dataclass
class Stored:
    record: dict[str, object] = field(default_factory=lambda: record_to_dict(Record()))
    request: ApplyRequest | None = None
    configs: dict[str, ConfigSource] = field(default_factory=dict)
    current: str = ""
    previous: str = ""
    snapshots: dict[str, list[Snapshot]] = field(default_factory=dict)
    originals: dict[str, Snapshot] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    history: list[HistoryEntry] = field(default_factory=list)
    holder: Holder | None = None


class FakeStore:
    def __init__(self, world: World) -> None:
        self.world = world

    async def load(self) -> Record:
        return record_from_dict(self.world.record)

    async def save(self, record: Record) -> None:
        self.world.tick()
        self.world.meet(f"save {record.phase}")
        self.world.record = record_to_dict(record)
        self.world.tick()

    async def request(self) -> ApplyRequest | None:
        return self.world.request

    async def keep_request(self, request: ApplyRequest) -> None:
        self.world.meet("keep request")
        self.world.tick()
        self.world.request = request
        self.world.tick()

    async def drop_request(self, digest: str) -> None:
        self.world.tick()
        if self.world.request is not None and self.world.request.digest == digest:
            self.world.request = None
        self.world.tick()

    async def begin(self, record: Record) -> None:
        self.world.tick()
        self.world.meet(f"save {record.phase}")
        self.world.record = record_to_dict(record)
        if self.world.request is not None and self.world.request.digest == record.to_digest:
            self.world.request = None
        self.world.tick()

    async def set_record_aside(self, reason: str, message: str) -> Record:
        self.world.record = record_to_dict(
            replace(salvaged(self.world.record, "unknown"), reason=reason, message=message)
        )
        return record_from_dict(self.world.record)

    async def note(self, key: str) -> str:
        return self.world.notes.get(key, "")

    async def keep_note(self, key: str, text: str) -> None:
        self.world.tick()
        self.world.notes[key] = text
        self.world.tick()

    async def put_config(self, source: ConfigSource) -> None:
        self.world.configs[source.digest] = source

    async def get_config(self, digest: str) -> ConfigSource:
        return self.world.configs[digest]

    async def config_named(self, name: str) -> ConfigSource | None:
        return next((source for source in reversed(self.world.configs.values()) if source.name == name), None)

    async def fetched(self) -> ConfigSource | None:
        raise AssertionError("no other source")

    async def keep_fetched(self, source: ConfigSource | None) -> None:
        raise AssertionError("no other source")

    async def current(self) -> str:
        return self.world.current

    async def previous(self) -> str:
        return self.world.previous

    async def remember(self, update_id: str, snapshots: Sequence[Snapshot]) -> None:
        self.world.tick()
        self.world.snapshots.setdefault(update_id, list(snapshots))
        self.world.tick()

    async def remembered(self, update_id: str) -> Sequence[Snapshot]:
        return list(self.world.snapshots.get(update_id, []))

    async def keep_originals(self, snapshots: Sequence[Snapshot]) -> None:
        self.world.tick()
        for snapshot in snapshots:
            self.world.originals.setdefault(snapshot.key, snapshot)

    async def original(self, key: str) -> Snapshot | None:
        return self.world.originals.get(key)

    async def forget_originals(self, keys: Sequence[str]) -> None:
        self.world.tick()
        for key in keys:
            self.world.originals.pop(key, None)

    async def made_dirs(self) -> Sequence[str]:
        return list(self.world.made)

    async def add_made_dirs(self, paths: Sequence[str]) -> None:
        self.world.tick()
        self.world.made += [path for path in paths if path not in self.world.made]

    async def promote(self, record: Record, current: str, entry: HistoryEntry) -> None:
        self.world.tick()
        if current != self.world.current:
            self.world.previous = self.world.current
        self.world.current = current
        self._close(record, entry)
        self.world.tick()

    async def close_update(self, record: Record, entry: HistoryEntry) -> None:
        self.world.tick()
        self._close(record, entry)
        self.world.tick()

    async def end_trail(self, record: Record, update_id: str, trail: Mapping[str, Any]) -> None:
        await self.save(record)
        if self.world.history and self.world.history[-1].update_id == update_id:
            self.world.history[-1] = replace(self.world.history[-1], trail=trail)

    def _close(self, record: Record, entry: HistoryEntry) -> None:
        self.world.record = record_to_dict(record)
        self.world.history.append(entry)
        self.world.snapshots.pop(record.update_id, None)

    async def history(self, limit: int, skip: int = 0) -> Sequence[HistoryEntry]:
        return self.world.history[::-1][skip : skip + limit]

    def history_version(self) -> object:
        return tuple(self.world.history)


class FakeLease:
    backend = "local"

    def __init__(self, world: World) -> None:
        self.world = world

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        self.world.tick()
        held = self.world.holder
        if held is not None and (held.name, held.operation) != (holder, operation):
            raise Refused(f"{held.name} holds the lease: {held.reason}", reason=Reason.LEASE_HELD)
        self.world.holder = Holder(holder, operation, reason, "now")
        self.world.tick()

    async def check(self, operation: str, *, need: float = 0.0, offline: bool = False) -> None:
        if self.world.holder is None or self.world.holder.operation != operation:
            raise Refused("the lease is not ours any more", reason=Reason.LEASE_LOST)

    async def extend(self, operation: str, seconds: float | None) -> None:
        await self.check(operation)
        self.world.tick()
        assert self.world.holder is not None
        self.world.holder = replace(self.world.holder, expires="" if seconds is None else f"in {seconds:g} s")

    async def before_reboot(self, operation: str, cover: float) -> None:
        self.world.tick()
        await self.check(operation)
        self.world.tick()

    async def release(self, operation: str) -> None:
        self.world.tick()
        self.world.meet("release lease")
        if self.world.holder is not None and self.world.holder.operation == operation:
            self.world.holder = None
        self.world.tick()

    async def holder(self) -> Holder | None:
        return self.world.holder
