# SPDX-License-Identifier: Apache-2.0
"""`nodeagent plan FILE` on a host: by the daemon and without it, with drift and with changed lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import SSH_KEY
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec, UnitSpec, machine_config, wait_done

CHRONY, MOTD, SECRET, LEFT = "/etc/chrony.conf", "/etc/motd.d/99-site", "/etc/site/token.conf", "/etc/site/left"
UNIT = "plan-ring.service"
CONTENTS = "[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
WORD = "hunter2-of-the-plan"
FILE = "/run/plan.json"

Files = dict[str, str | bytes | FileSpec]


def old() -> str:
    secret = FileSpec(f"token = {WORD}\nport = 1\n", 0o600)
    files: Files = {CHRONY: "server a\n", MOTD: "hello\n", SECRET: secret, LEFT: "1\n"}
    return machine_config("old", files=files, units={UNIT: UnitSpec(CONTENTS, enabled=True)}, keys=[SSH_KEY])


def new(**more: Any) -> str:
    files: Files = {
        CHRONY: "server b\nrtcsync\n",
        MOTD: FileSpec("hello\n", 0o600),
        SECRET: FileSpec(f"token = {WORD}-2\nport = 2\n", 0o600),
        LEFT: "1\n",
    }
    units = {UNIT: UnitSpec(CONTENTS, enabled=False)}
    return machine_config("new", **{"files": files, "units": units, "keys": [SSH_KEY], **more})


@pytest.fixture
def planned(make_node: HostMaker) -> Host:
    """A host on the config `old`, on which another program changed two files."""
    host = make_node()
    agent.settings(host, {"on_drift": "report"})
    host.run(["systemctl", "restart", "nodeagent"])
    agent.wait_daemon(host)
    agent.apply(host, old())
    wait_done(host, "old")
    host.write(LEFT, "2\n", mode=0o644)
    host.write(CHRONY, "server c\n", mode=0o644)
    host.write(FILE, new())
    return host


def plan(host: Host, *options: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(host.run(["nodeagent", "plan", FILE, "--json", *options]).stdout)
    return answer


@pytest.mark.long
def test_plan_file_with_values_and_drift_with_and_without_the_daemon(planned: Host) -> None:
    host = planned
    before = agent.managed(host)
    answer = plan(host)
    details = {change["key"]: change["details"] for change in answer["changes"]}
    # The host has another file than the old config, and the plan compares with the host.
    assert details[CHRONY][0] == {"what": "content", "added": 2, "removed": 1}
    assert details[MOTD] == [{"what": "mode", "before": "0644", "after": "0600"}]
    assert details[UNIT] == [{"what": "state", "before": "enabled", "after": "disabled"}]
    assert {found["entry"]: found["then"] for found in answer["drift"]} == {
        f"file:{CHRONY}": "overwritten",
        f"file:{LEFT}": "kept",
    }
    assert (answer["daemon"], answer["disruption"]) == ("running", "reboot")

    shown = host.run(["nodeagent", "plan", FILE, "--diff"]).stdout
    assert "-server c\n+server b\n+rtcsync\n" in shown
    assert "-port = 1\n+port = 2\nhidden values differ, too\n" in shown
    assert WORD not in shown

    host.run(["systemctl", "stop", "nodeagent"])
    store = host.run(["sha256sum", "/var/lib/nodeagent/state.db"]).stdout
    stopped = plan(host)
    assert {**stopped, "daemon": "running"} == answer
    assert stopped["daemon"] == "stopped"
    text = host.run(["nodeagent", "plan", FILE, "--diff"])
    assert text.stdout == shown
    assert "the daemon does not run" in text.stderr
    assert host.run(["sha256sum", "/var/lib/nodeagent/state.db"]).stdout == store
    limited = host.run(["nodeagent", "plan", FILE, "--max-disruption", "restart"], check=False)
    assert (limited.returncode, "DisruptionExceeded" in limited.stderr) == (4, True)
    # What `apply` refuses is refused without the daemon too, by the programs of the host.
    host.write(FILE, new(files={"/etc/sudoers.d/ring": FileSpec("%wheel ALL=(ALL) NOPASSWD ALL\n", 0o440)}))
    refused = host.run(["nodeagent", "plan", FILE, "--json"], check=False)
    assert (refused.returncode, json.loads(refused.stderr)["reason"]) == (2, "InvalidInput")
    other = host.run(["setpriv", "--reuid=core", "--clear-groups", "nodeagent", "plan", FILE], check=False)
    assert (other.returncode, "only root" in other.stderr) == (5, True)
    assert agent.managed(host) == before
    assert agent.occurrences(host, [WORD]) == []
