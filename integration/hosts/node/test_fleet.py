# SPDX-License-Identifier: Apache-2.0
"""Three nodes with a member of etcd each: changes go through the fleet one node at a time, and clients keep working."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.cluster.cluster import Cluster
from integration.hosts.container.image import Image
from integration.hosts.node.controllers import Controllers
from integration.hosts.node.fleet import NODES, Fleet
from integration.hosts.node.node_programs import ETCD_NEXT, NodePrograms
from integration.hosts.node.rollout import Observed, roll, violations

LONGEST = 10.0  # seconds for a request of a client on a busy machine; a tenth of that on an idle one


def check(seen: Observed, *, reboots: int) -> None:
    print(seen)
    assert violations(seen) == []
    assert seen.reboots == reboots
    assert seen.etcd.requests > 10
    assert seen.service.requests > 10
    assert max(seen.etcd.longest, seen.service.longest) < LONGEST


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_changes_go_through_a_control_plane_one_node_at_a_time(
    installed: Cluster, agent_image: Image, programs: NodePrograms, controllers: Controllers, api_relay: Path
) -> None:
    with Fleet(installed, agent_image, programs, api_relay) as fleet:
        fleet.wait_up()
        fleet.deploy()
        roll(fleet, "one")
        before = {name: host.container_ids() for name, host in fleet.hosts.items()}
        check(roll(fleet, "kubelet", pods=42), reboots=0)
        assert {name: host.container_ids() for name, host in fleet.hosts.items()} == before
        check(roll(fleet, "etcd", pods=42, image=ETCD_NEXT), reboots=0)
        check(roll(fleet, "reboot", pods=42, image=ETCD_NEXT, release="2"), reboots=len(NODES))
