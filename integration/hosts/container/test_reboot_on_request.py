# SPDX-License-Identifier: Apache-2.0
"""Reboots on request of operators and files, on a real systemd: one for each request, wherever the agent is killed."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config

SENTINEL = "/run/nodeagent/reboot"
REQUIRED = "/run/reboot-required"
POLICY = agent.policy(files={"/etc/quiet": ["None"]})
CLOSED = {"windows": {"open": ["mon 00:00 1"], "zone": "UTC"}}


def with_config(make_node: HostMaker, **settings: Any) -> Host:
    host = make_node(files={agent.POLICY: POLICY})
    agent.apply(host, machine_config("one", files={"/etc/quiet": "1"}))
    agent.wait_done(host, "one")
    if settings:
        agent.settings(host, settings)
        host.run(["systemctl", "reload", "nodeagent"])
    return host


def rested(host: Host) -> dict[str, Any]:
    def rest() -> dict[str, Any] | None:
        status = agent.status(host)
        return status if status["phase"] == "Idle" and status["reboot_request"] is None else None

    status = host.wait_for(rest, "the request is answered")
    assert status["lease"] is None
    return status


def assert_one_reboot(host: Host, requester: str) -> None:
    rested(host)
    entry = agent.history(host)[0]
    assert (entry["outcome"], entry["disruption"], entry["reboots"]) == ("done", "reboot", 1)
    assert (entry["from_name"], entry["to_name"]) == ("one", "one")
    assert requester in entry["message"]
    time.sleep(2)
    assert host.reboots == 1
    assert agent.outcomes(host).count(("one", "done")) == 2


def test_now_is_one_reboot_outside_of_windows(make_node: HostMaker) -> None:
    host = with_config(make_node, **CLOSED)
    with host.rebooting():
        host.run(["nodeagent", "reboot", "--now", "--reason", "a new kernel", "--json"])
    assert_one_reboot(host, "reboot requested by root: a new kernel")
    assert host.exists("/etc/quiet")


@pytest.mark.long
def test_a_time_and_a_window_hold_it_and_it_is_cancelled(make_node: HostMaker) -> None:
    host = with_config(make_node, **CLOSED)
    answer: dict[str, Any] = {}
    for option, reason in ((["--request"], "WindowClosed"), (["--at", "tomorrow 02:00"], "Scheduled")):
        answer = json.loads(host.run(["nodeagent", "reboot", *option, "--json"]).stdout)
        assert answer["outcome"] == "accepted"

        def waits(reason: str = reason) -> bool:
            return reason in str((agent.status(host)["reboot_request"] or {}).get("message"))

        host.wait_for(waits, f"it waits: {reason}")
    assert "root" in host.run(["nodeagent", "status"]).stdout
    host.run(["systemctl", "restart", "nodeagent"])
    agent.wait_daemon(host)
    assert agent.status(host)["reboot_request"]["id"] == answer["request"]
    assert json.loads(host.run(["nodeagent", "cancel", "--json"]).stdout)["reboot"]
    assert agent.status(host)["reboot_request"] is None
    for refused in (["--at", "yesterday"], ["--now", "--request"], ["--reason", "x"], ["--now", "--reason", "a\nb"]):
        done = host.run(["nodeagent", "reboot", *refused, "--yes"], check=False)
        assert done.returncode == 2, f"{refused}: {done.stderr}"
    assert host.reboots == 0


@pytest.mark.long
def test_a_file_of_root_requests_one_reboot(make_node: HostMaker) -> None:
    host = with_config(make_node)
    host.run(["install", "-m", "0666", "/dev/null", SENTINEL])

    def refused() -> bool:
        return "RebootFileUnsafe" in {problem["reason"] for problem in agent.status(host)["problems"]}

    host.wait_for(refused, "a file that others can write is refused")
    with host.rebooting():
        host.write(SENTINEL, "driver update\n")
    assert_one_reboot(host, f"reboot requested by {SENTINEL}: driver update")
    # Another one so soon may be a loop.
    host.write(SENTINEL, "driver update\n")

    def too_soon() -> bool:
        return "RebootTooSoon" in {problem["reason"] for problem in agent.status(host)["problems"]}

    host.wait_for(too_soon, "another one so soon is held")
    assert host.reboots == 1


@pytest.mark.long
def test_what_the_host_requires_is_shown_and_obeyed_where_a_setting_says_so(make_node: HostMaker) -> None:
    host = with_config(make_node)
    host.write(f"{REQUIRED}.pkgs", "linux-image\nlinux-image\ndbus\n")
    host.write(REQUIRED, "*** System restart required ***\n")
    host.wait_for(lambda: agent.status(host)["reboot_required"], "it is shown")
    assert agent.status(host)["reboot_required"] == {"packages": ["linux-image", "dbus"]}
    assert "linux-image" in host.run(["nodeagent", "status"]).stdout
    with host.rebooting():
        agent.settings(host, {"reboot": {"when_required": "obey"}})
        host.run(["systemctl", "reload", "nodeagent"])
    assert_one_reboot(host, f"reboot requested by {REQUIRED}: linux-image, dbus")
    assert agent.status(host)["reboot_required"] is None


@pytest.mark.long
@pytest.mark.parametrize("moment", [0.0, 0.05, 0.2, 0.5, 1.0])
def test_killed_at_awkward_points_it_is_one_reboot(make_node: HostMaker, moment: float) -> None:
    host = with_config(make_node)
    agent.block_reboots(host)
    host.run(["nodeagent", "reboot", "--now", "--yes"])
    time.sleep(moment)
    host.kill(agent.UNIT)
    agent.wait_daemon(host)
    agent.wait_phase(host, "Rebooting")
    host.kill(agent.UNIT)
    agent.wait_daemon(host)
    with host.rebooting():
        agent.unblock_reboots(host)
    host.kill(agent.UNIT)
    assert_one_reboot(host, "reboot requested by root")


@pytest.mark.long
def test_a_unit_that_does_not_come_back_leaves_the_host_degraded(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: POLICY})
    unit = agent.UnitSpec("[Service]\nExecStart=/bin/sleep 1d\n[Install]\nWantedBy=multi-user.target\n", enabled=True)
    config = machine_config("one", units={"app.service": unit})
    agent.apply(host, config)
    agent.wait_done(host, "one")
    host.write("/etc/systemd/system/app.service.d/50-bad.conf", "[Service]\nExecStartPre=/bin/false\n")
    reboots = host.reboots
    with host.rebooting():
        host.run(["nodeagent", "reboot", "--now", "--yes"])
    status = agent.wait_phase(host, "Degraded")
    assert "app.service" in status["message"]
    assert (host.reboots, agent.history(host)[0]["outcome"]) == (reboots + 1, "degraded")
    # An operator who has repaired it applies the config again.
    host.run(["rm", "/etc/systemd/system/app.service.d/50-bad.conf"])
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "restart", "app.service"])
    agent.apply(host, config)
    rested(host)
    assert host.unit("app.service", "ActiveState")["ActiveState"] == "active"
