# SPDX-License-Identifier: Apache-2.0
"""The option of a request, and which hosts have the feature."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from nodeagent.door import Base, Feature
from nodeagent.errors import InvalidInput
from nodeagent.features.busy_pods import OPTIONS
from nodeagent.features.busy_pods.door import DOOR, begins, read
from nodeagent.features.busy_pods.settings import BusyPodSettings
from nodeagent.settings.cluster import ClusterSettings
from nodeagent.settings.schema import Settings


def test_the_only_value_is_evict() -> None:
    assert read("evict") == {"busy_pods": "evict"}
    assert begins(read("evict")) == " without waiting for busy pods"
    with pytest.raises(InvalidInput, match="must be evict, and not 'wait'") as raised:
        read("wait")
    assert raised.value.reason == "BadBusyPods"
    assert [option.names for option in OPTIONS] == [("busy_pods",)]


@pytest.mark.parametrize(("options", "taken"), [({}, True), ({"busy_pods": ""}, True), ({"busy_pods": "no"}, False)])
def test_a_client_of_the_bus_is_checked_as_well(options: dict[str, str], taken: bool) -> None:
    assert DOOR.check_request is not None
    if taken:
        DOOR.check_request(options)
        return
    with pytest.raises(InvalidInput):
        DOOR.check_request(options)


class Notes:
    """Implements ``ports.store.Notes``, and counts what is read."""

    def __init__(self) -> None:
        self.reads = 0

    async def note(self, _key: str) -> str:
        self.reads += 1
        return ""


def opened(settings: Settings, notes: Notes) -> Feature:
    base: dict[str, Any] = {given.name: None for given in fields(Base)}
    power = SimpleNamespace(power=SimpleNamespace(boot_id=lambda: "b"))
    assert DOOR.open is not None
    return DOOR.open(Base(**{**base, "settings": settings, "ports": power, "store": notes}))


async def test_only_a_host_in_a_cluster_has_it() -> None:
    notes = Notes()
    assert opened(Settings(), notes) == Feature()
    feature = opened(Settings(cluster=ClusterSettings(kubeconfig="/k")), notes)
    assert feature.guard is not None
    await feature.guard.permit_begin("update to a", {})
    assert notes.reads == 0, "without selectors"
    feature.use(Settings(parts=(BusyPodSettings(selectors=("a",)),)))
    await feature.guard.permit_begin("update to a", {})
    assert notes.reads == 1
