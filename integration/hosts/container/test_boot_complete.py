# SPDX-License-Identifier: Apache-2.0
"""boot-complete.target on a real systemd host: it waits for the verification of an update, and that not for it."""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker

UNIT = "nodeagent-boot-complete.service"
TARGET = "boot-complete.target"
PULLS = "after-good-boot.service"
PULLS_TEXT = f"""\
[Unit]
Requires={TARGET}
After={TARGET}
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
"""
CHECK = "/etc/nodeagent/checks/after-boot.d/required.d/10-open"
OPEN = "/run/checked"


@pytest.mark.long
def test_it_is_reached_when_the_update_is_verified(make_node: HostMaker) -> None:
    policy = agent.policy(files={"/etc/app.conf": ["Reboot"]})
    check = f"#!/bin/sh\ntest -e {OPEN}\n"
    files = {agent.POLICY: policy, CHECK: check, f"/etc/systemd/system/{PULLS}": PULLS_TEXT}
    host = make_node(settings={"verify": {"timeout": 120}}, files=files)
    host.run(["chmod", "755", CHECK])
    host.run(["systemctl", "enable", PULLS, UNIT])
    agent.apply(host, agent.machine_config("new", files={"/etc/app.conf": "new\n"}))
    host.wait_for(lambda: host.reboots == 1, "the reboot", agent.REBOOT_TIMEOUT)
    agent.wait_daemon(host)
    # The check runs last, so the units of the boot were good before: the boot was not waited for.
    host.wait_for(
        lambda: "10-open" in agent.status(host)["message"], "the verification waits for the check", agent.REBOOT_TIMEOUT
    )
    assert host.unit(UNIT, "ActiveState")["ActiveState"] == "activating"
    assert [host.is_active(unit) for unit in (TARGET, PULLS)] == [False, False]
    host.write(OPEN, "")
    agent.wait_done(host, "new")
    host.wait_for(lambda: host.is_active(PULLS), "the target is reached", agent.REBOOT_TIMEOUT)
