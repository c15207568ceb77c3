# SPDX-License-Identifier: Apache-2.0
"""Facts of a real host that a plan must know: mounts, attributes, and what its systemd ignores."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import SSH_KEY
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import UnitSpec, machine_config, wait_done

FILE = "/run/known.json"


def planned(host: Host, **parts: Any) -> tuple[int, dict[str, Any]]:
    """The exit status of a plan, and its JSON or that of its error."""
    host.write(FILE, machine_config("new", keys=[SSH_KEY], **parts))
    done = host.run(["nodeagent", "plan", FILE, "--json"], check=False)
    return done.returncode, json.loads(done.stdout or done.stderr)


@pytest.mark.long
@pytest.mark.finding(
    "files: known before the lease, files: paths that do not last, users: paths that cannot be written",
    "A path that cannot be written, or does not stay, is refused by plan.",
)
def test_paths_that_cannot_be_written_or_do_not_stay(node: Host) -> None:
    agent.apply(node, machine_config("old", keys=[SSH_KEY]))
    wait_done(node, "old")
    node.run(["mkdir", "-p", "/srv/sealed", "/srv/memory", "/var/kept"])
    node.run(["mount", "--bind", "/srv/sealed", "/srv/sealed"])
    node.run(["mount", "-o", "remount,bind,ro", "/srv/sealed"])
    node.run(["mount", "-t", "tmpfs", "tmpfs", "/srv/memory"])
    # A changed flag of a mount does not reach the mount namespace of a daemon that runs already.
    node.run(["systemctl", "restart", "nodeagent"])
    agent.wait_daemon(node)
    blocked = {
        "/srv/sealed/x": "mounted read-only",
        "/srv/sealed/new/x": "cannot be created",
        "/srv/memory/x": "in memory",
        "/dev/shm/x": "",
        "/tmp/x": "",
        "/boot/x": "mounted read-only",
    }
    for path, words in blocked.items():
        code, error = planned(node, files={path: "x"})
        assert code in (2, 4), path
        assert any(words in f"{each['path']} {each['message']}" for each in error["errors"]), (path, error)
    assert planned(node, files={"/var/kept/x": "x", "/usr/local/etc/x": "x", "/etc/new/x": "x"})[0] == 0

    code, plan = planned(node, files={"/data/x.conf": "x"})
    assert code == 0
    assert any("/data does not exist on this host" in note for note in plan["notes"])
    node.run(["chattr", "+i", "/"])
    try:
        code, error = planned(node, files={"/data/x.conf": "x"})
    finally:
        node.run(["chattr", "-i", "/"])
    assert (code, error["reason"]) == (4, "PathBlocked")
    assert "immutable" in error["errors"][0]["message"]


@pytest.mark.finding("units: ignored lines", "A plan warns of lines that systemd ignores, and of times in the past.")
def test_a_plan_warns_of_what_systemd_ignores(node: Host) -> None:
    agent.apply(node, machine_config("old", keys=[SSH_KEY]))
    wait_done(node, "old")
    units = {
        "crio.service": UnitSpec(dropins={"10-known.conf": "[Service]\nExecStrat=/bin/true\nEnvironmnet=A=b\n"}),
        "known.service": UnitSpec("[Service]\nType=oneshot\nExecStart=/bin/true\n"),
        "known.timer": UnitSpec("[Timer]\nOnCalendar=2020-01-01\n"),
    }
    code, plan = planned(node, units=units)
    assert code == 0
    text = "\n".join(plan["notes"])
    assert all(words in text for words in ("ExecStrat", "Environmnet", "OnCalendar=2020-01-01 is in the past")), text
