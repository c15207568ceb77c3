"""Somebody else changes managed files: `verify` says what, an update is refused or repairs it, as set."""

from __future__ import annotations

import json

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import POLICY_JSON, SIGNED, SSH_KEY
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import UnitSpec, machine_config, outcomes, wait_done, wait_phase

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
    host.write(KEYS, "ssh-ed25519 AAAA somebody\n", mode=0o600, owner="core")


def test_drift_is_found_and_an_update_is_refused(make_node: HostMaker) -> None:
    host = configured(make_node)
    verified = host.run(["nodeagent", "verify", "--json"])
    assert json.loads(verified.stdout) == {
        "schema": "nodeagent/verify/v1",
        "config": "good",
        "ok": True,
        "drift": [],
    }
    drift(host)
    verified = host.run(["nodeagent", "verify", "--json"], check=False)
    assert verified.returncode == 1
    found = {each["entry"]: each["why"] for each in json.loads(verified.stdout)["drift"]}
    assert set(found) == ENTRIES
    assert DROPIN in found["unit:kubelet.service"]
    shown = host.run(["nodeagent", "verify"], check=False).stdout
    assert all(entry in shown for entry in ENTRIES)
    assert "by hand" not in shown, "what is in a file is nobody's business"

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


def test_drift_is_repaired_where_that_is_set(make_node: HostMaker) -> None:
    host = configured(make_node, on_drift="repair")
    drift(host)
    agent.apply(host, config("next", "x"))
    wait_done(host, "next")
    assert host.run(["nodeagent", "verify"]).returncode == 0
    assert host.read_text("/etc/app/content") == "as wanted\n"
    assert host.read_text(KEYS) == f"{SSH_KEY}\n"
    assert host.reboots == 0


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


def test_more_than_a_revert_can_keep_is_refused_before_anything_is_written(make_node: HostMaker) -> None:
    host = configured(make_node)
    large = {f"/etc/app/large-{index}": "small" for index in range(5)}
    for path in large:
        host.run(["truncate", "-s", "60M", path])
    host.write("/etc/app/directory/entry", "")
    refused = agent.apply_command(host, machine_config("large", files=dict(large)), "--json", check=False)
    assert (refused.returncode, json.loads(refused.stderr)["reason"]) == (4, "RevertTooLarge")
    blocked = machine_config("blocked", files={"/etc/app/directory": ""})
    refused = agent.apply_command(host, blocked, "--json", check=False)
    assert (refused.returncode, json.loads(refused.stderr)["reason"]) == (4, "PathBlocked")
    assert outcomes(host) == [("good", "done")]


def test_drift_that_the_new_config_wants_anyway_is_none(make_node: HostMaker) -> None:
    host = configured(make_node)
    host.write("/etc/app/extra", "x")
    agent.apply(host, config("next", "x"))
    wait_done(host, "next")
    host.write("/etc/app/extra", "y")
    agent.apply(host, config("last", "y"))
    wait_done(host, "last")
    assert host.reboots == 0
