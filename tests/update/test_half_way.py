# SPDX-License-Identifier: Apache-2.0
"""A host that ended half-way stays known as one until a config is applied completely, whatever happens in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.agent.loop import Loop
from nodeagent.core.config.file_tree import expand
from nodeagent.errors import AgentError, Refused, Terminal, Unreachable
from nodeagent.reasons import Reason
from nodeagent.update.machine import Work
from nodeagent.update.next import idle
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.record import Record
from nodeagent.update.record import half_way as is_half_way
from nodeagent.update.run import Run
from nodeagent.update.states import Phase, Transition
from tests.update.test_transitions import FAILURES, plain
from tests.world import FakeUnit, cluster_host, os_host
from tests.world.cluster_host import ClusterHost
from tests.world.run import Host, change_work, config

pytestmark = pytest.mark.looptime

OLD = config("old", {"/etc/app/x": "1", "/etc/quiet/q": "1"})
HALF = config("half", {"/etc/app/x": "2", "/etc/quiet/half": "2"})
REPAIR = config("repair", {"/etc/app/x": "3", "/etc/quiet/repair": "3"})
LAST = config("last", {"/etc/app/x": "4"})


def failing(host: Host, change: Callable[[Phase, Work], Work]) -> None:
    """Replace the work of each phase by what ``change`` makes of it."""
    build = type(host).build

    def built() -> Loop:
        loop = build(host)
        change_work(loop, change)
        return loop

    host.build = built  # type: ignore[method-assign]


def raising(at: Phase, error: AgentError) -> Callable[[Phase, Work], Work]:
    def change(phase: Phase, work: Work) -> Work:
        async def fail(_run: Run) -> Transition:
            raise error

        return fail if phase is at else work

    return change


async def half_way() -> Host:
    host = await plain()
    host.want(OLD)
    await host.settle()
    host.limits = replace(host.limits, revert=False)
    host.world.units["app.service"] = FakeUnit(bad_until_boot=99)
    host.want(HALF)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "UnitUnhealthy")
    assert is_half_way(host.record)
    host.limits = replace(host.limits, revert=True)
    host.world.units["app.service"] = FakeUnit()
    return host


async def check(host: Host, wanted: Any) -> None:
    host.want(wanted)
    await host.settle()
    assert (host.phase, host.record.reason, host.configs[host.world.current].name) == (Phase.IDLE, "", wanted.name)
    managed = {path: node for path, node in host.world.disk.items() if path.startswith(("/etc/app/", "/etc/quiet/"))}
    assert managed == expand(wanted)
    assert (is_half_way(host.record), host.world.holder) == (False, None)


@pytest.mark.parametrize("wanted", [OLD, LAST], ids=["the current config", "another one"])
@pytest.mark.parametrize(
    ("phase", "error"),
    [
        (Phase.LEASING, Refused("another client uncordoned it", reason=Reason.DRAIN_CANCELED)),
        (Phase.LEASING, Terminal("the disk fails", reason=Reason.DISK_FAULT)),
        (Phase.WRITING, Terminal("no space left", reason=Reason.NO_SPACE)),
    ],
    ids=["canceled", "put off", "reverted"],
)
async def test_a_repair_that_fails_repairs_nothing(phase: Phase, error: AgentError, wanted: Any) -> None:
    host = await half_way()
    build = host.build
    failing(host, raising(phase, error))
    host.want(REPAIR)
    loop = host.build()
    host.world.rebooting = asyncio.Event()
    await loop.turn()
    assert host.phase is Phase.DEGRADED
    host.build = build  # type: ignore[method-assign]
    assert is_half_way(host.record)
    await check(host, wanted)


@pytest.mark.parametrize("wanted", [OLD, REPAIR, LAST], ids=["the current config", "the same", "another one"])
async def test_a_repair_that_is_killed_before_it_wrote_repairs_nothing(wanted: Any) -> None:
    host = await half_way()
    host.want(REPAIR)
    host.world.holder = Holder("alice", "maintenance", "disk swap", "now")
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(60)
    assert host.phase is Phase.LEASING
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    host.world.holder = None
    await check(host, wanted)


async def test_a_repair_that_is_superseded_repairs_nothing() -> None:
    host = await half_way()
    host.want(REPAIR)
    host.world.holder = Holder("alice", "maintenance", "disk swap", "now")
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(60)
    assert host.phase is Phase.LEASING
    host.want(LAST)
    await asyncio.sleep(60)
    host.world.holder = None
    await task
    await check(host, LAST)


async def killed_while_leasing(host: Host) -> None:
    host.world.holder = Holder("alice", "maintenance", "disk swap", "now")
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(60)
    assert host.phase is Phase.LEASING
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    host.loop = None
    host.world.holder = None


async def failing_once(host: Host, phase: Phase) -> None:
    build = host.build
    failing(host, raising(phase, Terminal("no space left", reason=Reason.NO_SPACE)))
    loop = host.build()
    host.world.rebooting = asyncio.Event()
    await loop.turn()
    assert host.phase is Phase.DEGRADED
    host.build = build  # type: ignore[method-assign]
    host.loop = None


@pytest.mark.parametrize("wanted", [OLD, LAST], ids=["the current config", "another one"])
async def test_a_repair_that_is_killed_twice_before_it_wrote_repairs_nothing(wanted: Any) -> None:
    """The config of the interrupted repair does not take the place of the one that was left half-way."""
    host = await half_way()
    host.want(REPAIR)
    await killed_while_leasing(host)
    await killed_while_leasing(host)
    await check(host, wanted)


@pytest.mark.finding(
    "updates: what was left half-way",
    "Each config that was left half-way stays known until an update has a good end, also over repairs that fail or "
    "are interrupted.",
)
@pytest.mark.parametrize("wanted", [OLD, LAST], ids=["the current config", "another one"])
async def test_each_config_that_was_left_half_way_stays_known(wanted: Any) -> None:
    """A repair is reverted, the next one is put off: the first config is still on the disk, and is cleaned up."""
    host = await half_way()
    host.want(REPAIR)
    await failing_once(host, Phase.WRITING)
    assert host.record.reason == "Reverted"
    host.want(config("other", {"/etc/app/x": "7"}))
    await failing_once(host, Phase.LEASING)
    await check(host, wanted)


async def test_the_configs_that_are_known_as_half_way_are_bounded() -> None:
    record = Record(Phase.DEGRADED, update_id="u", to_digest="d0")
    for number in range(1, 40):
        left = idle.left_half_way(record)
        record = replace(record, to_digest=f"d{number}", unfinished=left)
    assert left == tuple(f"d{number}" for number in range(38, 38 - idle.MAX_HALF_WAY, -1))
    assert idle.left_half_way(Record(phase=Phase.DEGRADED, update_id="u")) == ("u",)


async def drained_half_way() -> ClusterHost:
    """A node of a cluster, drained and half-way."""
    host = await cluster_host.at_old()
    host.limits = replace(host.limits, revert=False, may_reboot=False)
    host.world.units["app.service"] = FakeUnit(bad_until_boot=99)
    host.want(cluster_host.DRAIN)
    await host.settle()
    assert is_half_way(host.record)
    host.world.units["app.service"] = FakeUnit()
    host.limits = replace(host.limits, revert=True)
    return host


def holds(host: ClusterHost) -> tuple[object, ...]:
    """Return the locks that keep other programs from the node, and the rollout from the next one."""
    assert host.world.holder is not None
    return host.world.holder.operation, host.around.slot, host.around.cordon, host.around.hook


async def put_off(host: ClusterHost) -> None:
    host.want(cluster_host.RESTART)
    await failing_once(host, Phase.LEASING)


async def put_off_while_drained(host: ClusterHost) -> None:
    host.around.pods, host.around.stuck, host.around.late = list(cluster_host.PODS), True, False
    host.limits = replace(host.limits, drain_or_reboot=False)
    host.want(config("moved", {"/etc/app/x": "1", "/etc/web/x": "1", "/etc/moved": "9"}))
    loop = host.build()
    await loop.turn()
    assert host.record.reason == "DrainTimedOut"
    host.around.stuck = False


async def superseded(host: ClusterHost) -> None:
    host.around.gate = Refused("another program works on it", reason="MachineBusy")
    host.want(cluster_host.RESTART)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(30)
    host.want(cluster_host.OLD)
    await asyncio.sleep(60)
    assert (host.phase, host.record.to_name) == (Phase.LEASING, "old")
    await killed(task)
    host.around.gate = None


async def refused_late(host: ClusterHost) -> None:
    """Another program comes in between two looks."""
    looks = [0]

    async def check(_self: object) -> None:
        looks[0] += 1
        if looks[0] % 2 == 0:
            raise Refused("another program works on it", reason="MachineBusy")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_host.FakeGates, "check", check)
        host.want(cluster_host.RESTART)
        task = asyncio.create_task(host.settle())
        await asyncio.sleep(60)
        assert looks[0] > 3
        await killed(task)


async def interrupted_twice(host: ClusterHost) -> None:
    host.around.gate = Refused("another program works on it", reason="MachineBusy")
    host.want(cluster_host.RESTART)
    for _ in range(2):
        task = asyncio.create_task(host.settle())
        await asyncio.sleep(30)
        assert host.phase is Phase.LEASING
        await killed(task)
    host.around.gate = None


async def withdrawn(host: ClusterHost) -> None:
    host.around.gate = Refused("another program works on it", reason="MachineBusy")
    host.want(cluster_host.RESTART)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(30)
    host.wanted = ""
    host.build().look_again()
    await killed(task)
    await host.settle()
    assert host.phase is Phase.IDLE
    host.around.gate = None


async def reverted(host: ClusterHost) -> None:
    host.want(cluster_host.RESTART)
    await failing_once(host, Phase.WRITING)
    assert host.record.reason == "Reverted"


async def half_way_again(host: ClusterHost) -> None:
    host.limits = replace(host.limits, revert=False)
    host.want(cluster_host.RESTART)
    await failing_once(host, Phase.WRITING)
    assert host.record.reason == "NoSpace"


async def unreachable(*_: object) -> str:
    raise Unreachable("rpm-ostreed does not answer", reason=Reason.NO_REPLY)


async def killed(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    "repair",
    [
        put_off,
        put_off_while_drained,
        superseded,
        refused_late,
        interrupted_twice,
        withdrawn,
        reverted,
        half_way_again,
    ],
    ids=lambda how: how.__name__,
)
async def test_a_half_way_node_keeps_cordon_lease_and_slot_until_it_is_repaired(
    repair: Callable[[ClusterHost], Awaitable[None]],
) -> None:
    host = await drained_half_way()
    held = holds(host)
    assert all(held)
    await repair(host)
    assert host.record.unfinished or is_half_way(host.record)
    assert holds(host) == held
    host.loop = None
    host.want(cluster_host.REBOOT)
    host.limits = replace(host.limits, may_reboot=True)
    await host.settle()
    assert (host.phase, host.record.reason, host.record.held) == (Phase.IDLE, "", "")
    cluster_host.all_given_back(host)


@pytest.mark.parametrize("again", [False, True], ids=["", "and put off"])
async def test_a_repair_of_a_node_whose_lease_was_freed_takes_it_again(again: bool) -> None:
    host = await drained_half_way()
    host.around.lost.add(host.record.update_id)
    host.world.holder = None
    if again:
        host.want(cluster_host.REBOOT)
        await failing_once(host, Phase.LEASING)
        await put_off_while_drained(host)
        assert host.world.holder is not None
        assert host.world.holder.operation == host.record.operation
    host.want(cluster_host.RESTART)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.IDLE, "")
    cluster_host.all_given_back(host)


async def test_a_half_way_node_keeps_all_while_the_deployments_cannot_be_read() -> None:
    """Nothing is given back for a repair that cannot begin."""
    host = await drained_half_way()
    held = holds(host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle, "leftover", unreachable)
        host.want(cluster_host.RESTART)
        await host.build().turn()
    assert (holds(host), is_half_way(host.record)) == (held, True)


HOSTS: list[tuple[Callable[[], Awaitable[Host]], list[Any], Any]] = [
    (plain, [config("new", {"/etc/app/x": "2"})], LAST),
    (cluster_host.at_old, [cluster_host.DRAIN, cluster_host.REBOOT, cluster_host.RESTART], LAST),
    (plain, [config("reboot", {"/etc/unlisted": "1", "/etc/app/x": "2"})], LAST),
    (os_host.at_old, [os_host.NEW, os_host.KARGS], os_host.on("a", "last", {"/etc/app/x": "9"})),
]


@pytest.mark.finding(
    "updates: legal states after any failure",
    "Failures of any kind at any point end in a legal state, from which the next config is applied.",
)
@pytest.mark.parametrize("seed", range(60))
async def test_failures_of_any_kind_at_any_point_end_well(seed: int) -> None:
    """After up to six failures before or after the work of random phases, the last config is applied."""
    draw = random.Random(seed)
    made, configs, last = HOSTS[seed % len(HOSTS)]
    host, new, left = await made(), draw.choice(configs), [draw.randint(1, 6)]
    host.limits = replace(host.limits, revert=draw.random() < 0.7, may_reboot=draw.random() < 0.9)
    happened = list[str]()

    def change(phase: Phase, work: Work) -> Work:
        async def sometimes(run: Run) -> Transition:
            if not left[0] or draw.random() < 0.6:
                return await work(run)
            left[0] -= 1
            failure = draw.choice(list(FAILURES))
            happened.append(f"{phase}: {failure}")
            if draw.random() < 0.5:
                await work(run)
            raise FAILURES[failure]()

        return sometimes

    failing(host, change)
    for attempt in range(6):
        host.want(new, str(attempt))
        await host.settle()
        if draw.random() < 0.5:
            await host.ask()
    left[0] = 0
    host.want(last)
    await host.settle()
    assert host.phase is Phase.IDLE, f"{host.record.reason}: {host.record.message} after {happened}"
    assert host.configs[host.world.current].name == "last"
    assert (host.world.holder, is_half_way(host.record)) == (None, False)
    assert not {"IllegalTransition", "InternalError"} & {getattr(event, "reason", "") for event in host.world.events}
