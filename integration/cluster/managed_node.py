# SPDX-License-Identifier: Apache-2.0
"""A simulated node (`sim_node`) with the tasks beside the loop: the maintenance, and the reports to the cluster."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import Any, Final

from integration.cluster.cluster import Cluster
from integration.cluster.sim_node import SimNode
from nodeagent.agent.loop import Loop
from nodeagent.agent.report.report import Report
from nodeagent.features.cluster.events import DrainAdvanced
from nodeagent.features.cluster.node_events import EVENTS
from nodeagent.features.cluster.reports import ClusterReporter
from nodeagent.features.maintenance.manager import MaintenanceManager
from nodeagent.report.status import Status
from nodeagent.report.status_json import status_to_dict
from nodeagent.update.next.preflight import Preflight
from nodeagent.update.ports.events import Event

STEP: Final = 0.05


@dataclass
class StoredNotes:
    """Texts, so that nothing but data survives the end of a process."""

    texts: dict[str, str] = field(default_factory=dict)

    async def note(self, key: str) -> str:
        return self.texts.get(key, "")

    async def keep_note(self, key: str, text: str) -> None:
        self.texts[key] = text


class ManagedNode(SimNode):
    """``notes`` are those of the store."""

    report = Report(Status())
    keeper: MaintenanceManager
    life: asyncio.Task[None] | None = None

    def __init__(self, cluster: Cluster, node: str, **more: Any) -> None:
        super().__init__(cluster, node, **more)
        self.notes = StoredNotes()

    def build(self) -> Loop:
        bare, side = super().build(), self.side
        assert side is not None
        record = self.record
        status = Status(record.phase, since=record.since, desired=record.to_name, boot_id=bare.ports.power.boot_id())
        report = self.report = Report(status)
        ports = replace(bare.ports, coordination=self.coordination(report.lease), reporter=report)
        loop = self.loop = Loop(
            ports,
            self.limits,
            Preflight(ports, self.limits, (), self._policy, self.on_drift, self._view),
            desired=self._desired,
            load=self._load,
            adopted=self._adopted,
            random=lambda: 0.5,
            renew=self._renew,
        )
        self.keeper = MaintenanceManager(
            ports, self.notes, report, limits=lambda: self.limits, on_release=loop.look_again
        )
        cluster_reporter = ClusterReporter(side.conditions.publish, side.events.write, self.clock, random.random)

        def remember(event: Event, _: Status) -> None:
            self.world.events.append(event)

        report.add(remember)
        report.add(cluster_reporter.sink)
        cluster_reporter.begin(report.status)
        self._teller = cluster_reporter
        return loop

    def begin(self) -> None:
        """The daemon starts, and lives until the host goes down or it is stopped."""
        self.life = asyncio.create_task(self._run())

    async def _run(self) -> None:
        loop = self.build()
        rebooting = self.world.rebooting = asyncio.Event()
        await self.keeper.load()
        tasks = [asyncio.create_task(each) for each in (loop.run(), self.keeper.run(), self._teller.run())]
        down = asyncio.create_task(rebooting.wait())
        try:
            done, _ = await asyncio.wait({*tasks, down}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {down}:
                task.result()
        finally:
            keeping = [self._keeping] if self._keeping is not None else []
            for each in (*tasks, down, *keeping):
                each.cancel()
            await asyncio.gather(*tasks, down, *keeping, return_exceptions=True)
            if self.side is not None:
                await self.side.client.close()

    async def goes_down(self) -> None:
        """The host rebooted or powered off on its own."""
        assert self.life is not None
        await asyncio.wait_for(asyncio.shield(self.life), 90)

    async def stop(self) -> None:
        """SIGTERM."""
        if self.life is not None:
            self.life.cancel()
            await asyncio.gather(self.life, return_exceptions=True)

    # What people see.

    def status(self) -> dict[str, Any]:
        return status_to_dict(self.report.status, daemon="running")

    def drained(self, remaining: Any) -> None:
        """The ``on_remaining`` of its drain, as the daemon makes it."""
        self.report.emit(DrainAdvanced(remaining))

    def conditions(self) -> dict[str, str]:
        """Those that hold, with their messages."""
        there = self.object()["status"].get("conditions") or ()
        return {each["type"]: each["message"] for each in there if each["status"] == "True"}

    def notices(self) -> list[tuple[str, str]]:
        """Reason and note of the Events of the Node, the oldest first."""
        found = [event for event in self._cluster.admin.get(EVENTS)["items"] if event["regarding"]["name"] == self.node]
        return [(event["reason"], event["note"]) for event in sorted(found, key=lambda event: str(event["eventTime"]))]

    async def until(self, so: Any, what: str, timeout: float = 60.0) -> None:
        """``so`` may ask the API server, which is asked in the loop: it is beside us."""
        try:
            async with asyncio.timeout(timeout):
                while not so():
                    await asyncio.sleep(STEP)
        except TimeoutError:
            if self.life is not None and self.life.done():
                # What ended the daemon is the cause.
                self.life.result()
            state = self.status()
            raise AssertionError(f"not so after {timeout:g} s: {what}; {state}; {self.conditions()}") from None
