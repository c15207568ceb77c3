# SPDX-License-Identifier: Apache-2.0
"""Another program changes managed files: it is reported at once; an update does as is set."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import POLICY_JSON, SIGNED, SSH_KEY
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import UnitSpec, machine_config, outcomes, wait_done, wait_phase
from nodeagent.features.drift.events import DriftChanged
from nodeagent.report.views.registry import views

DROPIN = "/etc/systemd/system/kubelet.service.d/10-ring.conf"
KEYS = "/home/core/.ssh/authorized_keys.d/ignition"
ENTRIES = {"file:/etc/app/content", "file:/etc/app/mode", "unit:kubelet.service", "sshkey:core"}


def configured(make_node: HostMaker, **settings: str) -> Host:
    policy = agent.policy(files={"/etc/app": ["None"]}, units={"kubelet.service": ["None"]})
    host = make_node(files={agent.POLICY: policy}, settings=settings)
    agent.apply(host, config("good"))
    wait_done(host, "good")
    return host


def config(name: str, extra: str = "") -> str:
    files = {"/etc/app/content": "as wanted\n", "/etc/app/mode": "", POLICY_JSON: SIGNED}
    if extra:
        files["/etc/app/extra"] = extra
    unit = UnitSpec(enabled=True, dropins={"10-ring.conf": "[Service]\nNice=1\n"})
    return machine_config(name, files=dict(files), units={"kubelet.service": unit}, keys=[SSH_KEY])


def drift(host: Host) -> None:
    host.write("/etc/app/content", "by hand\n")
    host.run(["chmod", "600", "/etc/app/mode"])
    host.run(["rm", DROPIN])
    host.write(KEYS, "ssh-ed25519 AAAA admin\n", mode=0o600, owner="core")


def test_drift_is_found_and_an_update_is_refused(make_node: HostMaker) -> None:
    host = configured(make_node, on_drift="refuse")
    verified = host.run(["nodeagent", "verify", "--json"])
    assert json.loads(verified.stdout) == {
        "schema": "nodeagent/verify/v1",
        "config": "good",
        "ok": True,
        "drift": [],
        "not_compared": [],
    }
    drift(host)
    verified = host.run(["nodeagent", "verify", "--json"], check=False)
    assert verified.returncode == 1
    found = {each["entry"]: each["why"] for each in json.loads(verified.stdout)["drift"]}
    assert set(found) == ENTRIES
    assert DROPIN in found["unit:kubelet.service"]
    shown = host.run(["nodeagent", "verify"], check=False).stdout
    assert all(entry in shown for entry in ENTRIES)
    assert "by hand" not in shown, "the content of a file is not shown"

    refused = agent.apply_command(host, config("next", "x"), "--json", check=False)
    assert refused.returncode == 4
    error = json.loads(refused.stderr)
    assert error["reason"] == "Drifted"
    # The directory of the keys belongs to core, who may change them at any time: that is reported, not refused.
    assert {each["path"] for each in error["errors"]} == ENTRIES - {"sshkey:core"}
    agent.write_desired(host, config("next", "x"))
    assert wait_phase(host, "Degraded")["reason"] == "Drifted"
    assert host.read_text("/etc/app/content") == "by hand\n"
    assert not host.exists("/etc/app/extra")
    assert outcomes(host) == [("good", "done")]


def entries(host: Host) -> set[str]:
    return {found["entry"] for found in agent.status(host)["drift"]}


def until_drift(host: Host, expected: set[str]) -> None:
    host.wait_for(lambda: entries(host) == expected, f"drift of {expected or 'nothing'}", 20)


def test_drift_is_reported_when_it_happens(make_node: HostMaker) -> None:
    host = configured(make_node)
    until_drift(host, set())
    began = host.run(["date", "-u", "+%FT%T"]).stdout.strip()
    host.write("/etc/app/content", "by hand\n")
    until_drift(host, {"file:/etc/app/content"})
    host.run(["sh", "-c", "echo other >/etc/app/.new && mv /etc/app/.new /etc/app/mode"])
    host.run(["rm", "-r", "/etc/systemd/system/kubelet.service.d"])
    host.run(["ln", "-sf", "/dev/null", KEYS])
    until_drift(host, ENTRIES)
    shown = host.run(["nodeagent", "status"]).stdout
    assert all(entry in shown for entry in ENTRIES)
    assert "nodeagent_drifted 1" in host.read_text("/run/nodeagent/metrics.prom")
    (found,) = [each for each in agent.status(host)["drift"] if each["entry"] == "file:/etc/app/content"]
    assert found["since"][:19] >= began

    host.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(host)
    until_drift(host, ENTRIES)
    other = config("next", "x")
    agent.apply(host, other)
    wait_done(host, "next")
    assert host.read_text("/etc/app/content") == "by hand\n", "an update leaves alone what it does not change"
    assert host.read_text("/etc/app/extra") == "x"
    until_drift(host, ENTRIES)

    host.write("/etc/app/content", "as wanted\n")
    host.run(["mkdir", "-p", "/etc/systemd/system/kubelet.service.d"])
    host.write(DROPIN, "[Service]\nNice=1\n")
    until_drift(host, ENTRIES - {"file:/etc/app/content", "unit:kubelet.service"})
    messages = host.journal(match={"MESSAGE_ID": views()[DriftChanged].id})
    assert messages
    assert all("by hand" not in entry["MESSAGE"] for entry in messages)
    assert host.reboots == 0


@pytest.mark.long
def test_an_update_of_many_files_is_no_drift_and_an_idle_host_does_nothing(make_node: HostMaker) -> None:
    host = configured(make_node)
    files = {f"/etc/app/{number}": "x" for number in range(200)}
    agent.apply(host, machine_config("many", files=dict(files), keys=[SSH_KEY]))
    wait_done(host, "many")
    until_drift(host, set())
    assert not host.journal(match={"MESSAGE_ID": views()[DriftChanged].id})
    before = cpu_seconds(host)
    host.run(["sh", "-c", "for i in $(seq 20); do echo $i >/etc/app/unmanaged; sleep 0.5; done"])
    assert cpu_seconds(host) - before < 0.5, "what is not managed costs next to nothing"


def cpu_seconds(host: Host) -> float:
    shown = host.run(["systemctl", "show", agent.UNIT, "--property=CPUUsageNSec", "--value"]).stdout
    return int(shown) / 1e9


def test_drift_is_repaired_where_that_is_set(make_node: HostMaker) -> None:
    host = configured(make_node, on_drift="repair")
    drift(host)
    agent.apply(host, config("next", "x"))
    wait_done(host, "next")
    assert host.run(["nodeagent", "verify"]).returncode == 0
    assert host.read_text("/etc/app/content") == "as wanted\n"
    assert host.read_text(KEYS) == f"{SSH_KEY}\n"
    assert host.reboots == 0


@pytest.mark.long
@pytest.mark.finding(
    "files: directories of users",
    "The owner of a directory blocks the files in it, and no other file, update, revert or start.",
)
def test_the_owner_of_a_directory_blocks_that_file_only(make_node: HostMaker) -> None:
    host = configured(make_node)
    host.run(["sh", "-c", f"rm {KEYS} && mkdir -p {KEYS}/mine {KEYS}/.nodeagent-0123456789abcdef.tmp/x"], user="core")
    other = machine_config(
        "fix", files={"/etc/app/content": "a security fix\n"}, keys=[SSH_KEY, SSH_KEY.replace("GKBG", "GKBH")]
    )
    agent.apply(host, other)
    wait_done(host, "fix")
    assert host.read_text("/etc/app/content") == "a security fix\n"
    verified = host.run(["nodeagent", "verify", "--json"], check=False)
    assert [each["entry"] for each in json.loads(verified.stdout)["drift"]] == ["sshkey:core"]
    host.run(["systemctl", "restart", agent.UNIT])
    agent.apply(host, config("good"))
    wait_done(host, "good")
    assert [outcome for _, outcome in outcomes(host)] == ["done"] * 3
    assert host.reboots == 0


@pytest.mark.long
@pytest.mark.finding(
    "updates: size of what a revert needs",
    "At most 256 MiB of replaced files are kept for a revert; more is refused before the lease is taken.",
)
def test_more_than_a_revert_can_keep_is_refused_before_anything_is_written(make_node: HostMaker) -> None:
    host = configured(make_node)
    large = {f"/etc/app/large-{index}": "small" for index in range(5)}
    for path in large:
        host.run(["truncate", "-s", "60M", path])
    host.write("/etc/app/directory/entry", "")
    new = machine_config("large", files=dict(large), keys=[SSH_KEY])
    refused = agent.apply_command(host, new, "--json", check=False)
    assert (refused.returncode, json.loads(refused.stderr)["reason"]) == (4, "RevertTooLarge")
    blocked = machine_config("blocked", files={"/etc/app/directory": ""}, keys=[SSH_KEY])
    refused = agent.apply_command(host, blocked, "--json", check=False)
    assert (refused.returncode, json.loads(refused.stderr)["reason"]) == (4, "PathBlocked")
    assert outcomes(host) == [("good", "done")]


@pytest.mark.long
def test_drift_that_the_new_config_wants_anyway_is_none(make_node: HostMaker) -> None:
    host = configured(make_node)
    host.write("/etc/app/extra", "x")
    agent.apply(host, config("next", "x"))
    wait_done(host, "next")
    host.write("/etc/app/extra", "y")
    agent.apply(host, config("last", "y"))
    wait_done(host, "last")
    assert host.reboots == 0


@pytest.mark.long
def test_entries_without_actions_are_put_back_at_once(make_node: HostMaker) -> None:
    host = configured(make_node, on_drift="repair")
    until_drift(host, set())
    host.write("/etc/app/content", "by hand\n")
    host.run(["rm", DROPIN])
    host.write(POLICY_JSON, "{}")
    left = {f"file:{POLICY_JSON}"}
    host.wait_for(lambda: host.read_text("/etc/app/content") == "as wanted\n", "it is put back", 20)
    until_drift(host, left)
    assert host.exists(DROPIN)
    assert host.read_text(POLICY_JSON) == "{}", "putting it back requires a reload"
    host.wait_for(lambda: agent.status(host)["problems"], "what is left is a problem", 20)
    (problem,) = agent.status(host)["problems"]
    assert problem["reason"] == "Drifted"
    assert "Reload crio.service" in problem["message"]

    host.write("/etc/app/content", "again\n")
    until_drift(host, {*left, "file:/etc/app/content"})
    assert host.read_text("/etc/app/content") == "again\n", "not again within a minute"
    host.run(["nodeagent", "maintenance", "start", "--reason", "by hand"])
    host.write("/etc/app/mode", "in a maintenance")
    until_drift(host, {*left, "file:/etc/app/content", "file:/etc/app/mode"})
    assert host.read_text("/etc/app/mode") == "in a maintenance"
    assert outcomes(host) == [("good", "done")]


@pytest.mark.long
def test_the_program_is_named_if_it_is_known(make_node: HostMaker) -> None:
    host = configured(make_node)
    # What changes before the paths are watched has no known author.
    host.write("/etc/app/content", "by hand\n")
    until_drift(host, {"file:/etc/app/content"})
    host.write("/etc/app/content", "as wanted\n")
    until_drift(host, set())
    host.run(["sh", "-c", "sh -c 'echo x >$1; sleep 8' sh /etc/app/content"])
    until_drift(host, {"file:/etc/app/content"})
    (found,) = agent.status(host)["drift"]
    assert found["by"].startswith("sh, pid ")
