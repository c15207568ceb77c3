# SPDX-License-Identifier: Apache-2.0
"""The course of an update on a real host: over a fallback reboot, a power cut, and without the daemon."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import HOLD, SLOW
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.container.test_fallback import apply_and_reboot, flaky, started


def course(host: Host) -> dict[str, Any]:
    """Return the newest update with its trail, by the bus."""
    argv = ["busctl", "--json=short", "call", "org.nodeagent.Agent1", "/org/nodeagent/Agent1"]
    answer = host.run([*argv, "org.nodeagent.Agent1.Manager", "Update", "s", ""]).stdout
    found: dict[str, Any] = json.loads(json.loads(answer)["data"][0])
    return found


@pytest.mark.long
def test_a_fallback_reboot_is_in_both_boots(make_node: HostMaker) -> None:
    host = started(make_node, {})
    # Without it, systemd may stop the agent some milliseconds after logind's answer, before that is recorded.
    delay = ["systemd-inhibit", "--what=shutdown", "--mode=delay", "sleep", "infinity"]
    host.run(["systemd-run", "--unit=delay.service", *delay])
    host.wait_for(lambda: "delay" in host.run(["systemd-inhibit", "--list"]).stdout, "the shutdown is delayed")
    apply_and_reboot(host, flaky("late", "fail until-reboot"))
    agent.wait_done(host, "late")
    found = course(host)
    trail = found["trail"]
    assert [boot["id"] for boot in trail["boots"]] == [boot.boot_id for boot in host.boots[-2:]]
    assert [phase["name"] for phase in trail["phases"]] == [
        *("Leasing", "Writing", "Acting", "Rebooting", "Verifying", "Releasing")
    ]
    assert [phase["boot"] for phase in trail["phases"]] == [0, 0, 0, 0, 1, 1]
    assert trail["boots"][0]["accepted"] is not None
    (step,) = [step for step in trail["steps"] if step["result"] == "failed"]
    assert step["name"] == "restart flaky.service"
    assert found["plan"]["actions"] == ["Restart flaky.service"]
    assert abs(found["seconds"] - agent.history(host)[0]["seconds"]) < 0.001
    # The page has the same numbers with the daemon and without it.
    page = host.run(["nodeagent", "report", "--html", "-"]).stdout
    assert "after a reboot that was not planned" in page
    # It was out of service for longer than the usual way takes, from the failed restart on.
    assert "Compared with" not in page
    host.run(["systemctl", "stop", agent.UNIT])
    assert host.run(["nodeagent", "report", found["update_id"][:8], "--html", "-"]).stdout == page


@pytest.mark.long
def test_a_power_cut_during_an_action_loses_nothing_before_it(make_node: HostMaker) -> None:
    policy = agent.policy(files={"/etc/slow.conf": ["Restart slow.service"]})
    files = {agent.POLICY: policy, "/etc/systemd/system/slow.service": SLOW}
    host = make_node(files=files, settings={"actions": {"timeout": 30, "settle": 1}})
    host.run(["systemctl", "start", "slow.service"])
    host.write(HOLD, "")
    agent.apply(host, agent.machine_config("one", files={"/etc/slow.conf": "1"}))
    host.wait_for(lambda: host.unit("slow.service", "ActiveState") == {"ActiveState": "activating"}, "it restarts")
    host.power_cut()
    agent.wait_daemon(host)
    agent.wait_done(host, "one")
    trail = course(host)["trail"]
    assert len(trail["boots"]) == 2
    assert trail["boots"][0]["accepted"] is None
    assert [phase["name"] for phase in trail["phases"] if phase["boot"] == 0] == ["Leasing", "Writing", "Acting"]
    assert all(phase["seconds"] is not None for phase in trail["phases"])
    # The restart was under way when the power went.
    assert [step["result"] for step in trail["steps"] if step["boot"] == 0] == [""]
