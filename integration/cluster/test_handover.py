# SPDX-License-Identifier: Apache-2.0
"""A node of a machine-config-operator's pool is handed over to nodeagent, and back, by the annotations that the
machine-config-daemon and its controller left, and by the files on the host."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.controller import CONFIGS, Controller
from integration.cluster.test_handshake import Driven, at, client, controller, host, hurry, until
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.config.parse import parse
from nodeagent.features.mcd_import import files as left_files
from nodeagent.kube.client import KubeClient
from nodeagent.update.next.preflight import Desired

__all__ = ["client", "controller", "host", "hurry"]

NODEAGENT = "nodeagent.org/"


class HandedOver(Driven):
    """A host with the files of a machine-config-daemon below ``root``."""

    root: Path

    async def _adopted(self) -> Desired | None:
        # As the daemon: only a store without a current config.
        found = await asyncio.to_thread(left_files.current_config, str(self.root))
        return None if found is None else Desired(found, parse(found.text))


@pytest.fixture
def handed_over(client: KubeClient, node: str, tmp_path: Path) -> HandedOver:
    made = HandedOver(client, node)
    made.root = tmp_path
    (tmp_path / left_files.CURRENT_CONFIG[1:]).parent.mkdir(parents=True)
    return made


@pytest.fixture
async def left(
    cluster: Cluster, node: str, controller: Controller, handed_over: HandedOver
) -> AsyncIterator[tuple[str, str]]:
    """What the daemon leaves on a node that is done with the first of two configs."""
    first, second = f"rendered-{node}-1", f"rendered-{node}-2"
    controller.make(first, app="1")
    controller.make(second, app="2")
    uncordon = f"uncordon-{first}"
    controller.annotate(
        currentConfig=first,
        desiredConfig=first,
        state="Done",
        reason="",
        desiredDrain=uncordon,
        lastAppliedDrain=uncordon,
    )
    config = cluster.admin.get(f"{CONFIGS}/{first}")
    (handed_over.root / left_files.CURRENT_CONFIG[1:]).write_text(json.dumps(config))
    handed_over.world.disk["/etc/app"] = RegularFile(b"1")
    yield first, second


async def test_over_and_back(
    left: tuple[str, str], handed_over: HandedOver, controller: Controller, tmp_path: Path
) -> None:
    first, second = left
    host = handed_over
    async with host.running(), controller.running():
        await until(lambda: host.world.current != "")
        await until(at(controller, first))
        assert host.actions() == [], "the config is in force already"
        assert not controller.node()["spec"].get("unschedulable")
        controller.desire(second)
        await until(at(controller, second))
        assert host.actions() == ["restart app.service"]
    # What the machine-config-daemon requires of a node at rest: nothing is under way, and nothing is requested.
    notes = controller.notes()
    assert (notes["currentConfig"], notes["desiredConfig"], notes["state"]) == (second, second, "Done")
    assert notes["desiredDrain"] == notes["lastAppliedDrain"] == f"uncordon-{second}"
    found = controller.node()
    assert not found["spec"].get("unschedulable")
    assert [key for key in found["metadata"]["annotations"] if key.startswith(NODEAGENT)] == []
    # Its file is what the page says to write: the current config of nodeagent as JSON.
    source = host.world.configs[host.world.current]
    assert isinstance(source, ConfigSource)
    document = json.loads(source.text)
    assert (document["kind"], document["metadata"]["name"]) == ("MachineConfig", second)
    back = tmp_path / left_files.CURRENT_CONFIG[1:]
    back.write_text(json.dumps(document))
    adopted = left_files.current_config(str(tmp_path))
    assert adopted is not None
    assert adopted.name == second


async def test_a_fresh_node_waits_for_its_first_config(host: Driven, node: str, controller: Controller) -> None:
    """Of a pool whose controller gives it none: a Node without currentConfig counts as unavailable there."""
    first = f"rendered-{node}-first"
    controller.make(first, quiet="1")
    async with host.running(), controller.running():
        await asyncio.wait_for(host.shake.desired(), 180)
        assert host.world.current == ""
        assert "currentConfig" not in controller.notes()
        controller.desire(first)
        await until(at(controller, first))
