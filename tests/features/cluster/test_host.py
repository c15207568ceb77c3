# SPDX-License-Identifier: Apache-2.0
"""What a node of a cluster gets of the feature. No request is sent: the kubeconfig does not exist."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import pytest

from nodeagent.agent import compose
from nodeagent.agent.report.report import Report
from nodeagent.core.coordination.lease import Claim
from nodeagent.door import Base, Feature
from nodeagent.errors import Terminal
from nodeagent.features.cluster.controller_drain import EitherDrain
from nodeagent.features.cluster.decide.lease import LeaseToken
from nodeagent.features.cluster.door import DOOR
from nodeagent.features.cluster.drain import KubeNode
from nodeagent.features.cluster.lease import TOKEN_NOTE, StoredToken
from nodeagent.features.cluster.settings import NodeDrainSettings
from nodeagent.host.clock import SystemClock
from nodeagent.host.store.store import SqliteStore
from nodeagent.report.status import Status
from nodeagent.settings.cluster import ClusterSettings
from nodeagent.settings.schema import Settings
from nodeagent.update.ports.events import DaemonStarted, Event
from nodeagent.update.stages.coordination import Coordination

MACHINE_ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def machine_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "machine-id"
    path.write_text(MACHINE_ID + "\n")
    monkeypatch.setattr(compose, "MACHINE_ID", path)
    return path


def opened(directory: Path, settings: Settings) -> tuple[Feature, Coordination]:
    store, clock, report = SqliteStore(directory / "s/state.db"), SystemClock(), Report(Status())
    api = compose.connect(settings, clock)
    coordination, backend = compose.coordinate(settings, store, clock, api, report)
    # The others are not used.
    parts: dict[str, Any] = dict.fromkeys(field.name for field in fields(Base))
    parts |= {"settings": settings, "store": store, "clock": clock, "reporter": report}
    parts |= {"coordination": coordination, "backend": backend, "shown": lambda: report.status}
    base = Base(**parts)
    assert DOOR.open is not None
    return DOOR.open(base), coordination


def test_a_host_alone_has_nothing_of_it(tmp_path: Path) -> None:
    feature, coordination = opened(tmp_path, Settings())
    assert (feature, coordination.lease.backend, coordination.node) == (Feature(), "local", None)


def test_in_a_cluster(tmp_path: Path) -> None:
    settings = Settings(node_name="worker-1", cluster=ClusterSettings(kubeconfig="/nowhere"))
    feature, coordination = opened(tmp_path, settings)
    assert (coordination.lease.backend, coordination.slot) == ("kubernetes", None)
    assert isinstance(coordination.node, KubeNode)
    assert coordination.gates is not None
    assert (feature.desired, len(feature.sinks)) == (None, 1)


def test_a_service_account_is_enough(tmp_path: Path) -> None:
    _, coordination = opened(tmp_path, Settings(cluster=ClusterSettings(service_account="/nowhere")))
    assert coordination.lease.backend == "kubernetes"


@pytest.mark.parametrize(("by", "controller"), [("auto", None), ("self", False), ("controller", True)])
def test_a_controller_may_drain_where_the_cluster_is_the_source(
    tmp_path: Path, by: Literal["auto", "self", "controller"], controller: bool | None
) -> None:
    settings = ClusterSettings(kubeconfig="/nowhere", source="cluster")
    feature, coordination = opened(tmp_path, Settings(cluster=settings))
    assert isinstance(coordination.node, EitherDrain)
    feature.use(Settings(cluster=settings, parts=(NodeDrainSettings(by=by),)))
    assert coordination.node.controller is controller


def test_the_cluster_desires_a_config(tmp_path: Path) -> None:
    feature, _ = opened(tmp_path, Settings(cluster=ClusterSettings(kubeconfig="/nowhere", source="cluster")))
    assert (feature.desired is not None, len(feature.sinks)) == (True, 2)
    assert feature.desired is not None
    assert feature.desired.retry("worker") == "nodeagent.org/retry=worker on the Node"
    assert feature.desired.complete("rendered-worker-1")
    assert not feature.desired.complete("99-worker")


def test_a_sink_takes_the_status_at_the_start(tmp_path: Path) -> None:
    feature, _ = opened(tmp_path, Settings(cluster=ClusterSettings(kubeconfig="/nowhere", source="cluster")))
    event: Event = DaemonStarted("1")
    for sink in feature.sinks:
        sink(event, Status(current="a", current_digest="b"))
    reports = next(sink.__self__ for sink in feature.sinks if type(sink.__self__).__name__ == "ClusterReporter")
    assert reports._state.progress is not None
    assert not reports._queue


def test_a_host_without_a_machine_id_joins_no_fleet(tmp_path: Path, machine_id: Path) -> None:
    machine_id.write_text("uninitialized")
    with pytest.raises(Terminal) as caught:
        opened(tmp_path, Settings(cluster=ClusterSettings(kubeconfig="/a")))
    assert caught.value.reason == "NoMachineId"


async def test_the_token_of_a_lease_outlives_the_process(tmp_path: Path) -> None:
    token = LeaseToken(Claim("nodeagent", "u1", "update", "host-a"), "uid", 3)
    async with SqliteStore(tmp_path / "s/state.db") as store:
        kept = StoredToken(store)
        assert await kept.load() is None
        await kept.save(token)
    async with SqliteStore(tmp_path / "s/state.db") as store:
        kept = StoredToken(store)
        assert await kept.load() == token
        await kept.save(None)
        assert await kept.load() is None
        await store.keep_note(TOKEN_NOTE, '{"uid": 1}')
        with pytest.raises(Terminal) as caught:
            await kept.load()
        assert caught.value.reason == "StoreCorrupt"
