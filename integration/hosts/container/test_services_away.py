# SPDX-License-Identifier: Apache-2.0
"""A service of the host that is hung, killed or stopped in the middle of an update: the update waits for it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, outcomes, wait_done, wait_phase

UNLISTED = "/etc/unlisted.conf"  # in no policy, so its change asks for a reboot
RELOADABLE = "/etc/reloadable.conf"
POLICY = agent.policy(files={RELOADABLE: ["Restart reloadable.service"]})


def pid_of(host: Host, unit: str) -> int:
    """Known from the cgroup, so that no service has to answer."""
    return int(host.read_text(f"/sys/fs/cgroup/system.slice/{unit}/cgroup.procs").split()[0])


def wait_reason(host: Host, *reasons: str, timeout: float = agent.DONE_TIMEOUT) -> dict[str, Any]:
    def there() -> dict[str, Any] | None:
        status = agent.status(host)
        return status if status["reason"] in reasons else None

    return host.wait_for(there, f"the status says {reasons}", timeout)


def assert_rebooted_once(host: Host) -> None:
    wait_done(host, "rebooted")
    assert (outcomes(host), host.reboots) == ([("rebooted", "done")], 1)
    assert host.read_text(UNLISTED) == "name: rebooted\n"
    assert agent.status(host)["lease"] is None


@pytest.mark.long
@pytest.mark.finding(
    "services: away for a while",
    "A logind that is killed, hangs, or lost the bus while a reboot is requested delays the reboot and nothing else.",
)
def test_a_logind_that_hangs_and_is_killed_while_the_agent_waits_for_it(node: Host) -> None:
    """The lost answer was Degraded at once, with the config rejected and the lease kept."""
    agent.block_reboots(node)
    agent.apply(node, machine_config("rebooted", files={UNLISTED: "name: rebooted\n"}))
    wait_reason(node, "RebootBlocked")
    logind = pid_of(node, "systemd-logind.service")
    node.kill(logind, "SIGSTOP")
    time.sleep(2.5)  # the agent asks every two seconds who blocks the reboot
    node.kill(logind)
    warning = {"MESSAGE": "trying again"}
    node.wait_for(
        lambda: any(warning["MESSAGE"] in entry["MESSAGE"] for entry in node.journal(agent.UNIT)), "it is a warning"
    )
    assert agent.status(node)["phase"] == "Rebooting"
    with node.rebooting():
        agent.unblock_reboots(node)
    assert_rebooted_once(node)


@pytest.mark.finding(
    "services: away for a while",
    "A logind that is killed, hangs, or lost the bus while a reboot is requested delays the reboot and nothing else.",
)
@pytest.mark.long
@pytest.mark.slow
def test_a_logind_that_hangs_for_longer_than_a_call(node: Host) -> None:
    agent.apply(node, machine_config("first", files={UNLISTED: "name: first\n"}))
    wait_done(node, "first", agent.REBOOT_TIMEOUT)
    agent.block_reboots(node)
    agent.apply(node, machine_config("rebooted", files={UNLISTED: "name: rebooted\n"}))
    wait_reason(node, "RebootBlocked")
    logind = pid_of(node, "systemd-logind.service")
    node.kill(logind, "SIGSTOP")
    status = wait_reason(node, "BusTimeout")
    assert status["phase"] == "Rebooting"
    assert "systemd-logind" in status["message"]
    with node.rebooting(60):
        agent.unblock_reboots(node)
        node.kill(logind, "SIGCONT")
    wait_done(node, "rebooted")
    assert outcomes(node) == [("first", "done"), ("rebooted", "done")]


@pytest.mark.finding(
    "services: away for a while",
    "A logind that is killed, hangs, or lost the bus while a reboot is requested delays the reboot and nothing else.",
)
@pytest.mark.long
@pytest.mark.slow
def test_a_bus_that_is_restarted_before_a_reboot(node: Host) -> None:
    """Logind does not answer for half a minute after it."""
    node.run(["systemctl", "restart", "dbus.service"])
    with node.rebooting(120):
        agent.write_desired(node, machine_config("rebooted", files={UNLISTED: "name: rebooted\n"}))
    assert_rebooted_once(node)


def without_bus(host: Host, seconds: float) -> None:
    host.run(["systemctl", "stop", "dbus.socket", "dbus.service"])
    time.sleep(seconds)
    host.run(["systemctl", "start", "dbus.socket", "dbus.service"])


@pytest.mark.long
@pytest.mark.finding(
    "services: results that were lost",
    "A bus that is stopped while units are verified delays the update and nothing else.",
)
@pytest.mark.parametrize("seconds", [12, 50])
def test_a_bus_that_is_away_while_units_are_verified(make_node: HostMaker, seconds: float) -> None:
    """After ten seconds the config was judged bad, and the revert failed as well."""
    host = make_node(files={agent.POLICY: POLICY}, settings={"actions": {"settle": 2}})
    agent.apply(host, machine_config("wanted", files={RELOADABLE: "wanted"}))
    wait_phase(host, "Verifying")
    without_bus(host, seconds)
    status = wait_done(host, "wanted", agent.DONE_TIMEOUT + seconds)
    assert (status["lease"], outcomes(host), host.reboots) == (None, [("wanted", "done")], 0)
    assert host.read_text(RELOADABLE) == "wanted"
    assert agent.unit_events(host, "reloadable.service").count("reloadable.service start") == 2
