# SPDX-License-Identifier: Apache-2.0
"""Freezes and windows on a real systemd: what waits, what an operator begins, and what the history changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, outcomes, wait_done, wait_phase

POLICY = agent.policy(files={"/etc/quiet": ["None"]})


def use(host: Host, **windows: Any) -> None:
    agent.settings(host, {"windows": windows})
    host.run(["systemctl", "reload", agent.UNIT])


def config(name: str, quiet: str, unlisted: str = "") -> str:
    """A change of the second file reboots."""
    return machine_config(name, files={"/etc/quiet": quiet, **({"/etc/unlisted": unlisted} if unlisted else {})})


def date(host: Host, when: str, form: str) -> str:
    return host.run(["date", "-u", "-d", when, f"+{form}"]).stdout.strip().lower()


@pytest.mark.long
@pytest.mark.slow
def test_a_freeze_and_a_window_that_is_too_short(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: POLICY})
    agent.write_desired(host, config("one", "1"))
    wait_done(host, "one")
    reboots = host.reboots

    days = date(host, "now", "%Y-%m-%d") + ".." + date(host, "2 days", "%Y-%m-%d")
    use(host, freeze=[f"fair = {days}"])
    two = config("two", "2")
    agent.write_desired(host, two)
    status = wait_phase(host, "Leasing", reason="Frozen")
    assert "(fair); it begins at " in status["message"]
    windows = json.loads(host.run(["nodeagent", "windows", "--json"]).stdout)
    assert (windows["source"], windows["open"], windows["frozen"]["name"]) == ("daemon", False, "fair")
    assert host.read_text("/etc/quiet") == "1"
    host.run(["nodeagent", "apply", "--yes", "--at", "now", "-"], stdin=two)
    wait_done(host, "two")

    # Twenty minutes are left of it, and a reboot is expected to take thirty.
    short, long = date(host, "10 minutes ago", "%a %H:%M") + " 30", date(host, "3 days", "%a") + " 00:00 120"
    use(host, open=[short, long], end_inside=True)
    three = config("three", "2", "2")
    planned = json.loads(host.run(["nodeagent", "plan", "-", "--json"], stdin=three).stdout)
    assert any(note.startswith("windows: it will not end before the window closes") for note in planned["notes"])
    agent.write_desired(host, three)
    status = wait_phase(host, "Leasing", reason="WindowTooShort")
    assert "30 min are expected" in status["message"]
    assert host.reboots == reboots
    with host.rebooting():
        host.run(["nodeagent", "apply", "--yes", "--at", "now", "-"], stdin=three)
    agent.wait_daemon(host)
    wait_done(host, "three", agent.REBOOT_TIMEOUT)

    # This host has done it in less by now.
    with host.rebooting():
        agent.write_desired(host, config("four", "2", "3"))
    agent.wait_daemon(host)
    wait_done(host, "four", agent.REBOOT_TIMEOUT)
    assert outcomes(host)[-3:] == [("two", "done"), ("three", "done"), ("four", "done")]

    # A file that cannot be read as settings changes nothing of what holds.
    agent.settings(host, {"windows": {"freeze": ["2027-02-29"]}})
    checked = host.run(["nodeagent", "settings", "check"], check=False)
    assert (checked.returncode, "a date that does not exist" in checked.stdout) == (2, True)
