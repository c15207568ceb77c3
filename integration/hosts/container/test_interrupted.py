# SPDX-License-Identifier: Apache-2.0
"""The agent is stopped, restarted or replaced in the middle of an update: the host ends up as desired all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container import events
from integration.hosts.container.configs import HOLD, SLOW
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.container.package import install
from integration.hosts.nodeagent_client import machine_config, outcomes, wait_done, wait_phase
from nodeagent.report.views.registry import views
from nodeagent.update.ports.events import UpdateResumed

RESUMED = views()[UpdateResumed].id
POLICY = agent.policy(files={"/etc/slow.conf": ["Restart slow.service"], "/etc/many": ["None"]})


def stop_and_start(host: Host) -> None:
    host.run(["systemctl", "stop", agent.UNIT])
    assert host.unit(agent.UNIT, "Result", "ActiveState") == {"Result": "success", "ActiveState": "inactive"}
    # What it was about to do is in the record, and can be asked for without it.
    said = host.run(["nodeagent", "status"], check=False)
    assert said.returncode == 5
    assert "stopped" in said.stdout or "does not run" in said.stderr
    host.run(["systemctl", "start", agent.UNIT])


def restart(host: Host) -> None:
    host.run(["systemctl", "restart", agent.UNIT])
    assert host.unit(agent.UNIT, "Result", "NRestarts") == {"Result": "success", "NRestarts": "0"}


@pytest.mark.parametrize(
    ("phase", "interruption"),
    [
        pytest.param("Writing", restart, marks=pytest.mark.long),
        ("Acting", stop_and_start),
        pytest.param("Verifying", restart, marks=pytest.mark.long),
    ],
)
def test_an_update_goes_on_after_a_restart_of_the_agent(
    make_node: HostMaker, phase: str, interruption: Callable[[Host], None]
) -> None:
    interrupt(slow_host(make_node), phase, interruption)


@pytest.mark.long
def test_an_update_goes_on_after_an_upgrade_of_the_package(make_node: HostMaker, package: Path) -> None:
    host = slow_host(make_node)
    before = host.unit(agent.UNIT, "InvocationID")
    interrupt(host, "Acting", lambda host: install(host, package))
    assert host.unit(agent.UNIT, "InvocationID") != before


def slow_host(make_node: HostMaker) -> Host:
    files = {agent.POLICY: POLICY, "/etc/systemd/system/slow.service": SLOW}
    return make_node(files=files, settings={"actions": {"timeout": 30, "settle": 1.5}})


def interrupt(host: Host, phase: str, interruption: Callable[[Host], None]) -> None:
    many = {f"/etc/many/{number:03}": f"{number}\n" * 20 for number in range(150)}
    if phase == "Acting":
        host.write(HOLD, "")
    agent.apply(host, machine_config("wanted", files={**many, "/etc/slow.conf": "wanted"}))
    if phase == "Writing":
        first = host.root / "etc/many/000"  # looked at from outside: that is quick enough to be in the middle
        host.wait_for(first.exists, "the first file is written", every=0.001)
    else:
        wait_phase(host, phase)
    interruption(host)
    host.run(["rm", "--force", HOLD])
    status = wait_done(host, "wanted")
    assert (status["lease"], status["step"], host.reboots) == (None, None, 0)
    assert host.read_text("/etc/slow.conf") == "wanted"
    assert [path for path, text in many.items() if (host.root / path[1:]).read_text() != text] == []
    last = host.events("slow.service")[-1]
    assert last.digest == events.digest(b"wanted"), "the restart was done, with the new content"
    assert host.is_active("slow.service")
    assert outcomes(host) == [("wanted", "done")]
    resumed = [entry for entry in host.journal(agent.UNIT) if entry.get("MESSAGE_ID") == RESUMED]
    assert [entry["NODEAGENT_PHASE"] for entry in resumed] == [phase], "it was in the middle"
