"""Updates in the fake world, and the points at which a store of them is kept.

A point is a phase, a direction and what is known about it, as the stored record has them. The names of the stored
fields are part of the format of the store, so they are the same in every version that reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from nodeagent.agent.loop import Loop
from nodeagent.agent.update.run import Ports
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.deployment import booted
from nodeagent.core.update.ports.coordination import Holder
from nodeagent.core.update.ports.store import HistoryEntry
from nodeagent.core.update.record import Record
from nodeagent.errors import Refused, Terminal
from nodeagent.reasons import Reason
from tests.world import FakeStore, FakeUnit, Fault, Killed, World, cluster_host, os_host
from tests.world.run import Host, config

__all__ = ["SCENARIOS", "Ending", "Scenario", "ending", "point", "until"]

FILES = {"/etc/app/x": "1", "/etc/web/x": "1", "/etc/quiet/gone": "1"}
APP = UnitEntry("app.service", "[Service]\nExecStart=/bin/true\n", enabled=True)
FIRST = config("first", FILES)
SECOND = config("second", {"/etc/app/x": "2", "/etc/web/x": "2", "/etc/ca/y": "2"}, units=[APP])
REBOOTING = config("rebooting", {"/etc/app/x": "2", "/etc/unlisted": "2"})
OTHER = config("other", {"/etc/app/x": "3"})
OPERATOR = Holder("alice", "maintenance.1", "disk swap", "2026-01-01T00:00:00.000Z")
UNITS = {"app.service": FakeUnit(), "web.service": FakeUnit(), "trust.service": FakeUnit(type="oneshot")}


@dataclass(frozen=True)
class Scenario:
    """``prepare`` makes a host at rest on its first config, with whatever goes wrong later, and says what it wants."""

    name: str
    prepare: Callable[[], Awaitable[Host]]


@dataclass(frozen=True)
class Ending:
    """The end of a resumed update."""

    phase: str
    reason: str
    current: str
    outcomes: tuple[str, ...]
    actions: tuple[str, ...]
    files: tuple[str, ...]
    booted: str
    held: bool
    unfinished: bool
    rejected: bool


def point(record: dict[str, Any]) -> str:
    """The name of the point at which a stored record is."""
    phase = str(record["phase"])
    at_rest = phase in ("Idle", "Degraded")
    if record.get("unreleased"):
        direction = "unreleased"
    elif at_rest:
        direction = str(record["reason"]) or ("interrupted" if record["update_id"] else "done")
    elif record["given_up"]:
        direction = f"abort-{record['given_up']}"
    elif record["reverting"]:
        direction = "revert"
    elif record["fallback"]:
        direction = "fallback"
    else:
        direction = "apply" if record["acted"] or phase in ("Writing", "Acting") else "prepare"
    flags = [name for name in ("merged", "restored", "rolled_back") if record[name] and not at_rest]
    reboots = [f"boot{record['reboots']}"] if record["reboots"] and not at_rest else []
    return "-".join([phase, direction, *flags, *reboots])


class _StoppingStore(FakeStore):
    """Ends the process right after the record came to a point."""

    def __init__(self, world: World, stop: Callable[[dict[str, Any]], bool]) -> None:
        super().__init__(world)
        self._stop = stop

    async def save(self, record: Record) -> None:
        await super().save(record)
        self._check()

    async def begin(self, record: Record) -> None:
        await super().begin(record)
        self._check()

    def _close(self, record: Record, entry: HistoryEntry) -> None:
        super()._close(record, entry)
        self._check()

    def _check(self) -> None:
        if self._stop(self.world.record):
            raise Killed


async def until(host: Host, stop: Callable[[dict[str, Any]], bool]) -> bool:
    """Run the host until a saved record meets ``stop``; True if one did."""
    ports, stopped = host.ports, [False]

    def check(record: dict[str, Any]) -> bool:
        stopped[0] = stopped[0] or stop(record)
        return stopped[0]

    def stopping() -> Ports:
        return replace(ports(), store=_StoppingStore(host.world, check))

    host.ports = stopping  # type: ignore[method-assign]
    try:
        for _ in range(12):
            try:
                if await host._live():
                    return False
            except Killed:
                if stopped[0]:
                    return True
    finally:
        host.ports = ports  # type: ignore[method-assign]
    raise AssertionError(f"no rest: {host.world.record}")


def ending(host: Host) -> Ending:
    world, record = host.world, host.world.record
    found = booted(world.deployments) if world.deployments else None
    current = host.configs.get(world.current)
    files = {path: node for path, node in world.disk.items() if path.startswith("/etc/")}
    return Ending(
        phase=str(record["phase"]),
        reason=str(record["reason"]),
        current=current.name if current else "",
        outcomes=tuple(f"{entry.to_name}: {entry.outcome}" for entry in world.history[1:]),
        actions=tuple(host.actions()),
        files=tuple(f"{path}={getattr(files[path], 'content', b'').decode()}" for path in sorted(files)),
        booted=found.id if found else "",
        held=world.holder is not None,
        unfinished=bool(record["unfinished"]),
        rejected=bool(record["rejected"]),
    )


async def _on(host: Host, first: MachineConfig) -> Host:
    host.want(first)
    await host.settle()
    host.world.done.clear()
    host.world.calls = 0
    return host


async def _plain() -> Host:
    host = await _on(Host(World(units=deepcopy(UNITS))), FIRST)
    host.want(SECOND)
    return host


async def _planned_reboot() -> Host:
    host = await _plain()
    host.want(REBOOTING)
    return host


async def _fallback() -> Host:
    host = await _plain()
    host.world.units["app.service"].bad_until_boot = 2
    return host


def _bad(host: Host) -> None:
    """app.service runs with no version of its file but the first one."""

    class Picky(FakeUnit):
        @property
        def bad_until_boot(self) -> int:
            node = host.world.disk.get("/etc/app/x")
            return 99 if getattr(node, "content", b"1") != b"1" else 0

        @bad_until_boot.setter
        def bad_until_boot(self, value: int) -> None: ...

    host.world.units["app.service"] = Picky()


async def _revert() -> Host:
    host = await _plain()
    _bad(host)
    return host


async def _revert_a_reboot() -> Host:
    host = await _planned_reboot()
    _bad(host)
    return host


async def _degraded() -> Host:
    host = await _revert()
    host.limits = replace(host.limits, revert=False, may_reboot=False)
    return host


async def _os() -> Host:
    host = await os_host.at_old()
    host.want(os_host.NEW)
    return host


async def _os_staged_again() -> Host:
    host = await _os()
    host.world.faults.append(Fault("finalize", times=1))
    return host


async def _os_power_cut() -> Host:
    host = await _os()
    host.world.faults.append(Fault("power cut", times=1))
    return host


async def _os_merge() -> Host:
    host = await os_host.at_old(os_host.on("a", "old", {"/etc/chrony": "a"}))
    host.want(os_host.on("b", "new", {"/etc/chrony": "a"}))
    return host


async def _os_revert() -> Host:
    host = await os_host.at_old(os_host.on("a", "old", os_host.FILES, units=[APP]))
    os_host.bad_on(host.world, os_host.B_DIGEST)
    host.want(os_host.on("b", "bad", os_host.NEW_FILES, units=[APP]))
    return host


async def _os_not_staged() -> Host:
    host = await _os()
    host.world.faults.append(Fault("stage", Terminal("no such image", reason=Reason.IMAGE_NOT_FOUND)))
    return host


async def _os_refused() -> Host:
    host = await _os()
    host.world.faults.append(
        Fault("guard", Refused("another driver updates this host", reason=Reason.OTHER_DRIVER), times=None)
    )
    return host


async def _drain() -> Host:
    host = await cluster_host.at_old()
    host.want(cluster_host.REBOOT)
    return host


async def _late_drain() -> Host:
    host = await cluster_host.at_old()
    host.around.stuck = True
    host.want(cluster_host.DRAIN)
    return host


async def _late_drain_aborted() -> Host:
    host = await cluster_host.at_old()
    host.around.stuck = True
    host.limits = replace(host.limits, drain_or_reboot=False)
    host.want(cluster_host.DRAIN)
    return host


async def _drain_of_a_fallback() -> Host:
    host = await cluster_host.at_old()
    host.world.units["app.service"] = FakeUnit(bad_until_boot=2)
    host.want(cluster_host.RESTART)
    return host


def _later(host: Host, seconds: float, happens: Callable[[], None]) -> Host:
    """Call ``happens`` in each life of the agent, after so many seconds."""
    build = host.build

    def built() -> Loop:
        asyncio.get_running_loop().call_later(seconds, happens)
        return build()

    host.build = built  # type: ignore[method-assign]
    return host


async def _superseded() -> Host:
    host = await cluster_host.at_old()
    host.around.stuck = True
    host.want(cluster_host.DRAIN)
    return _later(host, 10.0, lambda: host.want(cluster_host.RESTART))


async def _interrupted() -> Host:
    """The agent was killed, and the update begins again under its id."""
    host = await _drain()
    assert await until(host, lambda record: record["phase"] == "Leasing")
    return host


async def _withdrawn() -> Host:
    """The agent was killed, and the update was not desired any more."""
    host = await _interrupted()
    host.want(cluster_host.OLD)
    return host


async def _unreleased() -> Host:
    """The lease of an update that is done cannot be given back before the agent is started again."""
    host = await _plain()
    full = Terminal("the store is full", reason=Reason.NO_SPACE)
    host.world.faults.append(Fault("release lease", full, times=None, when=lambda: host.world.holder is not None))
    return _later(host, 600.0, lambda: host.world.repair("release lease"))


async def _maintenance() -> Host:
    """An operator has the host for the first ten minutes of each life of the agent."""
    host = await _plain()
    host.world.holder = OPERATOR

    def end() -> None:
        if host.world.holder == OPERATOR:
            host.world.holder = None

    return _later(host, 600.0, end)


SCENARIOS = (
    Scenario("plain", _plain),
    Scenario("planned-reboot", _planned_reboot),
    Scenario("fallback", _fallback),
    Scenario("revert", _revert),
    Scenario("revert-a-reboot", _revert_a_reboot),
    Scenario("degraded", _degraded),
    Scenario("os", _os),
    Scenario("os-staged-again", _os_staged_again),
    Scenario("os-power-cut", _os_power_cut),
    Scenario("os-merge", _os_merge),
    Scenario("os-revert", _os_revert),
    Scenario("os-not-staged", _os_not_staged),
    Scenario("os-refused", _os_refused),
    Scenario("drain", _drain),
    Scenario("late-drain", _late_drain),
    Scenario("late-drain-aborted", _late_drain_aborted),
    Scenario("drain-of-a-fallback", _drain_of_a_fallback),
    Scenario("superseded", _superseded),
    Scenario("interrupted", _interrupted),
    Scenario("withdrawn", _withdrawn),
    Scenario("unreleased", _unreleased),
    Scenario("maintenance", _maintenance),
)
