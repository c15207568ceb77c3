# SPDX-License-Identifier: Apache-2.0
"""A configuration of the kubelet by key on a host: what is refused, what restarts, and what is removed in between."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.errors import CommandFailed
from integration.hosts.nodeagent_client import machine_config, unit_events, wait_done

CONF = "/etc/kubernetes/kubelet.conf"
DROPIN = "/etc/kubernetes/kubelet.conf.d/10-host.conf"
STATE = "/var/lib/kubelet/cpu_manager_state"
RESERVED = {"systemReserved": {"cpu": "100m"}}
# Ends as the dry run of a kubelet does, and refuses a file with a certain word.
KUBELET = """#!/bin/sh
for word; do case $word in --config=*) file=${word#--config=};; esac; done
why="cannot exit on lock file contention: no lock file specified"
grep -q refusedKey "$file" && why="failed to load kubelet config file, path: $file, error: refusedKey"
echo "E1123 10:00:00.000000 1 run.go:72] \\"command failed\\" err=\\"$why\\"" >&2
exit 1
"""


def document(**keys: Any) -> str:
    return json.dumps({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **keys})


def apply(node: Host, name: str, **keys: Any) -> list[str]:
    """Returns what the kubelet saw of the update."""
    before = len(node.events())
    agent.apply(node, machine_config(name, files={CONF: document(**keys)}))
    wait_done(node, name)
    return unit_events(node, "kubelet.service", since=before)


def test_a_configuration_of_the_kubelet_by_key(node: Host) -> None:
    node.write("/usr/bin/kubelet", KUBELET, mode=0o755)
    node.write(DROPIN, document(logging={"verbosity": 3}))
    first = apply(node, "first", maxPods=100, **RESERVED)
    assert first.count("kubelet.service start") == 1

    # A log level that a drop-in of the host overrides changes nothing; more pods need a restart.
    assert apply(node, "overridden", maxPods=100, logging={"verbosity": 5}, **RESERVED) == []
    assert apply(node, "more", maxPods=110, logging={"verbosity": 5}, **RESERVED).count("kubelet.service start") == 1

    node.write(STATE, '{"policyName":"none"}')
    seen = apply(node, "static", maxPods=110, cpuManagerPolicy="static", **RESERVED)
    assert seen == ["kubelet.service stop", "kubelet.service start"]
    assert not node.exists(STATE)

    for name, keys, word in (
        ("refused", {"refusedKey": 1}, "refuses"),
        ("beyond", {"systemReserved": {"cpu": "4000"}}, "4000"),
    ):
        with pytest.raises(CommandFailed, match=word):
            agent.apply(node, machine_config(name, files={CONF: document(**keys)}))
    assert json.loads(node.read_text(CONF))["cpuManagerPolicy"] == "static"
    assert node.reboots == 0


@pytest.mark.long
def test_the_kubelet_runs_while_an_inhibitor_blocks_the_reboot(node: Host) -> None:
    node.write("/usr/bin/kubelet", KUBELET, mode=0o755)
    apply(node, "first", **RESERVED)
    node.write(STATE, '{"policyName":"none"}')
    agent.block_reboots(node)
    files = {CONF: document(cpuManagerPolicy="static", **RESERVED), "/etc/kubernetes/unlisted.conf": "x\n"}
    agent.apply(node, machine_config("static", files=files))
    node.wait_for(lambda: agent.status(node)["reason"] == "RebootBlocked", "the reboot is blocked")
    assert node.unit("kubelet.service", "ActiveState") == {"ActiveState": "active"}
    assert node.exists(STATE)
    with node.rebooting():
        agent.unblock_reboots(node)
    wait_done(node, "static")
    assert not node.exists(STATE)
    assert node.unit("kubelet.service", "ActiveState") == {"ActiveState": "active"}
    assert node.reboots == 1
