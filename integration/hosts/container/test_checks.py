# SPDX-License-Identifier: Apache-2.0
"""Checks of the admin on a real systemd: their rights, their end, and what they decide."""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec, machine_config

CHECKS = "/etc/nodeagent/checks"
LOG = "/var/check.log"
POLICY = agent.policy(files={"/etc/quiet": ["None"]})
# It logs each run and its rights, and leaves a process in a session of its own.
GATE = f"""#!/bin/sh
echo "begin $NODEAGENT_STAGE $NODEAGENT_CONFIG $(grep CapEff /proc/self/status)" >> {LOG}
touch /usr/written && rm /usr/written
setsid sleep 4242 &
test -e /run/hang && exec sleep 4243
echo "disk is ill, password=hunter2"
test -e /run/go
"""


def log(host: Host) -> list[str]:
    return host.read_text(LOG).splitlines() if host.exists(LOG) else []


def sleepers(host: Host) -> int:
    return len(host.run(["pgrep", "-f", "sleep 424[23]"], check=False).stdout.split())


@pytest.mark.long
def test_a_check_holds_a_reboot_runs_again_after_a_kill_and_leaves_no_process(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: POLICY}, settings={"checks": {"timeout": 5}})
    host.write(f"{CHECKS}/before-reboot.d/required.d/10-gate", GATE, mode=0o755)
    host.write("/run/hang", "")
    agent.apply(host, machine_config("new", files={"/etc/unlisted": "1"}))
    host.wait_for(lambda: sleepers(host) == 2, "the check hangs")
    host.kill(agent.UNIT)
    host.run(["systemctl", "start", agent.UNIT])
    host.wait_for(lambda: len(log(host)) > 1, "the check runs again")
    assert sleepers(host) <= 2, "not beside itself"
    found = agent.wait_phase(host, "Rebooting", reason="CheckFailed")
    assert "the check before-reboot/10-gate did not end within 5 s" in found["message"]
    host.run(["rm", "/run/hang"])
    # The pause after a failure grows; a restart of the agent ends it.
    host.run(["systemctl", "restart", agent.UNIT])
    failed = "the check before-reboot/10-gate failed with exit status 1: disk is ill, password=[redacted]"
    host.wait_for(lambda: failed in agent.status(host)["message"], "the status has the output", 180)
    host.wait_for(lambda: sleepers(host) == 0, "nothing is left", 180)
    assert host.reboots == 0
    assert agent.occurrences(host, ["hunter2"]) == []
    with host.rebooting(120):
        host.write("/run/go", "")
        host.run(["systemctl", "restart", agent.UNIT])
    agent.wait_done(host, "new")
    assert all(line.startswith("begin before-reboot new") for line in log(host))
    # The daemon has six capabilities; a check has those of any service.
    assert {int(line.split()[-1], 16).bit_count() > 20 for line in log(host)} == {True}
    assert host.run(["systemctl", "list-units", "--all", "--no-legend", "nodeagent-check-*"]).stdout == ""


def test_a_config_brings_its_checks_and_is_reverted_by_them(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: POLICY}, settings={"verify": {"timeout": 2}})
    wanted = {f"{CHECKS}/after-apply.d/wanted.d/10-w": FileSpec("#!/bin/sh\necho a bit full; exit 1\n", 0o755)}
    agent.apply(host, machine_config("good", files={**wanted, "/etc/quiet": "1"}))
    agent.wait_done(host, "good")
    note = "the check after-apply/10-w failed with exit status 1: a bit full"
    assert agent.history(host)[0]["message"] == note
    broken = {f"{CHECKS}/after-apply.d/required.d/10-r": FileSpec("#!/bin/sh\nexit 7\n", 0o755)}
    agent.settings(host, {"verify": {"timeout": 2}, "reboot": {"allow": False}})
    host.run(["systemctl", "reload", agent.UNIT])
    bad = machine_config("bad", files={**wanted, **broken, "/etc/quiet": "2"})
    assert "checks after-apply: 10-w (wanted)" in host.run(["nodeagent", "plan", "-"], stdin=bad).stdout
    agent.apply(host, bad)
    entry = agent.wait_outcome(host, "bad")
    assert (entry["outcome"], entry["reason"]) == ("reverted", "CheckFailed")
    assert entry["message"].startswith("the check after-apply/10-r failed with exit status 7")
    assert host.read_text("/etc/quiet") == "1"
    assert agent.status(host)["reason"] == "Reverted"


@pytest.mark.long
def test_a_service_is_a_check(make_node: HostMaker) -> None:
    unit = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'echo raid is ill; test -e /run/whole'\n"
    settings = {"verify": {"timeout": 2}, "checks": {"timeout": 5}, "reboot": {"allow": False}}
    host = make_node(files={agent.POLICY: POLICY, "/etc/systemd/system/raid.service": unit}, settings=settings)
    host.run(["systemctl", "daemon-reload"])
    host.run(["mkdir", "-p", f"{CHECKS}/after-apply.d/required.d"])
    host.run(["ln", "-s", "/etc/systemd/system/raid.service", f"{CHECKS}/after-apply.d/required.d"])
    host.write("/run/whole", "")
    agent.apply(host, machine_config("good", files={"/etc/quiet": "1"}))
    agent.wait_done(host, "good")
    assert host.is_active("raid.service")
    # Its last result is a good one, and systemd would not start it again.
    host.run(["rm", "/run/whole"])
    agent.apply(host, machine_config("bad", files={"/etc/quiet": "2"}))
    entry = agent.wait_outcome(host, "bad")
    assert (entry["outcome"], entry["reason"]) == ("reverted", "CheckFailed")
    assert entry["message"].startswith("the check after-apply/raid.service failed: ")
    assert "raid is ill" in entry["message"]
    assert host.read_text("/etc/quiet") == "1"
    assert host.unit("raid.service", "ActiveState")["ActiveState"] == "inactive"
