# SPDX-License-Identifier: Apache-2.0
"""Changes of nodeagent's own files by a config, a user or an upgrade, which the agent survives."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec, UnitSpec, machine_config, wait_done

CONFIG_D = "/etc/nodeagent/config.d"
SELF = "/etc/self"
MANAGED = "/home/core/managed"


@pytest.fixture
def node(make_node: HostMaker) -> Host:
    policy = agent.policy(files={SELF: ["Restart nodeagent.service"], "/etc/quiet": ["None"], MANAGED: ["None"]})
    return make_node(files={agent.POLICY: policy})


def refused(host: Host, config: str) -> str:
    done = agent.apply_command(host, config, "--json", check=False)
    assert done.returncode == 2, (done.stdout, done.stderr)
    return "; ".join(f"{each['path']}: {each['message']}" for each in json.loads(done.stderr)["errors"])


def main_pid(host: Host) -> str:
    return host.unit(agent.UNIT, "MainPID")["MainPID"]


@pytest.mark.long
@pytest.mark.finding(
    "daemon: actions on its own unit, daemon: a start with damaged files, policy: invalid files",
    "On a real host: what would take the agent away is refused, settings are reloaded, and a restart of the agent "
    "comes once.",
)
def test_a_config_cannot_take_the_agent_from_its_host(node: Host) -> None:
    pid = main_pid(node)
    assert "unknown key rebot" in refused(node, machine_config("a", files={f"{CONFIG_D}/60-x.yaml": "rebot: 1\n"}))
    assert "mask" in refused(node, machine_config("b", files={"/etc/systemd/system/nodeagent.service": ""}))
    dropin = UnitSpec(dropins={"50-x.conf": "[Unit]\nConditionPathExists=/nope\n"})
    assert "ConditionPathExists" in refused(node, machine_config("c", units={"nodeagent.service": dropin}))
    assert "must be a list" in refused(node, machine_config("d", files={agent.POLICY: FileSpec("files: 5\n", 0o600)}))
    # Good ones count without a reboot, and a restart of the agent comes once, after the update.
    agent.apply(node, machine_config("e", files={f"{CONFIG_D}/60-x.yaml": "log: {level: debug}\n"}))
    wait_done(node, "e")
    node.wait_for(
        lambda: "debug" in node.run(["nodeagent", "settings", "show"]).stdout and main_pid(node) == pid,
        "it is reloaded",
    )
    agent.apply(node, machine_config("f", files={SELF: "1"}))
    node.wait_for(lambda: main_pid(node) not in ("0", pid), "the agent was started again")
    wait_done(node, "f")
    again = main_pid(node)
    assert agent.outcomes(node)[-1] == ("f", "done")
    assert (node.reboots, main_pid(node)) == (0, again)


@pytest.mark.long
@pytest.mark.finding(
    "daemon: a start with damaged files, daemon: leftovers, policy: invalid files",
    "On a real host: bad settings, leftovers and a bad policy leave the agent up, and a config puts the policy right.",
)
def test_the_agent_starts_with_settings_leftovers_and_configs_that_are_bad(node: Host) -> None:
    agent.apply(node, machine_config("old", files={MANAGED: FileSpec("1", user="core", group="core")}))
    wait_done(node, "old")
    node.run(["systemctl", "stop", agent.UNIT])
    # A user's leftover that cannot be removed, settings that do not load, and a current config with an unknown key.
    node.run(["mkdir", "-p", "/home/core/.nodeagent-0123456789abcdef.tmp/x"])
    node.write(f"{CONFIG_D}/60-bad.yaml", "rebot: 1\n")
    node.run(["systemctl", "start", agent.UNIT])
    status = agent.status(node)
    assert (status["phase"], status["current"]) == ("Idle", "old")
    assert {problem["topic"] for problem in status["problems"]} == {"settings", "sweep"}
    assert node.unit(agent.UNIT, "NRestarts")["NRestarts"] == "0"
    # The policy of the host is broken by hand, and a config puts it right.
    node.write(agent.POLICY, "files: 5\n")
    fixed = agent.policy(files={"/etc/quiet": ["None"], agent.POLICY: ["None"], MANAGED: ["None"]})
    agent.apply(node, machine_config("new", files={agent.POLICY: FileSpec(fixed, 0o600), "/etc/quiet": "2"}))
    wait_done(node, "new")
    assert node.reboots == 0


@pytest.mark.long
def test_a_reload_waits_for_a_daemon_that_has_no_processor(node: Host) -> None:
    """Longer than busctl waits by default: a host that is busy enough must not report a reload as failed."""
    node.write("/run/systemd/system/nodeagent.service.d/50-slow.conf", "[Service]\nWatchdogSec=5min\n")
    node.run(["systemctl", "daemon-reload"])
    node.run(["systemctl", "restart", agent.UNIT])
    pid = main_pid(node)
    node.write(f"{CONFIG_D}/60-x.yaml", "log: {level: debug}\n")
    node.kill(agent.UNIT, "SIGSTOP")
    node.run(["systemd-run", "--on-active=35s", "--timer-property=AccuracySec=1s", "kill", "-CONT", pid])
    node.run(["systemctl", "reload", agent.UNIT], timeout=180)
    assert (main_pid(node), node.unit(agent.UNIT, "Result")["Result"]) == (pid, "success")
    assert "debug" in node.run(["nodeagent", "settings", "show"]).stdout
