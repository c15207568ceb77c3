# SPDX-License-Identifier: Apache-2.0
"""A manifest that an operator owns, with a real kubelet and a real etcd: watched, guarded and never written."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.node_host import MANIFESTS
from integration.hosts.node.test_static_pods import ADDRESS, PATH, hidden, put, uids, wait_ready
from integration.hosts.node.workloads import etcd_pod
from integration.hosts.nodeagent_client import machine_config, wait_done, wait_phase

OTHER = "/etc/containers/policy.json"
ANY_IMAGE = '{"default": [{"type": "insecureAcceptAnything"}]}'


def revision(number: int) -> str:
    """Return the manifest with the namespace and the label of cluster-etcd-operator."""
    pod = etcd_pod("one", ADDRESS)
    pod["metadata"] |= {"namespace": "openshift-etcd", "labels": {"revision": str(number)}}
    pod["spec"]["containers"][0]["command"].append(f"--max-txn-ops={100 + number}")
    return json.dumps(pod)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_revisions_of_an_operator_are_watched_and_never_written(make_agent_node: NodeMaker) -> None:
    node = make_agent_node("owned-manifest")
    node.run(["mkdir", "-p", MANIFESTS])
    put(node, revision(1))
    wait_ready(node)
    first = uids(node)

    # The manifest as it is on the host is accepted, and its pod goes on.
    agent.apply(node, machine_config("watched", files={PATH: revision(1)}))
    wait_done(node, "watched", agent.REBOOT_TIMEOUT)
    assert (uids(node), agent.status(node)["drift"]) == (first, [])

    # The operator writes its next revision: drift, which blocks no update and is not overwritten.
    put(node, revision(2))
    node.wait_for(lambda: PATH in str(agent.status(node)["drift"]), "the revision is reported", agent.REBOOT_TIMEOUT)
    node.wait_for(lambda: len(uids(node)) == 1 and uids(node) != first, "the pod of the operator runs", 180)
    wait_ready(node)
    second = uids(node)
    agent.apply(node, machine_config("more", files={PATH: revision(1), OTHER: ANY_IMAGE}))
    wait_done(node, "more", agent.REBOOT_TIMEOUT)
    assert (node.read_text(PATH), uids(node)) == (revision(2), second)

    # A revision of the config's own is rejected.
    agent.write_desired(node, machine_config("ours", files={PATH: revision(3), OTHER: ANY_IMAGE}))
    wait_phase(node, "Degraded", reason="StaticPodOwned")
    assert (node.read_text(PATH), uids(node)) == (revision(2), second)

    # The config drops the manifest, and the file stays.
    agent.apply(node, machine_config("dropped", files={OTHER: ANY_IMAGE}))
    wait_done(node, "dropped", agent.REBOOT_TIMEOUT)
    assert (node.read_text(PATH), uids(node)) == (revision(2), second)
    assert (hidden(node), node.reboots) == (["etcd.yaml"], 0)

    # Its member is guarded as any other.
    agent.apply(node, machine_config("reboot", files={OTHER: ANY_IMAGE, "/etc/unlisted": "1"}))
    wait_phase(node, "Leasing", reason="EtcdNotRedundant")
    assert node.reboots == 0
