# SPDX-License-Identifier: Apache-2.0
"""The adapters of a cluster as the settings make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodeagent.features.cluster.backend import Cluster
from nodeagent.features.cluster.decide.drain import DrainPolicy
from nodeagent.features.cluster.decide.drain_order import DrainOrder
from nodeagent.features.cluster.settings import NodeDrainSettings
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.settings.schema import Settings
from tests.kube.test_client import Clock, kubeconfig


def cluster(directory: Path, **drain: Any) -> Cluster:
    settings = Settings()
    about = msgspec.structs.replace(
        settings.cluster, source="cluster", kubeconfig=str(kubeconfig(directory, "http://127.0.0.1:1", token="t"))
    )
    settings = msgspec.structs.replace(settings, node_name="n", cluster=about, parts=(NodeDrainSettings(**drain),))
    tokens: Any = object()
    clock = Clock()
    access = ClusterAccess(about.kubeconfig, private=str(directory))
    return Cluster(settings, KubeClient(access, clock), tokens, clock, instance="i", report=lambda _: None)


@pytest.mark.parametrize(("by", "controller"), [("auto", None), ("self", False), ("controller", True)])
async def test_the_first_drain_is_as_set(tmp_path: Path, by: str, controller: bool | None) -> None:
    """Not only one after a reload of the settings."""
    made = cluster(tmp_path, by=by, lead_time=60.0, first=("first",), last=("last",))
    assert made.drains.policy == DrainPolicy(
        made.drains.policy.unmanaged, made.drains.policy.local_data, 60.0, DrainOrder(("first",), ("last",))
    )
    assert made._either is not None
    assert made._either.controller is controller
    await made.client.close()
