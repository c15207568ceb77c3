# SPDX-License-Identifier: Apache-2.0
"""Soft reboots of a node of a cluster: it is drained once."""

from __future__ import annotations

import asyncio

import pytest

from tests.features.soft_reboot.soft import guard_of
from tests.update.test_cluster_update import RESTART, at_old, until
from tests.world import FakeUnit, os_host
from tests.world.cluster_host import ClusterHost

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("cures", [True, False], ids=["a soft one cures", "a full one cures"])
async def test_a_soft_fallback_drains_first_and_a_full_one_does_not_drain_again(cures: bool) -> None:
    host = await at_old()
    host.guards = [guard_of(host.world, "fallback")]
    host.world.units["app.service"] = FakeUnit(fail_restarts=9) if cures else FakeUnit(bad_until_boot=2)
    host.want(RESTART)
    await host.settle()
    assert host.actions() == ["restart app.service", "soft-reboot", "reboot"][: 2 if cures else 3]
    reboots = ["reboot"] if cures else ["reboot", "reboot"]
    assert host.around.log == ["slot", "lease", "drain", *reboots, "uncordon", "release lease", "release slot"]
    entry = host.world.history[-1]
    assert (entry.outcome, entry.reboots, entry.soft_reboots) == ("done-after-fallback", len(reboots), 1)
    assert host.around.killed == []


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "ready after a full one"])
async def test_a_soft_reboot_into_another_os_drains_once(ready: bool) -> None:
    """The boot ID of the Node stays, so what counts is a report of the kubelet from after the reboot."""
    host = ClusterHost(os_host.os_host().world)
    host.guards = [guard_of(host.world, "auto")]
    host.want(os_host.OLD)
    await host.settle()
    host.around.log.clear()
    host.world.done.clear()
    host.around.unready = "" if ready else "the runtime is not ready"
    host.want(os_host.NEW)
    updating = asyncio.create_task(host.settle())
    if not ready:
        await until(lambda: host.world.boot == 2)
        host.around.unready = ""
    await updating
    reboots = ["soft-reboot"] if ready else ["soft-reboot", "reboot"]
    assert host.actions() == reboots
    assert host.around.log.count("drain") == 1
    assert host.around.log[-3:] == ["uncordon", "release lease", "release slot"]
    entry = host.world.history[-1]
    assert (entry.outcome, entry.reboots, entry.soft_reboots) == ("done", len(reboots), 1)
    assert host.around.killed == []
