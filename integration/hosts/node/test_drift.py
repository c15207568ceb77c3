# SPDX-License-Identifier: Apache-2.0
"""Drift of a node, as its cluster sees it: the condition `ConfigDrift` and its events appear and go."""

from __future__ import annotations

from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.node_host import NodeHost
from integration.hosts.nodeagent_client import machine_config, wait_done
from nodeagent.features.cluster.node_events import EVENTS

PATH = "/etc/containers/policy.json"
WANTED = '{"default": [{"type": "insecureAcceptAnything"}]}'


def condition(node: NodeHost) -> dict[str, Any]:
    found = node.cluster.admin.get(node.path)["status"]["conditions"]
    return next((each for each in found if each["type"] == "ConfigDrift"), {"status": "absent"})


def events(node: NodeHost) -> set[str]:
    found = node.cluster.admin.get(EVENTS)["items"]
    return {event["reason"] for event in found if event["regarding"]["name"] == node.node}


@pytest.mark.timeout(1200)
def test_the_condition_appears_and_goes(make_agent_node: NodeMaker) -> None:
    node = make_agent_node("drifting")
    agent.apply(node, machine_config("one", files={PATH: WANTED}))
    wait_done(node, "one")
    assert condition(node)["status"] in ("absent", "False")

    node.write(PATH, "{}")
    node.wait_for(lambda: condition(node)["status"] == "True", "the condition is there")
    assert f"file:{PATH} content differs" in condition(node)["message"]
    node.wait_for(lambda: "ConfigDrift" in events(node), "the event is there")
    since = condition(node)["lastTransitionTime"]

    # Another daemon compares again, and reports the same drift.
    node.run(["systemctl", "restart", "nodeagent.service"])
    agent.wait_daemon(node)
    node.wait_for(lambda: agent.status(node)["drift"], "the drift is found again")
    assert (condition(node)["status"], condition(node)["lastTransitionTime"]) == ("True", since)
    assert node.is_ready()

    node.write(PATH, WANTED)
    node.wait_for(lambda: condition(node)["status"] == "False", "the condition is gone")
    assert condition(node)["reason"] == "AsConfigured"
    node.wait_for(lambda: "ConfigDriftEnded" in events(node), "the event of the end is there")
