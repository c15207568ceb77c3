# SPDX-License-Identifier: Apache-2.0
"""Whole updates of a node of the cluster with interruptions: maintenances, unplanned reboots, other lease holders,
windows that close, a member of etcd that is down.

Everything that a cluster has of the node is real; the host itself is one in memory (`member`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from integration.cluster.api import Object
from integration.cluster.cluster import LEASE_PATH, Cluster
from integration.cluster.etcd import EtcdCluster, EtcdMember
from integration.cluster.other_holders import NMO, foreign, lease_of, taken_too_early, written
from integration.cluster.programs import Binaries
from integration.cluster.sim_node import QUICK, SimNode
from integration.cluster.test_drain import Scene, hurry
from nodeagent.core.config.file_tree import expand
from nodeagent.features.cluster.gates import MACHINES
from nodeagent.features.etcd_guard.guard import QuorumGuard
from nodeagent.features.etcd_guard.quorum import QuorumCheck
from nodeagent.features.windows.decide.openings import Openings
from nodeagent.features.windows.decide.schedule import Schedule
from nodeagent.features.windows.decide.window import every
from nodeagent.features.windows.guard import TimeGuard
from nodeagent.features.windows.times import Times
from nodeagent.host.clock import SystemClock
from nodeagent.update.ports.events import UpdateWaiting
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.states import Phase
from tests.features.safe_parts.offering import offering
from tests.support.keys import ed25519
from tests.world import World
from tests.world.os_host import FIRST, NEW, OLD, os_host
from tests.world.run import config

FENCER: Final = "NodeHealthCheck-nhc-worker"
BEFORE = config("before", {"/etc/app/x": "1"})
REBOOTS = config("after", {"/etc/app/x": "1", "/etc/unlisted": "2"})  # no policy knows it: drain and reboot
RESTARTS = config("after", {"/etc/app/x": "2"})

__all__ = ["hurry"]  # a fixture, for every test
_numbers = itertools.count(1)


@dataclass
class Story(Scene):
    """A node with pods, and the agent on it. ``member`` is at rest with the config ``before`` at first."""

    member: SimNode = None  # type: ignore[assignment]
    life: asyncio.Task[bool] | None = None

    def begin(self) -> None:
        """The daemon starts."""
        self.life = asyncio.create_task(self.member.live())

    async def ends(self) -> bool:
        """Run one life. Return True if it came to rest, False if the host went down."""
        assert self.life is not None
        return await asyncio.wait_for(asyncio.shield(self.life), 180)

    async def kill(self) -> None:
        assert self.life is not None
        self.life.cancel()
        await asyncio.gather(self.life, return_exceptions=True)

    async def power_cut(self) -> None:
        await self.kill()
        self.member.world.power_cut()

    async def phase(self, phase: Phase) -> None:
        async with asyncio.timeout(60):
            while self.member.phase is not phase:
                await asyncio.sleep(0.05)

    def lease(self) -> Object | None:
        return lease_of(self.cluster, self.node)

    def lease_writes(self) -> list[Object]:
        return [event for name, event in written(self.cluster) if name == f"node-{self.node}"]

    def given_back(self) -> bool:
        return self.lease() is None and not self.member.cordoned


MakeStory = Callable[..., Any]


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Any]:
    from integration.cluster.other_holders import client_of

    async with client_of(cluster) as made:
        yield made


@pytest.fixture
async def make_story(cluster: Cluster, node: str, client: Any) -> AsyncIterator[MakeStory]:
    """Keywords are those of a SimNode. It has the first config, and came to rest."""
    made: list[tuple[Story, asyncio.Task[None]]] = []

    async def make(*, first: Any = BEFORE, **more: Any) -> Story:
        namespace = f"story-{next(_numbers)}"
        cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        story = Story(cluster, client, node, namespace)
        story.member = SimNode(cluster, node, on_remaining=story.seen.append, **more)
        made.append((story, asyncio.create_task(story.kubelet())))
        story.member.want(first)
        await asyncio.wait_for(story.member.settle(), 180)
        assert story.member.phase is Phase.IDLE
        story.member.world.done.clear()
        story.member.world.events.clear()
        return story

    yield make
    for story, kubelet in made:
        if story.life is not None:
            await story.kill()
        kubelet.cancel()
        await asyncio.gather(kubelet, return_exceptions=True)


@pytest.fixture
async def story(make_story: MakeStory) -> Story:
    made: Story = await make_story()
    return made


@pytest.fixture(scope="module")
def members_of_etcd(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    made = EtcdCluster(binaries, tmp_path_factory.mktemp("etcd"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.cluster_failure(
    "the host reboots as planned",
    "the lease covers the boot and is found again; the update is verified, the node is uncordoned and given back",
)
async def test_drained_rebooted_and_given_back(story: Story) -> None:
    """Case 13: the lease lasts through the reboot and is found again; the node is uncordoned after the verification."""
    story.pod("web")
    story.member.want(REBOOTS)
    story.begin()
    assert not await story.ends(), "the host goes down"
    assert story.names() == []
    assert story.member.cordoned
    during = story.lease()
    assert during is not None
    assert during["spec"]["leaseDurationSeconds"] >= QUICK.boot_cover
    story.begin()
    assert await story.ends()
    assert story.member.outcomes()[-1] == "done"
    assert story.given_back()
    verbs = [event["verb"] for event in story.lease_writes()]
    assert verbs[-1] == "delete"
    assert verbs.count("delete") == verbs.count("create") == 2, "once for each update"
    assert taken_too_early(story.cluster, story.node) == []


@pytest.mark.parametrize("holder", [NMO, FENCER])
@pytest.mark.cluster_failure(
    "another operator has the node for a maintenance",
    "waits, and reports the holder and the start; nothing is cordoned",
)
@pytest.mark.cluster_failure(
    "a health check is about to fence the node", "waits, and reports the holder and the start; nothing is cordoned"
)
async def test_nothing_is_begun_while_another_one_has_the_node(story: Story, holder: str) -> None:
    """Cases 1 and 2."""
    story.pod("web")
    before = foreign(story.cluster, story.node, holder=holder)
    story.member.want(REBOOTS)
    story.begin()
    assert holder in await story.member.reported(UpdateWaiting, "LeaseHeld")
    assert not story.member.cordoned
    assert story.names() == ["web"]
    assert story.lease() == before
    story.cluster.admin.delete(f"{LEASE_PATH}/node-{story.node}")
    assert not await story.ends()


@pytest.mark.cluster_failure("the agent crashes during the drain", "continues the drain with the same deadline")
@pytest.mark.cluster_failure(
    "the agent is stopped by its own update", "gives nothing back, then continues the drain with the same deadline"
)
async def test_a_restart_of_the_agent_in_a_drain_goes_on_with_it(story: Story) -> None:
    """Cases 11 and 12: SIGTERM gives nothing back, and the next process goes on with the same operation."""
    story.pod("web")
    story.budget("web-budget", "web", allowed=0)
    story.member.want(REBOOTS)
    story.begin()
    await story.why("web", "web-budget")
    before, deadline = story.lease(), story.member.record.drain_until
    await story.kill()
    assert story.lease() is not None
    assert story.member.cordoned
    story.seen.clear()
    story.begin()
    await story.why("web", "web-budget")
    after = story.lease()
    assert before is not None
    assert after is not None
    assert after["spec"]["holderIdentity"] == before["spec"]["holderIdentity"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert story.member.record.drain_until == deadline, "the deadline does not change"
    story.budget("web-budget", "web", allowed=1)
    assert not await story.ends()


@pytest.mark.cluster_failure(
    "the host reboots or loses its power unplanned",
    "during the drain: ends the operation, gives everything back, and evaluates the desired config again. "
    "Later: holds the lease until everything is verified",
)
async def test_a_power_cut_in_a_drain_starts_the_update_again(story: Story) -> None:
    """Case 14: nothing was written, so the operation ends there, its cordon and its lease are given back, and what is
    desired now is looked at again, as a new operation."""
    story.pod("web")
    story.budget("web-budget", "web", allowed=0)
    story.member.want(REBOOTS)
    story.begin()
    await story.why("web", "web-budget")
    first = story.member.record.update_id
    await story.power_cut()
    assert story.lease() is not None, "no other holder may take a node in an unknown state"
    story.member.want(BEFORE)  # The update is not desired any more.
    story.begin()
    assert await story.ends()
    assert story.given_back()
    assert story.names() == ["web"], "it was not drained on"
    ends = [str(entry.outcome) for entry in story.member.world.history if entry.update_id == first]
    assert ends in (["superseded"], ["withdrawn"])
    assert "/etc/unlisted" not in story.member.world.disk


@pytest.mark.cluster_failure("the host reboots or loses its power unplanned")
async def test_a_power_cut_in_the_middle_of_actions_holds_the_lease_until_all_is_verified(story: Story) -> None:
    """Case 14: files are written, so every service has started with them; it is verified, not done again."""
    unit = story.member.world.units["app.service"]
    unit.hang = True
    story.member.want(RESTARTS)
    story.begin()
    await story.phase(Phase.ACTING)
    before = story.lease()
    await story.power_cut()
    unit.hang = False
    story.begin()
    assert await story.ends()
    assert story.member.outcomes()[-1] == "done"
    assert story.given_back()
    assert before is not None
    writes = story.lease_writes()
    made = max(number for number, event in enumerate(writes) if event["verb"] == "create")
    assert [event["verb"] for event in writes[made:]].count("delete") == 1, "held from before the cut to the end"
    deleted = writes[-1]
    assert deleted["verb"] == "delete"
    assert story.member.world.boot == 2, "there is no second reboot"


@pytest.mark.cluster_failure(
    "the boot takes longer than the lease, and another holder fences the node",
    "disrupts and uncordons nothing until that holder is done",
)
async def test_a_boot_that_takes_longer_than_the_lease(story: Story) -> None:
    """Case 15: a remediator keeps the node that it took; nothing is uncordoned or disrupted before its release."""
    story.member.want(REBOOTS)
    story.begin()
    assert not await story.ends()
    fencing = foreign(story.cluster, story.node, holder=FENCER)
    story.begin()
    message = await story.member.reported(UpdateWaiting, "LeaseHeld")
    assert FENCER in message
    assert "stays cordoned until then" in message
    assert story.lease() == fencing, "what is his is left alone"
    assert story.member.cordoned
    story.cluster.admin.delete(f"{LEASE_PATH}/node-{story.node}")
    assert await story.ends()
    assert story.given_back()
    assert story.member.world.boot == 2


@pytest.mark.cluster_failure(
    "the new deployment does not boot", "marks it as failed, restores the files, gives the node back; does not retry"
)
async def test_a_deployment_that_does_not_boot(make_story: MakeStory) -> None:
    """Case 16: the boot loader or greenboot went back to the old one. Marked as failed, no second try, and the node is
    given back, since it is as it was before."""
    world: World = os_host().world
    assert world.deployments == [FIRST]
    story: Story = await make_story(first=OLD, world=world)
    story.pod("web")
    story.member.want(NEW)
    world.boot_menu[2] = FIRST.id
    lives = 0
    while True:
        story.begin()
        lives += 1
        if await story.ends():
            break
        assert lives < 4
    entry = story.member.world.history[-1]
    assert (entry.to_name, entry.outcome) == ("new", "reverted")
    assert story.member.phase is Phase.DEGRADED
    assert story.given_back()
    boots = world.boot
    for _ in range(2):
        story.begin()
        assert await story.ends()
    assert world.boot == boots
    assert story.lease() is None


@pytest.mark.cluster_failure(
    "the Node is deleted and created again in the meantime", "the token is void; the new Node has a lease of its own"
)
async def test_a_node_that_was_made_again_while_the_host_was_down(story: Story) -> None:
    """Case 17: the token is void; nothing of the old operation is done to the new Node."""
    story.member.want(REBOOTS)
    story.begin()
    assert not await story.ends()
    story.cluster.admin.delete(story.path)
    story.cluster.admin.delete(f"{LEASE_PATH}/node-{story.node}")  # what the garbage collector does then
    story.cluster.node(story.node)
    story.begin()
    assert await story.ends()
    assert story.given_back()
    assert story.member.world.boot == 2
    # And the new Node is one like any other: a newer config finds its lease free.
    story.member.want(config("newer", {"/etc/app/x": "9", "/etc/unlisted": "2"}))
    story.begin()
    assert await story.ends()
    assert story.member.outcomes()[-1] == "done"
    assert story.lease() is None


@pytest.mark.cluster_failure(
    "the Machine of the node is being deleted",
    "refuses the update; during the drain: gives it up, writes nothing, removes its own hook",
)
async def test_a_machine_that_is_deleted_while_its_node_is_drained(story: Story) -> None:
    """Case 18: nothing is written any more; the node is left to those who take it away."""
    body = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": {"name": story.node, "finalizers": ["machine.machine.openshift.io"]},
        "spec": {},
    }
    story.cluster.admin.create(MACHINES.format("default", "").rstrip("/"), body)
    note = {"machine.openshift.io/machine": f"default/{story.node}"}
    story.cluster.admin.patch(story.path, {"metadata": {"annotations": note}})
    machine = MACHINES.format("default", story.node)
    story.pod("web")
    story.budget("web-budget", "web", allowed=0)
    story.member.want(REBOOTS)
    story.begin()
    await story.why("web", "web-budget")
    hooks = story.cluster.admin.get(machine)["spec"]["lifecycleHooks"]["preDrain"]
    assert [hook["name"] for hook in hooks] == ["NodeUpdate"], "it is not deleted under us"
    story.cluster.admin.delete(machine)
    story.budget("web-budget", "web", allowed=1)
    assert await story.ends(), "no reboot"
    assert "/etc/unlisted" not in story.member.world.disk
    assert story.given_back()
    left = story.cluster.admin.get(machine)["spec"].get("lifecycleHooks", {}).get("preDrain") or []
    assert left == [], "nothing of ours keeps it"


def guard_of(member: EtcdMember) -> QuorumGuard:
    return QuorumGuard(QuorumCheck(SystemClock(), root=member.host, timeout=2.0))


@pytest.mark.cluster_failure(
    "etcd needs this member",
    "refuses before the cordon, before the first byte and before the reboot; moves the leadership away",
)
async def test_a_member_of_etcd_that_is_missed(make_story: MakeStory, members_of_etcd: EtcdCluster) -> None:
    """Case 28: refused before anything is cordoned, while a peer is down; asked again right before the reboot, and the
    lead is handed on."""
    etcd = members_of_etcd
    leader = await asyncio.to_thread(etcd.leader)
    peer = await asyncio.to_thread(etcd.follower)
    peer.server.kill()
    story: Story = await make_story(guard=guard_of(leader))
    story.pod("web")
    story.member.want(REBOOTS)
    story.begin()
    assert peer.name in await story.member.reported(UpdateWaiting, "EtcdQuorumAtRisk")
    assert not story.member.cordoned
    assert story.lease() is None
    assert story.names() == ["web"]
    peer.server.start()
    await asyncio.to_thread(peer.server.wait_ready, 60)
    assert not await story.ends()
    assert await asyncio.to_thread(etcd.leader) is not leader


async def test_a_key_arrives_while_etcd_holds_the_reboot(make_story: MakeStory, members_of_etcd: EtcdCluster) -> None:
    """What needs no disruption is applied under the lease, without a cordon or an eviction; the rest follows later."""
    leader = await asyncio.to_thread(members_of_etcd.leader)
    peer = await asyncio.to_thread(members_of_etcd.follower)
    peer.server.kill()
    story: Story = await make_story(guard=guard_of(leader))
    offering(story.member)
    member, disk = story.member, story.member.world.disk
    story.pod("web")
    new = config("after", {"/etc/app/x": "1", "/etc/unlisted": "2"}, keys=[ed25519("new")])
    member.want(new)
    story.begin()
    async with asyncio.timeout(60):
        while (partial := member.record.lasting.partial) is None or member.record.safe_for:
            await asyncio.sleep(0.05)
    assert (partial.applied, partial.waits) == (("sshkey:core",), (("file:/etc/unlisted", "Drain, Reboot"),))
    (keys,) = expand(config("keys", keys=[ed25519("new")])).items()
    assert keys in disk.items()
    assert "/etc/unlisted" not in disk
    assert story.names() == ["web"]
    assert story.given_back()
    assert peer.name in await member.reported(UpdateWaiting, "EtcdQuorumAtRisk")
    peer.server.start()
    await asyncio.to_thread(peer.server.wait_ready, 60)
    # The next attempt after a refusal may be some minutes away.
    assert member.loop is not None
    member.loop.look_again()
    assert not await story.ends()
    story.begin()
    assert await story.ends()
    assert (member.phase, "/etc/unlisted" in disk, member.record.lasting.partial) == (Phase.IDLE, True, None)
    assert member.outcomes()[-2:] == ["partial", "done"]


@pytest.mark.cluster_failure("etcd needs this member")
async def test_a_peer_of_etcd_that_goes_down_in_the_drain(make_story: MakeStory, members_of_etcd: EtcdCluster) -> None:
    """Case 28: asked again before the first byte is written; then the node is given back, and it is tried later."""
    leader = await asyncio.to_thread(members_of_etcd.leader)
    peer = await asyncio.to_thread(members_of_etcd.follower)
    story: Story = await make_story(guard=guard_of(leader))
    story.pod("web")
    story.budget("web-budget", "web", allowed=0)
    story.member.want(REBOOTS)
    story.begin()
    await story.why("web", "web-budget")
    peer.server.kill()
    try:
        story.budget("web-budget", "web", allowed=1)
        assert await story.ends()
    finally:
        peer.server.start()
        await asyncio.to_thread(peer.server.wait_ready, 60)
    assert story.member.record.reason == "EtcdQuorumAtRisk"
    assert story.given_back()
    assert "/etc/unlisted" not in story.member.world.disk
    story.begin()
    assert not await story.ends()


@pytest.mark.cluster_failure("etcd needs this member")
async def test_a_peer_of_etcd_that_goes_down_before_the_reboot(
    make_story: MakeStory, members_of_etcd: EtcdCluster
) -> None:
    """Case 28: asked again right before the reboot, which waits."""
    leader = await asyncio.to_thread(members_of_etcd.leader)
    peer = await asyncio.to_thread(members_of_etcd.follower)
    story: Story = await make_story(guard=guard_of(leader))
    story.member.world.blockers.append(Inhibitor("backup", "copies", "backup[77]"))
    story.member.want(REBOOTS)
    story.begin()
    await story.member.reported(UpdateWaiting, "RebootBlocked")
    peer.server.kill()
    try:
        story.member.world.blockers.clear()
        assert peer.name in await story.member.reported(UpdateWaiting, "EtcdQuorumAtRisk")
        assert story.member.world.boot == 1
        assert story.lease() is not None
    finally:
        peer.server.start()
        await asyncio.to_thread(peer.server.wait_ready, 60)
    assert not await story.ends()


class GivenTimes(Times):
    def __init__(self, windows: Schedule) -> None:
        self._windows = windows

    async def openings(self) -> Openings:
        return Openings(self._windows)


@pytest.mark.cluster_failure("the window closes during the drain", "begins nothing new; continues the running update")
async def test_a_window_that_closes_in_the_middle_of_a_drain(make_story: MakeStory) -> None:
    """Case 29: it keeps things from beginning, and interrupts nothing."""
    now = datetime.now(UTC)  # noqa: TID251 - the test's own
    start = now - timedelta(minutes=5)
    window = Schedule(every([start.strftime("%a")], start.strftime("%H:%M"), 60), UTC)
    story: Story = await make_story(times=TimeGuard(GivenTimes(window)))
    story.pod("web")
    story.budget("web-budget", "web", allowed=0)
    story.member.want(REBOOTS)
    story.begin()
    await story.why("web", "web-budget")
    story.member.clock.ahead = timedelta(hours=2)
    story.budget("web-budget", "web", allowed=1)
    assert not await story.ends(), "it is drained and rebooted"
    story.begin()
    assert await story.ends()
    assert story.member.outcomes()[-1] == "done"
    assert story.given_back()
    story.member.want(config("next", {"/etc/app/x": "3", "/etc/unlisted": "2"}))
    story.begin()
    assert "no window is open; the next one opens " in await story.member.reported(UpdateWaiting, "WindowClosed")
    assert story.lease() is None
    story.member.clock.ahead = timedelta(0)
    assert story.member.loop is not None
    story.member.loop.look_again()
    assert await story.ends()
    assert story.member.outcomes()[-1] == "done"
