# SPDX-License-Identifier: Apache-2.0
"""The unit of etcd in an update: when its start, restart or stop needs the quorum of the other members."""

from __future__ import annotations

import pytest

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.units import UnitEntry
from nodeagent.update.states import Phase
from tests.update.test_static_pods import PodHost, Quorum
from tests.world import FakeUnit, World
from tests.world.run import config

pytestmark = pytest.mark.looptime

UNIT = "etcd.service"
CONFIG = "/etc/etcd/etcd.conf.yaml"
# More refusals than any update here would see.
NEVER = 20


def etcd(name: str) -> MachineConfig:
    unit = UnitEntry(UNIT, contents=f"[Unit]\nDescription={name}\n[Service]\nExecStart=/usr/bin/etcd\n", enabled=True)
    return config(name, units=[unit])


async def host_with(unit: FakeUnit | None, *, member: bool = False, refused: int = 0) -> PodHost:
    host = PodHost(World(units={UNIT: unit} if unit is not None else {}))
    host.want(config("none"))
    await host.settle()
    host.kubelet.member, host.quorum = member, Quorum(refused=refused)
    return host


async def test_the_first_etcd_of_a_host_waits_for_no_quorum() -> None:
    host = await host_with(None, refused=NEVER)
    host.want(etcd("first"))
    await host.settle()
    assert (host.phase, host.world.units[UNIT].active) == (Phase.IDLE, "active")
    assert (host.quorum.moves, host.quorum.checks) == (0, 0)


@pytest.mark.parametrize("active", ["inactive", "failed", "activating"])
async def test_a_unit_that_does_not_run_waits_for_no_quorum(active: str) -> None:
    """The change may be what starts the only member of a cluster."""
    host = await host_with(FakeUnit(active=active), refused=NEVER)
    host.want(etcd("repaired"))
    await host.settle()
    assert host.actions() == ["daemon-reload", "snapshot", "restart etcd.service"]
    assert (host.phase, host.quorum.moves, host.quorum.checks) == (Phase.IDLE, 0, 0)


@pytest.mark.parametrize("unit", [None, FakeUnit(active="inactive"), FakeUnit(active="activating")])
async def test_a_unit_beside_a_member_that_answers_waits_for_its_quorum(unit: FakeUnit | None) -> None:
    """The member may be a static pod, whose ports the unit takes."""
    host = await host_with(unit, member=True, refused=2)
    host.want(etcd("second"))
    await host.settle()
    assert (host.phase, host.quorum.moves) == (Phase.IDLE, 3)
    assert host.quorum.checks > 0


async def test_a_unit_that_runs_waits_for_the_quorum_if_its_member_does_not_answer() -> None:
    host = await host_with(FakeUnit(), refused=2)
    host.want(etcd("changed"))
    await host.settle()
    assert (host.phase, host.quorum.moves) == (Phase.IDLE, 3)


async def test_a_unit_that_leaves_with_a_config_waits_for_the_quorum() -> None:
    host = await host_with(None)
    host.want(etcd("first"))
    await host.settle()
    host.quorum = Quorum(refused=2)
    host.want(config("none"))
    await host.settle()
    assert (host.phase, host.quorum.moves) == (Phase.IDLE, 3)
    assert host.actions()[-1] == "stop etcd.service"


@pytest.mark.parametrize("unit", [None, FakeUnit(load="masked", active="inactive")])
async def test_options_without_a_unit_wait_for_no_quorum(unit: FakeUnit | None) -> None:
    """Another etcd of the host, such as a static pod, does not read them."""
    host = await host_with(unit, member=True, refused=NEVER)
    host.want(config("options", {CONFIG: "name: a\n"}))
    await host.settle()
    assert (host.phase, host.actions(), host.quorum.moves) == (Phase.IDLE, [], 0)
