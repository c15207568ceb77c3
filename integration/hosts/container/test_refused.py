# SPDX-License-Identifier: Apache-2.0
"""Bad configs are refused with the path of what is wrong, and nothing was touched."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import ANCHOR, PULL_SECRET, REGISTRIES, SSH_KEY
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec, UnitSpec, machine_config, outcomes, wait_done, wait_phase
from integration.hosts.snapshot import difference

SUDOERS = "/etc/sudoers.d/ring"
SSHD = "/etc/ssh/sshd_config.d/10-ring.conf"
CONFIG = "/run/config.json"
SECRET = "hunter2-of-the-registry"

# What happened when users first made the mistake.
BY_APPLY = "accepted by `plan`, refused by `apply`"

BAD: Mapping[str, tuple[dict[str, Any], str, int]] = {
    # name: what the config has, what the error names, exit status
    "unit": (
        {"units": {"bad.service": UnitSpec("[Service]\nExecStart=relative/path\n", enabled=True)}},
        "/etc/systemd/system/bad.service",
        2,
    ),
    "drop-in": (
        {"units": {"crio.service": UnitSpec(dropins={"10-ring.conf": "no section\n"})}},
        "/etc/systemd/system/crio.service.d/10-ring.conf",
        2,
    ),
    "sudoers": ({"files": {SUDOERS: FileSpec("%wheel ALL=(ALL) NOPASSWD ALL\n", 0o440)}}, SUDOERS, 2),
    "sshd": ({"files": {SSHD: "PermitRootLogin perhaps\n"}}, SSHD, 2),
    "pull-secret": (
        {"files": {PULL_SECRET: json.dumps({"auths": {"quay.example.com": {"auth": f"%{SECRET}%"}}})}},
        "quay.example.com",
        2,
    ),
    "registries": ({"files": {REGISTRIES: '[[registry]\nlocation = "x"\n'}}, REGISTRIES, 2),
    "certificate": ({"files": {ANCHOR: "-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n"}}, ANCHOR, 2),
    "owner": ({"files": {"/etc/containers/registries.d/x": FileSpec("", user="nobody-knows")}}, "nobody-knows", 2),
    "fips": ({"fips": True}, "fips", 3),
    "os-image": ({"osImageURL": "quay.example.com/os@sha256:" + "0" * 64}, "osImageURL", 3),
    "kernel-arguments": ({"kernelArguments": ["nosmt"]}, "kernelArguments", 3),
}


@pytest.mark.long
@pytest.mark.mistake(
    "`ExecStart=` with a relative path",
    BY_APPLY,
    "the path of the unit, and `line 2: Neither a valid executable name nor an absolute path: bin/x` "
    "(`systemd-analyze verify`)",
)
@pytest.mark.mistake("error in `sshd_config.d`", BY_APPLY, "the path, the line and the message of `sshd -t`")
@pytest.mark.mistake("error in `sudoers.d`", BY_APPLY, "the path, and `line 1: syntax error` (`visudo -c`)")
@pytest.mark.mistake("unknown owner of a file", "not tried", "the path, and `this host has no user 'coer'`")
@pytest.mark.mistake(
    "image on a host without an image", BY_APPLY, "`NoDeployments`, with `osImageURL` and the hint to remove the change"
)
def test_what_a_checker_or_a_rule_refuses_touches_nothing(make_node: HostMaker) -> None:
    host = make_node()
    agent.apply(host, machine_config("good", keys=[SSH_KEY]))
    wait_done(host, "good")
    before, events = agent.managed(host), host.events()
    for name, (parts, named, exit_status) in BAD.items():
        config = machine_config(name, **{"keys": [SSH_KEY], **parts})
        done = agent.apply_command(host, config, "--json", check=False)
        assert done.returncode == exit_status, (name, done.stdout, done.stderr)
        error = json.loads(done.stderr)
        assert error["schema"] == "nodeagent/error/v1"
        assert any(named in f"{each['path']}: {each['message']}" for each in error["errors"]), (name, error)
        assert SECRET not in done.stderr
        host.write(CONFIG, config)
        planned = host.run(["nodeagent", "plan", CONFIG, "--json"], check=False)
        assert (planned.returncode, json.loads(planned.stderr)) == (exit_status, error), name
        assert difference(before, agent.managed(host)) == [], name
    as_text = agent.apply_command(host, machine_config("os-image", **BAD["os-image"][0]), check=False)
    assert as_text.returncode == 3
    assert re.search(r"\Anodeagent: NoDeployments: .*\n.*osImageURL.*\nhint: .*\n\Z", as_text.stderr), as_text.stderr
    assert (host.events(), host.reboots) == (events, 0)
    status = agent.status(host)
    assert (status["phase"], status["current"]) == ("Idle", "good")
    assert outcomes(host) == [("good", "done")]


@pytest.mark.finding(
    "plans: for this host", "`plan FILE` shows what a config does to this host, with the checks of `apply`."
)
def test_a_plan_for_this_host_is_what_apply_does(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: agent.policy(files={"/etc/quiet": ["None"]})})
    agent.apply(host, machine_config("old", files={"/etc/quiet": "1", "/etc/loud": "1"}))
    wait_done(host, "old")
    before, reboots = agent.managed(host), host.reboots
    host.write(CONFIG, machine_config("quiet", files={"/etc/quiet": "2", "/etc/loud": "1"}))
    plan = json.loads(host.run(["nodeagent", "plan", CONFIG, "--json"]).stdout)
    assert (plan["from"], plan["to"], plan["disruption"]) == ("old", "quiet", "none")
    assert [(change["key"], change["policy"]) for change in plan["changes"]] == [("/etc/quiet", "user")]
    host.write("/run/loud.json", machine_config("loud", files={"/etc/quiet": "2", "/etc/loud": "2"}))
    for command in ("plan", "apply"):
        refused = host.run(["nodeagent", command, "/run/loud.json", "--max-disruption", "restart"], check=False)
        assert (refused.returncode, "DisruptionExceeded" in refused.stderr) == (4, True), refused
    assert (difference(before, agent.managed(host)), host.reboots) == ([], reboots)
    host.run(["nodeagent", "apply", CONFIG, "--max-disruption", "none", "--wait"])
    assert agent.status(host)["current"] == "quiet"


def degraded_without(host: Host, word: str) -> bool:
    found = agent.status(host)
    return found["phase"] == "Degraded" and word not in found["message"]


def test_a_bad_desired_config_degrades_until_it_is_taken_back(make_node: HostMaker) -> None:
    host = make_node()
    good = machine_config("good", keys=[SSH_KEY])
    agent.write_desired(host, good)
    wait_done(host, "good")
    before = agent.managed(host)
    agent.write_desired(host, machine_config("bad", keys=[SSH_KEY], files={SUDOERS: "nonsense here\n"}))
    status = wait_phase(host, "Degraded")
    assert (status["reason"], SUDOERS in status["message"]) == ("InvalidInput", True)
    agent.write_desired(host, "{ not: [a config")
    host.wait_for(lambda: degraded_without(host, "bad"), "it is looked at again")
    assert difference(before, agent.managed(host)) == []
    refused = agent.status(host)["since"]
    agent.write_desired(host, good)
    wait_done(host, "good", after=refused)
    assert outcomes(host) == [("good", "done")]


@pytest.mark.long
@pytest.mark.mistake(
    "unit of the policy that does not exist",
    "accepted, refused by `apply`",
    "`nodeagent settings check` notes it, `plan FILE` and `apply` refuse it, with a suggestion",
)
def test_a_policy_that_names_a_missing_unit_is_refused(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: agent.policy(files={"/etc/app": ["Restart typing-error.service"]})})
    done = agent.apply_command(host, machine_config("app", files={"/etc/app": "x"}), check=False)
    assert done.returncode == 2
    assert "typing-error.service" in done.stderr
    assert not host.exists("/etc/app")
    host.write(agent.POLICY, agent.policy(files={"/etc/app": ["None"]}))
    agent.apply(host, machine_config("app", files={"/etc/app": "x"}))
    wait_done(host, "app")


def test_all_that_is_wrong_is_said_at_once(make_node: HostMaker) -> None:
    host = make_node()
    broken = json.loads(machine_config("broken", files={"/etc/a": "", "relative": ""}))
    files = broken["spec"]["config"]["storage"]["files"]
    files[0]["mode"] = 0o1777
    files.append({"path": "/etc/b", "contents": {"source": "data:;base64,%%%"}})
    done = agent.apply_command(host, json.dumps(broken), "--json", check=False)
    assert done.returncode == 2
    paths = {error["path"] for error in json.loads(done.stderr)["errors"]}
    assert {path.split(".")[3] for path in paths} == {"files[0]", "files[1]", "files[2]"}
    assert base64.b64encode(b"%%%").decode() not in done.stderr
