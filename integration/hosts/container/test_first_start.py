# SPDX-License-Identifier: Apache-2.0
"""The first start on a host, and a newer desired config in the middle of an update."""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container import events
from integration.hosts.container.configs import HOLD, MIRRORED, POLICY_JSON, REGISTRIES, SIGNED, SLOW, SSH_KEY
from integration.hosts.container.conftest import HostMaker
from integration.hosts.nodeagent_client import FileSpec, machine_config, outcomes, unit_events, wait_done, wait_phase
from integration.hosts.snapshot import difference

MCD = "/etc/machine-config-daemon"
UNLISTED = "/etc/kubernetes/unlisted.conf"  # in no policy: a change of it would reboot the host


def test_a_host_that_is_as_desired_is_left_alone(make_node: HostMaker) -> None:
    there = {UNLISTED: "kind: KubeletConfiguration\n", REGISTRIES: MIRRORED}
    config = machine_config("already", files=dict(there))
    host = make_node(files={**there, agent.DESIRED: config})
    wait_done(host, "already")
    inode = host.run(["stat", "--format=%i %y", *there]).stdout
    assert (host.reboots, unit_events(host, "crio.service")) == (0, ["crio.service start"])
    newest = agent.history(host)[0]
    assert (newest["from_name"], newest["outcome"], newest["disruption"]) == ("", "done", "none")
    host.run(["systemctl", "restart", agent.UNIT])
    wait_done(host, "already")
    assert outcomes(host) == [("already", "done")], "a restart of the agent is no update"
    assert host.run(["stat", "--format=%i %y", *there]).stdout == inode


def test_only_what_differs_is_a_change(make_node: HostMaker) -> None:
    host = make_node(files={UNLISTED: "kind: KubeletConfiguration\n"})
    files = {UNLISTED: "kind: KubeletConfiguration\n", POLICY_JSON: SIGNED}
    agent.apply(host, machine_config("partly", files=files))
    wait_done(host, "partly")
    assert unit_events(host, "crio.service", "kubelet.service") == [
        "crio.service start",
        "kubelet.service start",
        "crio.service reload",
    ]
    assert (host.reboots, agent.history(host)[0]["disruption"]) == (0, "reload")


def test_what_the_machine_config_daemon_left_is_adopted(make_node: HostMaker) -> None:
    shipped = '{"default": [{"type": "insecureAcceptAnything"}]}\n'
    current = machine_config("rendered-1", files={POLICY_JSON: SIGNED, "/etc/containers/registries.d/a.yaml": ""})
    host = make_node(
        files={
            f"{MCD}/currentconfig": current,
            f"{MCD}/orig{POLICY_JSON}.mcdorig": shipped,
            f"/usr{POLICY_JSON}": shipped,
            f"{MCD}/noorig/etc/containers/registries.d/a.yaml.mcdnoorig": "",
            POLICY_JSON: SIGNED,
            "/etc/containers/registries.d/a.yaml": "",
        }
    )
    before = host.snapshot(MCD)
    agent.apply(host, machine_config("rendered-2"))
    wait_done(host, "rendered-2")
    newest = agent.history(host)[0]
    assert (newest["from_name"], newest["to_name"], newest["disruption"]) == ("rendered-1", "rendered-2", "reload")
    assert host.read_text(POLICY_JSON) == shipped
    assert not host.exists("/etc/containers/registries.d/a.yaml")
    assert difference(before, host.snapshot(MCD)) == [], "that daemon may come back"
    assert host.reboots == 0


def test_what_cannot_be_adopted_stops_the_agent_and_nothing_else(make_node: HostMaker) -> None:
    host = make_node(files={f"{MCD}/currentconfig": "{ no json"})
    before = agent.managed(host)
    agent.write_desired(host, machine_config("next", files={POLICY_JSON: SIGNED}))
    status = wait_phase(host, "Degraded")
    assert status["reason"] == "AdoptionFailed"
    assert f"{MCD}/currentconfig" in status["message"]
    assert difference(before, agent.managed(host)) == []


@pytest.mark.long
def test_a_newer_config_waits_until_what_was_begun_is_finished(make_node: HostMaker) -> None:
    policy = agent.policy(files={"/etc/slow.conf": ["Restart slow.service"]})
    host = make_node(files={agent.POLICY: policy, "/etc/systemd/system/slow.service": SLOW})
    host.write(HOLD, "")
    agent.apply(host, machine_config("one", files={"/etc/slow.conf": "one"}))
    wait_phase(host, "Acting")
    agent.apply(host, machine_config("two", files={"/etc/slow.conf": "two"}))
    assert host.read_text("/etc/slow.conf") == "one"
    host.run(["rm", HOLD])
    wait_done(host, "two")
    assert outcomes(host) == [("one", "done"), ("two", "done")]
    digests = [event.digest for event in host.events("slow.service")]
    assert digests == [events.digest(b"one"), events.digest(b"two")], "never half of both"


@pytest.mark.long
def test_a_newer_config_takes_over_before_anything_was_written(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: agent.policy(files={"/etc/app": ["None"]})})
    host.run(["nodeagent", "maintenance", "start", "--reason", "disks are swapped"])
    before = agent.managed(host)
    agent.apply(host, machine_config("one", files={"/etc/app/one": "one"}, keys=[SSH_KEY]))
    wait_phase(host, "Leasing")
    agent.apply(host, machine_config("two", files={"/etc/app/two": FileSpec("two")}))
    host.wait_for(lambda: agent.status(host)["desired"] == "two", "the newer config takes over")
    assert difference(before, agent.managed(host)) == []
    host.run(["nodeagent", "maintenance", "stop"])
    wait_done(host, "two")
    assert (host.exists("/etc/app/one"), host.read_text("/etc/app/two")) == (False, "two")
    assert outcomes(host) == [("one", "superseded"), ("two", "done")]
