# SPDX-License-Identifier: Apache-2.0
"""Soft reboots by another program in the middle of an update: the boot id stays, and all services start again."""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import POLICY_JSON, SIGNED
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import SOFT_REBOOT, Host
from integration.hosts.container.test_lease import START
from integration.hosts.container.test_reboot import UNLISTED
from integration.hosts.nodeagent_client import machine_config, outcomes, unit_events, wait_done, wait_phase

pytestmark = pytest.mark.finding(
    "OS: soft reboots",
    "After a soft reboot by another program, in any phase, the update ends well; what needs the kernel "
    "gets a full reboot.",
)

SLOW = "[Service]\nExecReload=/bin/sh -c 'while [ -e /run/hold ]; do sleep 0.05; done'\n"


def check(host: Host, count: int) -> None:
    """The agent came up, once, and knows how often the userspace was started again."""
    agent.wait_daemon(host)
    now = agent.status(host)
    assert (now["boot_id"], now["soft_reboots"]) == (host.boot_id, count)
    assert host.unit(agent.UNIT, "NRestarts", "ActiveState") == {"NRestarts": "0", "ActiveState": "active"}


def resumed(host: Host) -> list[str]:
    found = (entry["MESSAGE"] for entry in host.journal(agent.UNIT))
    return [text.rpartition(": ")[2] for text in found if text.endswith("after a soft reboot")]


@pytest.mark.long
def test_while_it_waits_acts_and_verifies(make_node: HostMaker) -> None:
    """Services are all that these configs need, so they need no reboot of ours."""
    node = make_node(settings={"actions": {"settle": 3}})
    first = node.boot_id
    node.run(START)
    agent.apply(node, machine_config("patient", files={POLICY_JSON: SIGNED}))
    wait_phase(node, "Leasing")
    node.soft_reboot()
    check(node, 1)
    wait_phase(node, "Leasing")
    node.write("/etc/systemd/system/crio.service.d/slow.conf", SLOW)
    node.run(["systemctl", "daemon-reload"])
    node.write("/run/hold", "")
    node.run(["nodeagent", "maintenance", "stop"])
    wait_phase(node, "Acting")
    node.soft_reboot()
    check(node, 2)
    wait_done(node, "patient")
    # The shutdown may end the reload before it ends the agent; the soft reboot is then the fallback.
    assert outcomes(node) in ([("patient", "done")], [("patient", "done-after-fallback")])
    assert unit_events(node, "crio.service")[-1] == "crio.service start", "with the new file, and not reloaded"
    node.run(["rm", "/run/hold"])  # /run outlives a soft reboot
    agent.apply(node, machine_config("next", files={POLICY_JSON: SIGNED + "\n"}))
    wait_phase(node, "Verifying")
    node.soft_reboot()
    check(node, 3)
    wait_done(node, "next")
    assert outcomes(node)[1:] == [("next", "done")]
    assert resumed(node) == [f"{what}, after a soft reboot" for what in ("start over", "verify", "verify")]
    assert (node.reboots, node.boot_id) == (0, first)


@pytest.mark.long
def test_while_a_planned_reboot_is_blocked(node: Host) -> None:
    """The kernel did not start again, so the reboot is still to come."""
    agent.block_reboots(node)
    agent.apply(node, machine_config("rebooted", files={UNLISTED: "name: rebooted\n"}))

    def blocked() -> bool:
        return bool(agent.status(node)["reason"] == "RebootBlocked")

    node.wait_for(blocked, "the agent says that it waits")
    with node.rebooting():
        node.run(SOFT_REBOOT)  # it takes the inhibitor with it
    wait_done(node, "rebooted")
    assert resumed(node) == ["reboot again, after a soft reboot"]
    assert (node.reboots, agent.status(node)["soft_reboots"]) == (1, 0)
    newest = agent.history(node)[0]
    assert (newest["outcome"], newest["reboots"]) == ("done", 1)
