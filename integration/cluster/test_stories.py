# SPDX-License-Identifier: Apache-2.0
"""What people and controllers want of a node at the same time: each story with the real API server, the daemon's own
parts, and another holder of the lease that speaks medik8s' protocol.

The host is one in memory (`member`), so it can be powered off and come back.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import pytest

from integration.cluster.cluster import LEASE_PATH, Cluster
from integration.cluster.managed_node import ManagedNode
from integration.cluster.medik8s import AlreadyHeld, Manager
from integration.cluster.other_holders import client_of, foreign, goodbye
from integration.cluster.test_drain import Scene, hurry
from nodeagent.core.coordination.kube_objects import MAINTENANCES
from nodeagent.core.times import seconds_until
from nodeagent.errors import AgentError, Retryable, Unreachable
from nodeagent.features.cluster import node_events as events
from nodeagent.features.cluster import reports
from nodeagent.features.cluster import view as drain_view
from nodeagent.features.cluster.gates import MACHINES
from nodeagent.features.maintenance import manager as keeping
from nodeagent.features.maintenance.decide import MaintenanceRequest
from nodeagent.update.states import Phase
from tests.world import World
from tests.world.os_host import NEW, OLD, os_host
from tests.world.run import config

BEFORE = config("before", {"/etc/app/x": "1"})
RESTARTS = config("after", {"/etc/app/x": "2"})
DRAINS = config("after", {"/etc/app/x": "1", "/etc/unlisted": "2"})  # no policy knows it: drain and reboot
YEAR: Final = 365 * 86400
NHC: Final = "NodeHealthCheck-nhc-worker"
NMO: Final = "node-maintenance"
DISKS: Final = MaintenanceRequest("the disks are swapped", "jane")
WHO: Final = "jane (by root): the disks are swapped"

__all__ = ["hurry"]  # a fixture, for every test
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "QUICK", 0.1)
    monkeypatch.setattr(reports, "TEXT_EVERY", 0.3)
    monkeypatch.setattr(reports, "LONGEST_PAUSE", 1.0)
    monkeypatch.setattr(drain_view, "BLOCKED_FOR", 0.5)
    monkeypatch.setattr(events, "WRITE_EVERY", 1.0)
    monkeypatch.setattr(keeping, "POLL", 1.0)


class Story(Scene):
    """A node with pods and the agent on it, up and with the config ``before``, and two operators of medik8s."""

    agent: ManagedNode

    def operators(self) -> None:
        self.nhc = Manager(self.cluster, NHC)
        self.nmo = Manager(self.cluster, NMO)

    def lease(self) -> dict[str, Any]:
        return (self.nhc.find(self.node) or {}).get("spec") or {}

    async def state(self, state: str | None) -> None:
        """Waits until the maintenance is at that; None: until there is none."""
        await self.agent.until(lambda: (self.agent.status()["maintenance"] or {}).get("state") == state, f"{state}")

    async def waits(self, words: str) -> None:
        """Waits until the update says that it waits, with these words."""

        def said() -> bool:
            status = self.agent.status()
            return status["phase"] in ("Leasing", "Staging") and words in status["message"]

        await self.agent.until(said, f"the update waits: {words}")

    async def in_force(self, name: str) -> None:
        def so() -> bool:
            record, world = self.agent.record, self.agent.world
            done = bool(world.history) and (world.history[-1].to_name, world.history[-1].outcome) == (name, "done")
            return done and record.phase is Phase.IDLE

        await self.agent.until(so, f"{name} is in force")

    async def condition(self, *kinds: str) -> None:
        await self.agent.until(lambda: self.agent.conditions().keys() == set(kinds), f"conditions {kinds}")

    async def notice(self, reason: str, words: str = "") -> str:
        def found() -> list[str]:
            return [note for each, note in self.agent.notices() if each == reason and words in note]

        await self.agent.until(found, f"event {reason}: {words}")
        return found()[0]


@pytest.fixture
async def make_story(cluster: Cluster, node: str) -> AsyncIterator[Any]:
    async with client_of(cluster) as client:
        made: list[tuple[Story, asyncio.Task[None]]] = []

        async def make(world: World | None = None, first: Any = BEFORE) -> Story:
            namespace = f"stories-{next(_numbers)}"
            cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
            story = Story(cluster, client, node, namespace)
            story.operators()
            story.agent = ManagedNode(cluster, node, world=world, on_remaining=lambda pods: story.agent.drained(pods))
            made.append((story, asyncio.create_task(story.kubelet())))
            story.agent.want(first)
            story.agent.begin()
            await story.in_force(first.name)
            story.agent.world.done.clear()
            return story

        yield make
        for story, kubelet in made:
            await story.agent.stop()
            kubelet.cancel()
            await asyncio.gather(kubelet, return_exceptions=True)
    await goodbye(cluster)


@pytest.fixture
async def story(make_story: Any) -> Story:
    made: Story = await make_story()
    return made


async def refused(what: Any, reason: str) -> str:
    with pytest.raises(AgentError) as caught:
        await what
    assert caught.value.reason == reason
    return caught.value.message


async def test_exclusive_access_for_maintenance(story: Story) -> None:
    """Neither an update nor a reboot while it lasts; every user sees the requester and the reason."""
    await story.agent.keeper.start("root", DISKS)
    assert story.lease()["holderIdentity"].startswith("jane (by root)/maintenance.")
    notes = (story.nhc.find(story.node) or {})["metadata"]["annotations"]
    assert notes["nodeagent.org/reason"] == "the disks are swapped"
    await story.condition("MaintenanceInProgress")
    assert story.agent.conditions()["MaintenanceInProgress"] == WHO
    assert WHO in await story.notice("MaintenanceStarted")
    with pytest.raises(AlreadyHeld, match="jane"):
        await story.nhc.request(story.node, 600)

    story.agent.want(DRAINS)
    await story.waits("the disks are swapped")
    assert WHO.partition(":")[0] in await story.notice("UpdateWaiting")
    await story.agent.stop()
    story.agent.begin()
    await story.waits("the disks are swapped")
    await asyncio.sleep(1.5)
    assert story.agent.world.done == []
    assert "/etc/unlisted" not in story.agent.world.disk
    assert not story.agent.cordoned

    await story.agent.keeper.stop("root")
    await story.agent.goes_down()
    story.agent.begin()
    await story.in_force("after")
    await story.agent.until(lambda: not story.lease(), "it is given back")
    await story.condition()
    await story.nhc.request(story.node, 600)


async def test_nothing_is_staged_while_it_lasts(make_story: Any) -> None:
    story: Story = await make_story(os_host().world, OLD)
    staged = len(story.agent.world.deployments)
    await story.agent.keeper.start("root", DISKS)
    story.agent.want(NEW)
    await story.waits("the disks are swapped")
    await asyncio.sleep(1)
    assert (len(story.agent.world.deployments), story.agent.world.staged_with_lease) == (staged, [])
    await story.agent.keeper.stop("root")
    await story.agent.goes_down()
    story.agent.begin()
    await story.in_force(NEW.name)


@pytest.mark.finding(
    "peers: leases of medik8s",
    "The real lease library of medik8s never gets a node that the agent has, by any clock, and only one wins a race.",
)
@pytest.mark.parametrize("seconds", [7200, 0])
async def test_a_machine_that_was_asked_to_stay_off(story: Story, seconds: int) -> None:
    """Drained, off, and not fenced: by medik8s' reading of the lease it is held until the time that was asked for, or
    until it is released; if it boots before that, the maintenance still holds it, and nothing continues."""
    story.pod("web")
    asked = MaintenanceRequest("new memory", "jane", seconds, drain=True, power_off=True)
    await story.agent.keeper.start("root", asked)
    await story.agent.goes_down()
    assert story.names() == []
    assert story.agent.world.done == ["1:power-off"]
    holder = story.lease()["holderIdentity"]
    ends = seconds or 9 * YEAR
    for hours in (0.0, ends / 2, ends - 60.0):
        story.nhc.later = hours
        assert holder in await story.nhc.is_kept_away(story.node), hours
        with pytest.raises(AlreadyHeld):
            await story.nhc.request(story.node, 600)
    story.nhc.later = ends + 2 * YEAR
    assert await story.nhc.is_kept_away(story.node) == "", "it has an end, for who judges by a clock"
    kinds = {"MaintenanceInProgress", "Drained"}
    assert kinds <= story.agent.conditions().keys(), "the conditions of the Node report it while it is off"

    story.nhc.later = 0.0
    story.agent.want(DRAINS)
    story.agent.begin()
    await story.waits("new memory")
    assert story.agent.status()["maintenance"]["state"] == "under way"
    assert story.agent.cordoned
    assert holder in await story.nhc.is_kept_away(story.node), "the maintenance continues after the boot"
    story.agent.want(BEFORE)
    await story.agent.keeper.stop("root")
    assert not story.agent.cordoned
    assert story.agent.world.done == ["1:power-off"], "once"
    await story.nhc.request(story.node, 600)


async def test_off_for_a_time_and_back_up_after_it(story: Story) -> None:
    note = await story.agent.keeper.start("root", MaintenanceRequest("new memory", seconds=8, power_off=True))
    await story.agent.goes_down()
    await story.agent.until(lambda: (seconds_until(note.until, story.agent.clock.now()) or 0) < 0, "its time is over")
    story.agent.begin()
    await story.state(None)
    assert not story.lease()
    await story.condition()
    assert "its time is over" in await story.notice("MaintenanceEnded")


async def test_another_operator_has_the_node(story: Story) -> None:
    """If the node-maintenance-operator is first, a maintenance is refused with its name, or waits for its end."""
    await story.nmo.request(story.node, 3600)
    assert NMO in await refused(story.agent.keeper.start("root", DISKS), "LeaseHeld")
    assert story.lease()["holderIdentity"] == NMO
    asked = MaintenanceRequest("the disks are swapped", "jane", wait=True)
    await story.agent.keeper.start("root", asked)
    await story.condition("MaintenancePlanned")
    assert story.agent.conditions()["MaintenancePlanned"] == WHO
    await story.nmo.request(story.node, 3600)
    await story.nmo.invalidate(story.node)
    await story.state("under way")
    with pytest.raises(AlreadyHeld, match="jane"):
        await story.nmo.request(story.node, 3600)
    with pytest.raises(AlreadyHeld):
        await story.nmo.invalidate(story.node)


async def test_a_machine_is_not_deleted_under_a_persons_hands(story: Story) -> None:
    """Who deletes machines takes no lease: a preDrain hook keeps it until the maintenance is over."""
    admin, machine = story.cluster.admin, MACHINES.format("default", story.node)
    kind = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "spec": {}}
    admin.create(MACHINES.format("default", "").rstrip("/"), {**kind, "metadata": {"name": story.node}})
    note = {"machine.openshift.io/machine": f"default/{story.node}"}
    admin.patch(story.path, {"metadata": {"annotations": note}})
    await story.agent.keeper.start("root", DISKS)
    hooks = admin.get(machine)["spec"]["lifecycleHooks"]["preDrain"]
    assert [hook["name"] for hook in hooks] == ["NodeUpdate"]
    await story.agent.keeper.stop("root")
    assert not admin.get(machine)["spec"].get("lifecycleHooks", {}).get("preDrain")


@pytest.mark.parametrize("what", ["node", "machine"])
async def test_no_update_of_a_node_that_is_being_deleted(story: Story, what: str) -> None:
    admin = story.cluster.admin
    if what == "node":
        admin.patch(story.path, {"metadata": {"finalizers": ["example.com/kept"]}})
        admin.delete(story.path)
    else:
        machine = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "spec": {}}
        meta = {"name": story.node, "finalizers": ["machine.machine.openshift.io"]}
        admin.create(MACHINES.format("default", "").rstrip("/"), {**machine, "metadata": meta})
        note = {"machine.openshift.io/machine": f"default/{story.node}"}
        admin.patch(story.path, {"metadata": {"annotations": note}})
        admin.delete(MACHINES.format("default", story.node))
    story.agent.want(DRAINS)
    await story.waits("")
    await story.agent.until(lambda: story.agent.status()["reason"] == "NodeLeaving", "it says why")
    await story.notice("UpdateWaiting", "NodeLeaving")
    assert story.agent.world.done == []
    assert not story.lease()
    if what == "node":
        admin.patch(story.path, {"metadata": {"finalizers": None}})


async def test_no_reboot_and_no_power_off_while_another_actor_drains(story: Story) -> None:
    """The actor is an operator that lost its lease, the machine-config-controller, or the autoscaler."""
    admin = story.cluster.admin
    kind = {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance"}
    drains = {"metadata": {"name": story.node}, "spec": {"nodeName": story.node, "reason": "new racks"}}
    admin.create(MAINTENANCES, {**kind, **drains})
    story.agent.want(DRAINS)
    await story.waits("new racks")
    story.agent.want(BEFORE)
    await story.agent.keeper.start("root", MaintenanceRequest("new memory", "jane", power_off=True))
    await story.agent.until(lambda: "new racks" in story.agent.status()["maintenance"]["message"], "it says who")
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    admin.patch(story.path, {"spec": {"taints": [taint]}})
    admin.delete(f"{MAINTENANCES}/{story.node}")
    await story.agent.until(
        lambda: "new racks" not in story.agent.status()["maintenance"]["message"], "now for the next one"
    )
    await asyncio.sleep(1)
    assert story.agent.world.done == []
    admin.patch(story.path, {"spec": {"taints": None}})
    await story.agent.goes_down()
    assert story.agent.world.done == ["1:power-off"]


async def test_an_update_and_a_maintenance_know_of_each_other(story: Story) -> None:
    """The maintenance is refused while the update is there; planned, it comes before the next one."""
    story.pod("web")
    story.budget("web-budget", "web", allowed=0)
    story.agent.want(DRAINS)
    await story.agent.until(lambda: story.agent.phase is Phase.DRAINING, "the update drains")
    assert "update to after" in await refused(story.agent.keeper.start("root", DISKS), "LeaseHeld")
    await story.agent.keeper.start("root", MaintenanceRequest("the disks are swapped", "jane", wait=True))
    shown = story.agent.status()["maintenance"]
    assert shown["state"] == "planned"
    assert "update to after" in shown["message"]
    await story.notice("MaintenancePlanned", WHO)
    story.budget("web-budget", "web", allowed=1)
    await story.agent.goes_down()
    story.agent.begin()
    await story.state("under way")
    assert story.agent.world.history[-1].to_name == "after"
    story.agent.want(config("next", {"/etc/app/x": "3", "/etc/unlisted": "2"}))
    await story.waits("the disks are swapped")
    await story.agent.keeper.stop("jane")
    await story.in_force("next")


async def test_who_asked_for_the_drain_and_why_and_what_is_left_and_why(story: Story) -> None:
    """The reason is in the status, on the Node, in events and on the lease."""
    finalizer = "example.com/backup"
    story.pod("web")
    story.pod("db", finalizers=[finalizer])
    story.budget("web-budget", "web", allowed=0)
    await story.agent.keeper.start("root", MaintenanceRequest("the disks are swapped", "jane", drain=True))
    try:

        def left() -> dict[str, dict[str, Any]]:
            drain = story.agent.status()["drain"] or {"remaining": []}
            return {pod["name"]: pod for pod in drain["remaining"]}

        await story.agent.until(lambda: finalizer in left().get("db", {}).get("why", ""), "the finalizer is named")
        await story.agent.until(lambda: "web-budget" in left()["web"]["why"], "the budget is named")
        drain = story.agent.status()["drain"]
        assert (drain["requester"], drain["reason"]) == ("jane (by root)", "the disks are swapped")
        assert drain["since"] != ""
        assert f"kubectl get pdb,pods -n {story.namespace}" in left()["web"]["hint"]
        assert left()["db"]["blocked"] is True

        def named() -> bool:
            message = story.agent.conditions().get("DrainInProgress", "")
            return message.startswith(f"{WHO}; 2 pods are left: ") and "web-budget" in message and finalizer in message

        await story.agent.until(named, "the condition names both")
        assert WHO in await story.notice("DrainRequested")
        assert f"{story.namespace}/web" in await story.notice("DrainBlocked", "web-budget")
        await story.notice("DrainBlocked", finalizer)
        blocked = [note for reason, note in story.agent.notices() if reason == "DrainBlocked"]
        assert len(blocked) == len(set(blocked)) <= 6, "each pod once for each reason, however often it is looked at"
    finally:
        story.cluster.admin.patch(f"{story.pods}/db", {"metadata": {"finalizers": None}})
    story.budget("web-budget", "web", allowed=1)
    await story.notice("Drained", WHO)
    await story.condition("MaintenanceInProgress", "Drained")
    await story.agent.keeper.stop("root")
    await story.condition()
    assert not story.agent.cordoned


async def test_a_lease_that_was_deleted_ends_the_maintenance(story: Story) -> None:
    """An admin of the cluster ends with `kubectl delete lease` a maintenance that no operator on the node ends."""
    await story.agent.keeper.start("root", MaintenanceRequest("the disks are swapped", "jane", drain=True))
    await story.state("under way")
    assert story.agent.cordoned
    story.cluster.admin.delete(f"{LEASE_PATH}/node-{story.node}")
    await story.state(None)
    assert not story.agent.cordoned
    assert not story.lease()
    assert "LeaseLost" in await story.notice("MaintenanceEnded", "it was deleted")
    await story.agent.keeper.start("root", DISKS)
    assert story.lease()["holderIdentity"].startswith("jane")


async def test_the_cordon_stays_for_who_took_the_node_over(story: Story) -> None:
    await story.agent.keeper.start("root", MaintenanceRequest("the disks are swapped", "jane", drain=True))
    await story.state("under way")
    foreign(story.cluster, story.node, holder=NMO)
    await story.state("ending")
    await asyncio.sleep(1)
    assert story.agent.cordoned
    await story.nmo.invalidate(story.node)
    await story.state(None)
    assert not story.agent.cordoned


async def test_the_api_server_is_away(story: Story) -> None:
    """A maintenance continues, an update does not begin; pending events are written later, with their own time."""
    await story.agent.keeper.start("root", DISKS)
    await story.condition("MaintenanceInProgress")
    story.cluster.apiserver.pause()
    try:
        story.agent.want(DRAINS)
        await story.waits("")
        await asyncio.sleep(1)
        assert story.agent.status()["maintenance"]["state"] == "under way"
        assert story.agent.world.done == []
    finally:
        story.cluster.resume()
    with suppress(Retryable, Unreachable):  # A connection may still be lost; the maintenance then continues on its own.
        await story.agent.keeper.stop("root")
    await story.state(None)
    await story.notice("UpdateStarted", "update to after")
    await story.agent.goes_down()
