# SPDX-License-Identifier: Apache-2.0
"""The daemon itself, as its settings compose it: on a private bus, and in a cluster."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from integration.cluster.cluster import ADMINS, Cluster
from integration.cluster.other_holders import client_of, goodbye, lease_of
from integration.cluster.test_drain import Scene, hurry
from nodeagent.agent import compose, daemon
from nodeagent.cli._client import Client, typed_options
from nodeagent.errors import AgentError, Unreachable
from nodeagent.features.cluster import reports
from nodeagent.features.cluster import view as drain_view
from nodeagent.features.cluster.node_events import EVENTS
from nodeagent.host.dbus.client import Bus
from nodeagent.host.notify import Notifier
from nodeagent.settings.cluster import ClusterSettings
from nodeagent.settings.schema import MetricsSettings, Settings
from tests.support.fixtures import PrivateBus, private_bus

__all__ = ["hurry", "private_bus"]

MACHINE_ID: Final = "0123456789abcdef0123456789abcdef"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may tell the daemon what to do without polkit")


class Running(Scene):
    """A node with pods, and the daemon beside it. ``api`` is its D-Bus interface."""

    api: Client

    async def until(self, so: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(60):
                while not so(status := await self.api.status()):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"not so: {what}; {json.dumps(status)}") from None
        return status

    def conditions(self) -> dict[str, str]:
        there = self.cluster.admin.get(self.path)["status"].get("conditions") or ()
        return {each["type"]: each["message"] for each in there if each["status"] == "True"}

    def reasons(self) -> set[str]:
        found = self.cluster.admin.get(EVENTS)["items"]
        return {event["reason"] for event in found if event["regarding"]["name"] == self.node}


@asynccontextmanager
async def running(settings: Settings, address: str) -> AsyncIterator[Client]:
    """The daemon, from its start to its end."""
    motd = f"{settings.state_dir}/motd"
    life = asyncio.create_task(daemon.run(settings, Notifier(), motd=motd, under_way=f"{motd}.held"))
    try:
        async with Bus(address) as bus:
            client = Client(bus)
            async with asyncio.timeout(60):
                while True:
                    try:
                        await client.status()
                        break
                    except Unreachable:
                        if life.done():
                            life.result()
                        await asyncio.sleep(0.05)
            yield client
    finally:
        life.cancel()
        with suppress(asyncio.CancelledError):
            await life


@pytest.fixture
def settings(cluster: Cluster, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(reports, "QUICK", 0.1)
    monkeypatch.setattr(reports, "TEXT_EVERY", 0.3)
    monkeypatch.setattr(drain_view, "BLOCKED_FOR", 0.5)
    (tmp_path / "machine-id").write_text(f"{MACHINE_ID}\n")
    monkeypatch.setattr(compose, "MACHINE_ID", tmp_path / "machine-id")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    return Settings(
        node_name=node,
        desired_config=str(tmp_path / "desired.yaml"),
        policy="",
        state_dir=str(state),
        metrics=MetricsSettings(file=""),
        cluster=ClusterSettings(kubeconfig=str(cluster.kubeconfig("daemons", [ADMINS]))),
    )


@pytest.fixture
async def scene(
    cluster: Cluster, node: str, private_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Running]:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", private_bus.address)
    cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": f"daemon-{node}"}})
    async with client_of(cluster) as client:
        made = Running(cluster, client, node, f"daemon-{node}")
        kubelet = asyncio.create_task(made.kubelet())
        yield made
        kubelet.cancel()
        await asyncio.gather(kubelet, return_exceptions=True)
    await goodbye(cluster)


async def test_a_maintenance_with_a_drain_through_a_restart(
    scene: Running, settings: Settings, private_bus: PrivateBus
) -> None:
    """What is asked for on the bus is on the lease, on the Node and in its events, and the next process goes on."""
    scene.pod("web")
    scene.budget("web-budget", "web", allowed=0)
    async with running(settings, private_bus.address) as scene.api:
        options: dict[str, str | int | bool] = {"requester": "jane", "drain": True, "seconds": 7200}
        status = await scene.api.change("StartMaintenance", "sa{sv}", "the disks are swapped", typed_options(options))
        assert status["maintenance"]["requester"] == "jane (by root)"
        assert status["lease"]["backend"] == "kubernetes"
        assert status["lease"]["operation"] == "maintenance"
        status = await scene.until(
            lambda seen: any("web-budget" in pod["why"] for pod in (seen["drain"] or {"remaining": ()})["remaining"]),
            "the budget is named",
        )
        assert status["drain"]["deadline"] > status["drain"]["since"]
        assert status["drain"]["then"] == "the maintenance goes on without the drain"
        await scene.until(lambda _: "DrainBlocked" in scene.reasons(), "the event is there")
        await scene.until(
            lambda _: "web-budget" in scene.conditions().get("DrainInProgress", ""), "the condition says it"
        )
        with pytest.raises(AgentError) as caught:
            await scene.api.change("StartMaintenance", "sa{sv}", "mine now", {})
        assert caught.value.reason == "LeaseHeld"
        assert "jane (by root)" in caught.value.message
        with pytest.raises(AgentError) as caught:
            await scene.api.change(
                "StartMaintenance", "sa{sv}", "x", typed_options({"requester": "jane", "power-off": True})
            )
        assert caught.value.reason == "BadOption"
    lease = lease_of(scene.cluster, scene.node)
    assert lease is not None
    assert lease["spec"]["leaseDurationSeconds"] >= 7200 - 60

    async with running(settings, private_bus.address) as scene.api:
        await scene.until(lambda seen: seen["drain"] and seen["maintenance"]["state"] == "draining", "it goes on")
        again = lease_of(scene.cluster, scene.node)
        assert again is not None
        assert again["metadata"]["uid"] == lease["metadata"]["uid"]
        scene.budget("web-budget", "web", allowed=1)
        status = await scene.until(lambda seen: seen["maintenance"]["drained"], "it is drained")
        assert status["drain"] is None
        await scene.until(lambda _: scene.conditions().keys() == {"MaintenanceInProgress", "Drained"}, "conditions")
        await scene.api.request("StopMaintenance")
        status = await scene.until(lambda seen: not scene.conditions(), "the conditions are gone")
        assert (status["maintenance"], status["lease"]) == (None, None)
    assert lease_of(scene.cluster, scene.node) is None
    assert not scene.cluster.admin.get(scene.path)["spec"].get("unschedulable")
    expected = {"MaintenanceStarted", "DrainRequested", "DrainBlocked", "Drained", "MaintenanceEnded"}
    assert expected <= scene.reasons()


async def test_it_starts_and_answers_while_the_api_server_is_away(
    scene: Running, settings: Settings, private_bus: PrivateBus
) -> None:
    scene.cluster.apiserver.pause()
    async with running(settings, private_bus.address) as scene.api:
        assert (await scene.api.status())["phase"] == "Idle"
        scene.cluster.resume()
        await scene.api.change("StartMaintenance", "sa{sv}", "the disks are swapped", {})
        await scene.until(
            lambda _: "MaintenanceInProgress" in scene.conditions(), "events are written after the outage"
        )
        await scene.api.request("StopMaintenance")
