# SPDX-License-Identifier: Apache-2.0
"""Directories, links and users of a config on a real host: made, killed at each step, and given back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import KILLABLE, KILLPOINTS, SSH_KEY
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, wait_done

KEYS = "/home/alice/.ssh/authorized_keys.d/ignition"
LINK = "/etc/quiet-link"
DIRECTORY = "/var/lib/app"
POLICY = agent.policy(files={LINK: ["None"], f"{DIRECTORY}/file": ["None"]}, units={})
PLACE = KILLPOINTS.lstrip("/")
# After each of them the daemon is killed once.
STEPS = (
    "create user alice",
    "add to group alice:wheel",
    f"write {LINK}",
    f"write {KEYS}",
    f"write {DIRECTORY}",
    "set password of alice",
)
LEAVING = (f"remove {KEYS}", f"remove {DIRECTORY}", f"remove {LINK}", "lock alice", "expire user alice")


def entries(name: str) -> str:
    """Return a config with a directory, a link and a user, which owns the directory."""
    document: dict[str, Any] = json.loads(machine_config(name))
    document["spec"]["config"] |= {
        "storage": {
            "directories": [{"path": DIRECTORY, "mode": 0o750, "user": {"name": "alice"}}],
            "links": [{"path": LINK, "target": "hostname"}],
        },
        "passwd": {
            "users": [
                {
                    "name": "alice",
                    "groups": ["wheel"],
                    "sshAuthorizedKeys": [SSH_KEY],
                    "passwordHash": agent.password_hash("alice"),
                }
            ]
        },
    }
    return json.dumps(document)


def lines(host: Host, path: str) -> Iterator[list[str]]:
    return (line.split(":") for line in host.read_text(path).splitlines())


def output(host: Host, *command: str) -> str:
    return host.run([*command]).stdout.strip()


def assert_there(host: Host) -> None:
    assert output(host, "stat", "--format=%a %U:%G", DIRECTORY) == "750 alice:root"
    assert output(host, "readlink", LINK) == "hostname"
    assert output(host, "stat", "--format=%a %U:%G", KEYS) == "600 alice:alice"
    assert output(host, "stat", "--format=%U", "/home/alice") == "alice"
    assert "alice" in next(line for line in lines(host, "/etc/group") if line[0] == "wheel")[3].split(",")
    (shadow,) = [line for line in lines(host, "/etc/shadow") if line[0] == "alice"]
    assert (shadow[1], shadow[7]) == (agent.password_hash("alice"), "")
    assert host.run(["nodeagent", "verify"]).returncode == 0


def assert_given_back(host: Host) -> None:
    assert host.read_text(LINK) == "own\n"
    for path in (KEYS, DIRECTORY):
        assert host.run(["test", "!", "-e", path]).returncode == 0
    assert output(host, "stat", "--format=%U", "/home/alice") == "alice", "the home stays"
    (shadow,) = [line for line in lines(host, "/etc/shadow") if line[0] == "alice"]
    assert shadow[1].startswith("!")
    assert shadow[7] == "1"
    assert "alice" not in next(line for line in lines(host, "/etc/group") if line[0] == "wheel")[3].split(",")


@pytest.fixture
def host(make_node: HostMaker) -> Host:
    host = make_node(files={agent.POLICY: POLICY, LINK: "own\n", **KILLABLE})
    host.run(["groupadd", "--force", "wheel"])
    agent.apply(host, machine_config("base"))
    wait_done(host, "base")
    return host


def go(host: Host, name: str, text: str, step: str = "") -> None:
    """Apply a config, and kill the daemon after that step, if any."""
    if step:
        (host.root / PLACE / "at").write_text(f"kill step-done {step}")
    agent.apply(host, text)
    wait_done(host, name)
    assert not (host.root / PLACE / "at").exists(), f"{step} was not done"


def test_entries_come_and_go(host: Host) -> None:
    go(host, "new", entries("new"))
    assert_there(host)
    host.run(["chmod", "0700", DIRECTORY])
    host.run(["gpasswd", "--delete", "alice", "wheel"])
    differing = host.run(["nodeagent", "verify"], check=False).stdout
    assert f"file:{DIRECTORY}" in differing
    assert "user:alice" in differing
    go(host, "old", machine_config("old"))
    assert_given_back(host)
    assert host.reboots == 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_after_every_step(host: Host) -> None:
    # The account stays after the first update, so it is created once only.
    for number, (there, back) in enumerate(zip(STEPS, (*LEAVING, LEAVING[0]), strict=True)):
        go(host, f"new-{number}", entries(f"new-{number}"), there)
        assert_there(host)
        go(host, f"old-{number}", machine_config(f"old-{number}"), back)
        assert_given_back(host)
    assert host.reboots == 0
