# SPDX-License-Identifier: Apache-2.0
"""What an admin looks at: configs, one update and its journal, the log-in message, typed properties, a failed unit."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host

MODE = "/etc/flaky/mode"
PULL_SECRET = "/var/lib/kubelet/config.json"
CREDENTIALS = json.dumps({"auths": {"quay.example": {"auth": "cm9ib3Q6c2VjcmV0"}}})
POLICY = agent.policy(files={"/etc/flaky": ["Restart flaky.service"], PULL_SECRET: ["None"]})
MOTD = "/run/motd.d/50-nodeagent"
STATUS = ["org.nodeagent.Agent1", "/org/nodeagent/Agent1", "org.nodeagent.Agent1.Status"]

GOOD = agent.machine_config("good", files={MODE: "ok", PULL_SECRET: agent.FileSpec(CREDENTIALS, 0o600)})
BETTER = agent.machine_config("better", files={MODE: "ok\n", PULL_SECRET: agent.FileSpec(CREDENTIALS, 0o600)})
BAD = agent.machine_config("bad", files={MODE: "fail", PULL_SECRET: agent.FileSpec(CREDENTIALS, 0o600)})


def out(host: Host, *words: str, user: str | None = None) -> str:
    return host.run(["nodeagent", *words], user=user).stdout


def prop(host: Host, name: str) -> str:
    return host.run(["busctl", "get-property", *STATUS, name]).stdout.strip()


def motd(host: Host) -> str:
    return host.read(MOTD).decode() if host.exists(MOTD) else ""


@pytest.mark.slow
def test_what_an_admin_looks_at(make_node: HostMaker) -> None:
    host = make_node(settings={"actions": {"timeout": 8, "settle": 1}}, files={agent.POLICY: POLICY})
    agent.apply(host, GOOD)
    agent.wait_done(host, "good")

    # Configs: secrets for root, and on request only.
    shown = out(host, "config", "current")
    assert "name: good" in shown
    assert "[redacted]" in shown
    assert json.loads(out(host, "config", "current", "--show-secrets", "--json"))["config"] == json.loads(GOOD)
    denied = host.run(["nodeagent", "config", "current", "--show-secrets"], user="nobody", check=False)
    assert (denied.returncode, denied.stdout) == (4, "")
    host.write("/root/current.json", out(host, "config", "current", "--show-secrets"))
    assert "nothing to do" in out(host, "plan", "--from", "/root/current.json", "--to", "/root/current.json")
    assert "actions.timeout" in out(host, "settings", "show")

    # A wait, as a log-in and other programs see it.
    assert not host.exists(MOTD)
    host.run(["nodeagent", "maintenance", "start", "--reason", "disk swap"])
    agent.apply(host, BETTER)
    agent.wait_phase(host, "Leasing", reason="LeaseHeld")
    host.wait_for(lambda: "updating to better" in motd(host), "the message of the day")
    assert host.run(["stat", "-c", "%a %U", MOTD]).stdout == "644 root\n"
    assert prop(host, "Phase") == 's "Leasing"'
    assert prop(host, "Target") == 's "better"'
    assert prop(host, "RebootRequired") == "b false"
    assert prop(host, "Maintenance") == 's "under way"'
    line = host.run(["systemctl", "show", "-P", "StatusText", agent.UNIT]).stdout
    assert line.startswith("Leasing: LeaseHeld: ")
    assert json.loads(out(host, "config", "desired", "--json", user="root"))["name"] == "better"
    host.run(["nodeagent", "maintenance", "stop"])
    agent.wait_done(host, "better")
    host.wait_for(lambda: not host.exists(MOTD), "the message is gone")

    # One update, by the beginning of its id; and the journal of it.
    (newest, before, *_) = agent.history(host)
    ident = newest["update_id"][:8]
    shown = out(host, "history", "show", ident)
    assert "waited: LeaseHeld" in shown
    assert "restart flaky.service" in shown
    assert json.loads(out(host, "history", "show", "--json"))["update_id"] == newest["update_id"]
    assert "better" in out(host, "history", "diff", before["update_id"][:8], ident)
    logged = out(host, "logs", ident)
    assert "updating from good to better" in logged
    assert "updating from nothing" not in logged
    assert host.run(["nodeagent", "history", "show", "zzz"], check=False).returncode == 2

    # The daemon is down: the same from the store.
    host.run(["systemctl", "stop", agent.UNIT])
    assert "name: better" in out(host, "config", "current")
    assert "waited: LeaseHeld" in out(host, "history", "show", ident)
    host.run(["systemctl", "start", agent.UNIT])
    agent.wait_daemon(host)


@pytest.mark.long
def test_a_unit_that_fails_is_named_with_its_last_lines(make_node: HostMaker) -> None:
    quick = {"actions": {"timeout": 8, "settle": 1}, "verify": {"timeout": 8}, "reboot": {"allow": False}}
    host = make_node(settings=quick, files={agent.POLICY: POLICY})
    agent.apply(host, GOOD)
    agent.wait_done(host, "good")
    host.run(["logger", "-t", "noise", "not of the unit"])
    agent.apply(host, BAD)
    status = agent.wait_phase(host, "Degraded", reason="Reverted")
    assert status["failed_unit"]["name"] == "flaky.service"
    assert status["message"].startswith("the host runs good again; bad was taken back because of: ")
    # It is written at most once a second.
    host.wait_for(lambda: "taken back" in motd(host), "the message of the day")
    done = host.run(["script", "-qec", "nodeagent status", "/dev/null"], check=False)
    assert done.returncode == 1
    assert "flaky.service, " in done.stdout
    assert "its journal until then:" in done.stdout
    assert "not of the unit" not in done.stdout
    assert "what now" in done.stdout
    assert host.is_active("flaky.service")
