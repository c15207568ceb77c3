# SPDX-License-Identifier: Apache-2.0
"""An update holds lease and slot until the Node is ready again, and a node that was not ready before is not waited
for."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.update.ports.events import RevertStarted, Warned
from nodeagent.update.run import Ports, Progress, Run
from nodeagent.update.stages.guard import Guard
from nodeagent.update.states import Phase
from tests.world.cluster_host import REBOOT, RESTART, ClusterHost, all_given_back, at_old
from tests.world.run import config, kinds, until

pytestmark = pytest.mark.looptime

WHY = "cni plugin not initialized"
QUIET = config("quiet", {"/etc/app/x": "1", "/etc/web/x": "1", "/etc/quiet": "2"})


async def verifying(new: MachineConfig) -> tuple[ClusterHost, asyncio.Task[None]]:
    """An update to ``new`` that has done its actions, on a node that they made unready."""
    host = await at_old()
    host.around.unready = WHY
    host.want(new)
    settled = asyncio.create_task(host.settle())
    await until(host, Phase.VERIFYING)
    return host, settled


@pytest.mark.parametrize("new", [RESTART, REBOOT])
async def test_lease_and_slot_are_kept_until_the_node_is_ready(new: MachineConfig) -> None:
    host, settled = await verifying(new)
    await asyncio.sleep(30)
    assert host.phase is Phase.VERIFYING
    assert host.world.holder is not None
    assert host.around.slot == host.world.holder.operation
    host.around.unready = ""
    await settled
    assert host.phase is Phase.IDLE
    all_given_back(host)


class SlowGuard(Guard):
    async def verify(self, run: Run, progress: Progress) -> None:
        await asyncio.sleep(1000)


async def test_each_wait_of_the_verification_has_its_own_time() -> None:
    """The units, the node and a guard take 1000 s each, and 1800 s without progress are too many."""

    class GuardedHost(ClusterHost):
        def ports(self) -> Ports:
            return replace(super().ports(), guards=(SlowGuard(),))

    old = await at_old()
    host = GuardedHost(old.world, old.limits, old.on_drift, old.configs, old.texts, old.wanted, around=old.around)
    host.limits = replace(host.limits, settle=1000, verify_timeout=1500)
    host.around.unready = WHY
    host.want(RESTART)
    began = asyncio.get_running_loop().time()
    settled = asyncio.create_task(host.settle())
    await until(host, Phase.VERIFYING)
    await asyncio.sleep(2000)
    host.around.unready = ""
    await settled
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")
    assert asyncio.get_running_loop().time() - began >= 3000


async def test_a_node_that_stays_unready_reverts_the_update_with_all_it_holds() -> None:
    host, settled = await verifying(REBOOT)
    while "NodeNotReady" not in kinds(host, RevertStarted):
        await asyncio.sleep(1)
    assert host.around.slot
    host.around.unready = ""
    await settled
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
    all_given_back(host)


async def test_a_unit_that_ends_while_the_node_is_not_ready_ends_the_wait() -> None:
    host = await at_old()
    host.limits = replace(host.limits, may_reboot=False)
    unit = host.world.units["app.service"]
    unit.dies_after = host.limits.settle + 10
    host.around.unready = WHY
    host.want(RESTART)
    settled = asyncio.create_task(host.settle())
    began = asyncio.get_running_loop().time()
    while "UnitUnhealthy" not in kinds(host, RevertStarted):
        await asyncio.sleep(1)
        unit.dies_after = None
    assert asyncio.get_running_loop().time() - began < host.limits.verify_timeout / 2
    host.around.unready = ""
    await settled
    all_given_back(host)


async def test_a_node_that_is_not_ready_after_the_revert_keeps_lease_and_slot() -> None:
    host, settled = await verifying(REBOOT)
    await settled
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "NodeNotReady")
    assert host.world.holder is not None
    assert host.around.slot == host.world.holder.operation


async def test_a_node_that_was_not_ready_before_is_not_waited_for() -> None:
    host = await at_old()
    host.around.unready_before = host.around.unready = WHY
    host.want(RESTART)
    await host.settle()
    assert host.phase is Phase.IDLE
    all_given_back(host)


async def test_an_api_server_that_does_not_answer_is_waited_for_within_the_time_for_verification() -> None:
    host, settled = await verifying(RESTART)
    host.around.go_away()
    await asyncio.sleep(host.limits.verify_timeout / 2)
    assert host.phase is Phase.VERIFYING
    host.around.unready = ""
    host.around.come_back()
    await settled
    assert host.phase is Phase.IDLE
    assert host.world.current == host.wanted
    assert "KubeUnreachable" not in kinds(host, Warned)


@pytest.mark.finding(
    "attack: outages without end", "The time without an answer does not count against the node that is waited for."
)
async def test_an_outage_of_the_api_server_leaves_the_node_its_whole_time() -> None:
    host, settled = await verifying(RESTART)
    host.around.go_away()
    await asyncio.sleep(host.limits.verify_timeout - 5)
    host.around.come_back()
    await asyncio.sleep(host.limits.verify_timeout - 20)
    assert host.phase is Phase.VERIFYING
    host.around.unready = ""
    await settled
    assert (host.phase, host.world.current) == (Phase.IDLE, host.wanted)


async def test_an_api_server_that_is_down_for_longer_is_no_fault_of_the_config() -> None:
    host, settled = await verifying(RESTART)
    host.around.go_away()
    await until(host, Phase.RELEASING)
    assert host.world.current == host.wanted
    assert "KubeUnreachable" in kinds(host, Warned)
    host.around.come_back()
    await settled
    all_given_back(host)


async def test_an_update_without_an_action_does_not_wait() -> None:
    host = await at_old()
    host.around.unready = WHY
    host.want(QUIET)
    await host.settle()
    assert host.phase is Phase.IDLE
    assert "readiness" not in [what for _, what in host.around.asked]
    all_given_back(host)
