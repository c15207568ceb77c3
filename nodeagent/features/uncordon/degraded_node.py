# SPDX-License-Identifier: Apache-2.0
"""Uncordon the node of a half-way host that works.

An update that is given up before its first write, or reverted, uncordons the node itself. One that ends half-way keeps
the cordon: the revert failed or is off, the lease was lost, or no reboot took place. Here that cordon is removed, and
no other one, while the lease is still held and no update is under way. The lease and the slot stay, so that neither
another update nor the next node of the pool begins.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from nodeagent.core.backoff import jittered
from nodeagent.core.syslog import NOTICE
from nodeagent.errors import AgentError
from nodeagent.report.event_view import EventView
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.status import Status
from nodeagent.update.ports.coordination import NodeDrainer, NodeReadiness
from nodeagent.update.ports.events import Event, HostDegraded
from nodeagent.update.record import Record, half_way
from nodeagent.update.run import Ports
from nodeagent.update.stages.coordination import LOST
from nodeagent.update.states import Phase, Rest

# Seconds between two checks, both of which must find the node ready. The kubelet reports every 40 seconds or sooner.
PERIOD: Final = 60.0

# Seconds for an uncordon. A machine-config-controller may take longer; the next check finds what it has done.
UNCORDON: Final = 30.0


@dataclass(frozen=True, slots=True)
class DegradedUncordoned(Event):
    """The cordon of an update that ended half-way was removed. ``message`` is that of the status from now on."""

    update_id: str
    message: str


def _uncordoned(status: Status, event: DegradedUncordoned) -> Status:
    return replace(status, message=event.message)


def _node_events(event: DegradedUncordoned, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    yield NodeEvent("DegradedUncordoned", "Uncordon", event.message, warning=True)


VIEWS = (
    EventView(
        event=DegradedUncordoned,
        id="4fb6e53783384aeb99a8ca5c2bfe4486",
        priority=NOTICE,
        sentence=lambda event, _: event.message,
        fields=lambda event, _: {"update_id": event.update_id},
        fold=_uncordoned,
        node_events=_node_events,
    ),
)


class DegradedNode:
    """``on`` is the setting. ``wake`` lets the loop take another turn."""

    def __init__(self, ports: Ports, wake: Callable[[], None], *, on: bool) -> None:
        self.on = on
        self._ports = ports
        self._wake = wake
        # Since when the node has been ready in each check, on the steady clock, and the update of these checks.
        self._ready: tuple[float, str] | None = None

    def sink(self, event: Event, _status: Status) -> None:
        if self.on and isinstance(event, HostDegraded):
            self._wake()

    async def rest(self) -> float | None:
        """Check the node between two updates, and uncordon it. Return the seconds until the next check, None without
        one."""
        node, readiness = self._ports.node, self._ports.readiness
        if not self.on or node is None or readiness is None:
            return None
        record = await self._ports.store.load()
        if not (isinstance(record.leg, Rest) and record.phase is Phase.DEGRADED and record.cordon and half_way(record)):
            self._ready = None
            return None
        try:
            if await self._works_for_a_while(record, readiness):
                await self._uncordon(record, node)
                return None
        except (AgentError, TimeoutError) as error:
            self._ready = None
            # The holder that has the lease now may rely on the cordon.
            if isinstance(error, AgentError) and error.reason in LOST:
                return None
        return jittered(PERIOD, random.random())  # noqa: S311 - spreads load, no secret

    async def _works_for_a_while(self, record: Record, readiness: NodeReadiness) -> bool:
        """Return whether the node has worked in two checks in a row that are ``PERIOD`` apart at least.

        Raises what the ports raise.
        """
        ports = self._ports
        await ports.coordination.lease.check(record.operation)
        if await ports.power.going_down() or await readiness.unready(record.since) or await self._failed(record):
            self._ready = None
            return False
        now = ports.clock.monotonic()
        if self._ready is None or self._ready[1] != record.update_id:
            self._ready = now, record.update_id
        return now - self._ready[0] >= PERIOD

    async def _failed(self, record: Record) -> bool:
        """Return whether a unit that the update names has failed, and had not before."""
        before = record.units_before.states
        names = {*before, *filter(None, (record.failed_unit.name if record.failed_unit is not None else "",))}
        for name in sorted(names):
            # What had failed before is not the doing of the update, and may never work.
            if before.get(name) != "failed" and (await self._ports.units.state(name)).active == "failed":
                return True
        return False

    async def _uncordon(self, record: Record, node: NodeDrainer) -> None:
        advice = await node.advice()
        async with asyncio.timeout(UNCORDON):
            for cordon in dict.fromkeys((record.cordon, record.operation)):
                await node.uncordon(cordon)
        # The advice to uncordon it is over.
        cause = record.message.removesuffix(f"; {advice}") if advice else record.message
        message = f"the node is ready, and nodeagent has removed its cordon: {cause}"
        # After a kill before this, the next check finds no cordon of this update, and does the same.
        await self._ports.store.save(replace(record, cordon="", message=message))
        self._ports.reporter.emit(DegradedUncordoned(record.update_id, message))
