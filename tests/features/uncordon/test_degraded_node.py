# SPDX-License-Identifier: Apache-2.0
"""The cordon of an update that ended half-way, on a node in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from nodeagent.agent.loop import Loop
from nodeagent.features.uncordon.degraded_node import VIEWS, DegradedNode, DegradedUncordoned
from nodeagent.report.node_events import NodeMemory
from nodeagent.report.status import Status
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import HostDegraded, UpdateContext
from nodeagent.update.run import Ports
from nodeagent.update.states import Phase
from tests.world import FakeUnit, Killed
from tests.world.cluster_host import DRAIN, OLD, ClusterHost, all_given_back
from tests.world.run import config

pytestmark = pytest.mark.looptime

REPAIR = config("repair", {"/etc/app/x": "1", "/etc/web/x": "1", "/etc/moved": "3"})


@dataclass
class CordonedHost(ClusterHost):
    """``on`` is the setting."""

    on: bool = True

    def build_with(self, ports: Ports) -> Loop:
        loop = super().build_with(ports)
        loop._at_rest = DegradedNode(ports, loop.wake, on=self.on).rest
        return loop

    async def rest_for(self, seconds: float) -> None:
        """One life of the daemon at rest."""
        loop = self.build()
        self.world.rebooting = asyncio.Event()
        end = asyncio.get_running_loop().time() + seconds
        await loop.resume()
        while (now := asyncio.get_running_loop().time()) < end:
            delay = await loop.turn()
            await asyncio.sleep(max(1.0, min(end - now, 3600 if delay is None else delay)))


async def half_way(*, on: bool = True) -> CordonedHost:
    """The node is drained for an update that fails, and that the settings do not revert."""
    host = CordonedHost(on=on)
    host.world.units.update({name: FakeUnit() for name in ("app.service", "web.service")})
    host.want(OLD)
    await host.settle()
    host.limits = replace(host.limits, revert=False, may_reboot=False)
    host.world.units["app.service"] = FakeUnit(fail_restarts=1)
    host.want(DRAIN)
    await host.settle()
    assert (host.phase, bool(host.around.cordon)) == (Phase.DEGRADED, True)
    host.limits = replace(host.limits, revert=True, may_reboot=True)
    host.world.units["app.service"].active = "active"
    host.world.events.clear()
    host.around.log.clear()
    return host


def uncordoned(host: CordonedHost) -> list[DegradedUncordoned]:
    return [event for event in host.world.events if isinstance(event, DegradedUncordoned)]


async def test_a_node_that_works_is_uncordoned_and_keeps_lease_and_slot() -> None:
    host = await half_way()
    operation = host.around.cordon
    assert host.record.message.endswith("; uncordon it")
    cause = host.record.message.removesuffix("; uncordon it")
    await host.rest_for(300)
    assert host.around.cordon is None
    assert host.world.holder is not None
    assert host.world.holder.operation == host.around.slot == operation
    (event,) = uncordoned(host)
    assert event.message == f"the node is ready, and nodeagent has removed its cordon: {cause}"
    assert (host.phase, host.record.cordon, host.record.message) == (Phase.DEGRADED, "", event.message)
    assert host.around.log == ["uncordon"], "once"


async def test_by_default_it_stays_cordoned() -> None:
    host = await half_way(on=False)
    await host.rest_for(3600)
    assert (bool(host.around.cordon), host.around.log, uncordoned(host)) == (True, [], [])


def not_ready(host: CordonedHost) -> Callable[[], None]:
    host.around.unready = "the kubelet is not ready"
    return lambda: setattr(host.around, "unready", "")


def failed(host: CordonedHost) -> Callable[[], None]:
    host.world.units["app.service"].active = "failed"
    return lambda: setattr(host.world.units["app.service"], "active", "active")


def away(host: CordonedHost) -> Callable[[], None]:
    host.around.go_away()
    return host.around.come_back


@pytest.mark.parametrize("breaks", [not_ready, failed, away])
async def test_a_node_that_does_not_work_stays_cordoned(breaks: Callable[[CordonedHost], Callable[[], None]]) -> None:
    host = await half_way()
    mend, asked = breaks(host), len(host.around.asked)
    await host.rest_for(3600)
    assert host.around.cordon
    assert len([what for _, what in host.around.asked[asked:] if what == "lease"]) <= 61, "once a minute"
    mend()
    await host.rest_for(30)
    assert host.around.cordon, "not at the first check"
    await host.rest_for(300)
    assert host.around.cordon is None


async def test_the_cordon_of_another_one_stays() -> None:
    host = await half_way()
    host.around.cordon = "an admin"
    await host.rest_for(3600)
    assert host.around.cordon == "an admin"


async def test_a_node_whose_lease_was_taken_stays_cordoned() -> None:
    host = await half_way()
    cordon = host.around.cordon
    host.world.holder = Holder("node-maintenance", "another", "disks", "now")
    await host.rest_for(3600)
    assert (host.around.cordon, uncordoned(host)) == (cordon, [])


async def test_the_next_update_drains_it_again_and_gives_everything_back() -> None:
    host = await half_way()
    await host.rest_for(300)
    host.want(REPAIR)
    await host.settle()
    assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "repair")
    assert "drain" in host.around.log
    all_given_back(host)


async def test_a_reverted_update_leaves_no_cordon_without_the_feature() -> None:
    host = CordonedHost(on=False)
    host.world.units.update({name: FakeUnit() for name in ("app.service", "web.service")})
    host.want(OLD)
    await host.settle()
    host.limits = replace(host.limits, may_reboot=False)
    host.world.units["app.service"] = FakeUnit(fail_restarts=1)
    host.want(DRAIN)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
    all_given_back(host)


async def test_killed_at_every_call() -> None:
    whole = await half_way()
    whole.world.calls = 0
    await whole.rest_for(300)
    total = whole.world.calls
    assert total > 3
    for fuse in range(1, total + 1):
        host = await half_way()
        host.world.calls, host.world.fuse = 0, fuse
        with pytest.raises(Killed):
            await host.rest_for(300)
        host.world.fuse = -1
        await host.rest_for(300)
        assert (host.around.cordon, host.record.cordon, host.phase) == (None, "", Phase.DEGRADED), fuse
        assert host.world.holder is not None, fuse


async def test_a_degradation_wakes_the_loop() -> None:
    host = CordonedHost()
    woken: list[bool] = []
    node = DegradedNode(host.ports(), lambda: woken.append(True), on=True)
    degraded = HostDegraded(UpdateContext(Phase.DEGRADED), "x", "UnitUnhealthy")
    node.sink(degraded, Status())
    node.sink(uncordoned_event(), Status())
    node.on = False
    node.sink(degraded, Status())
    assert woken == [True]


def uncordoned_event() -> DegradedUncordoned:
    return DegradedUncordoned("3f2b", "the node is ready, and nodeagent has removed its cordon")


def test_the_status_and_the_cluster_have_it() -> None:
    (view,) = VIEWS
    event = uncordoned_event()
    assert view.fold(Status(phase=Phase.DEGRADED, message="x"), event).message == event.message
    (written,) = view.node_events(event, Status(), NodeMemory())
    assert (written.reason, written.note, written.warning) == ("DegradedUncordoned", event.message, True)
