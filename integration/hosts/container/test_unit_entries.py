# SPDX-License-Identifier: Apache-2.0
"""Entries of units on a real systemd: what the same config brings, what exists nowhere, and what systemd refuses."""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import UnitSpec, machine_config, wait_done

SLEEP = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
GENERATOR = """#!/bin/sh
for each in /etc/containers/systemd/*.container; do
    name=$(basename "$each" .container)
    printf '[Service]\\nExecStart=/bin/sleep infinity\\n' > "$1/$name.service"
done
"""


def said(host: Host, name: str) -> str:
    """Return the message of the update to a config, which is done."""
    wait_done(host, name)
    return str(agent.history(host)[0]["message"])


def enabled(host: Host, unit: str) -> str:
    return host.run(["systemctl", "is-enabled", unit], check=False).stdout.strip()


def refusal(host: Host, config: str) -> str:
    """Return why ``plan`` and ``apply`` refuse a config, which is the same."""
    plan = host.run(["nodeagent", "plan", "-"], stdin=config, check=False)
    apply = agent.apply_command(host, config, check=False)
    assert (plan.returncode, apply.returncode) == (2, 2)
    assert plan.stderr == apply.stderr
    return apply.stderr


@pytest.mark.slow
@pytest.mark.finding(
    "units: presets", "A first config enables the instances of a template that it brings, in one reboot."
)
def test_a_first_config_enables_what_it_brings(make_node: HostMaker) -> None:
    host = make_node()
    files = {"/etc/systemd/system/byfile.service": SLEEP}
    units = {
        "echo@.service": UnitSpec(SLEEP),
        "echo@foo.service": UnitSpec(enabled=True),
        "byfile.service": UnitSpec(enabled=True),
        "chronnyd.service": UnitSpec(enabled=True),
    }
    agent.apply(host, machine_config("first", files=files, units=units))
    wait_done(host, "first", agent.REBOOT_TIMEOUT)
    entry = agent.history(host)[0]
    assert (entry["outcome"], host.reboots) == ("done", 1)
    assert "there is no unit chronnyd.service" in entry["message"]
    for unit in ("echo@foo.service", "byfile.service"):
        assert (enabled(host, unit), host.is_active(unit)) == ("enabled", True), unit


@pytest.mark.long
@pytest.mark.finding(
    "users: units that exist nowhere",
    "A unit that exists nowhere costs nothing, neither when its entry comes nor when it goes.",
)
def test_a_unit_from_nowhere_costs_nothing(make_node: HostMaker) -> None:
    host = make_node()
    agent.apply(host, machine_config("base", files={}))
    wait_done(host, "base")
    typo = machine_config("typo", units={"kublet.service": UnitSpec(enabled=True)})
    strict = agent.apply_command(host, typo, "--strict", check=False)
    assert (strict.returncode, "did you mean kubelet.service?" in strict.stderr) == (2, True)
    agent.apply(host, typo)
    assert "did you mean kubelet.service?" in said(host, "typo")
    host.wait_for(lambda: "kublet.service" in str(agent.status(host)["problems"]) or None, "the warning in the status")
    agent.apply(host, machine_config("gone"))
    wait_done(host, "gone")
    host.wait_for(lambda: not agent.status(host)["problems"] or None, "the end of the warning")
    assert host.reboots == 0


@pytest.mark.long
@pytest.mark.finding("units: aliases", "What systemd refuses to enable is refused before the lease, by plan as well.")
def test_what_systemd_does_not_enable(make_node: HostMaker) -> None:
    host = make_node(
        files={"/etc/systemd/system/real.service": SLEEP.replace("[Install]", "[Install]\nAlias=nick.service")}
    )
    host.run(["systemctl", "enable", "real.service"])
    host.run(["systemctl", "mask", "flaky.service"])
    host.write("/etc/systemd/system/tpl@.service", SLEEP)
    for name, units, why in (
        ("nick", {"nick.service": UnitSpec(enabled=True)}, "unit:nick.service: is an alias of real.service"),
        ("off", {"nick.service": UnitSpec(enabled=False)}, "unit:nick.service: is an alias of real.service"),
        ("masked", {"flaky.service": UnitSpec(enabled=True)}, "unit:flaky.service: is masked on this host"),
        ("tpl", {"tpl@.service": UnitSpec(enabled=True)}, "is a template without DefaultInstance="),
    ):
        assert why in refusal(host, machine_config(name, units=units))
    assert agent.history(host) == []
    assert host.reboots == 0


@pytest.mark.long
@pytest.mark.finding(
    "units: generators", "A policy that names the service of a generator accepts the config that brings it."
)
def test_a_generated_unit(make_node: HostMaker) -> None:
    path = "/etc/containers/systemd/web.container"
    policy = agent.policy(
        files={path: ["DaemonReload", "Restart web.service"]}, units={"web.service": ["DaemonReload"]}
    )
    host = make_node(files={agent.POLICY: policy})
    host.write("/etc/systemd/system-generators/quad", GENERATOR, mode=0o755)
    units = {"web.service": UnitSpec(enabled=True)}
    agent.apply(host, machine_config("quadlet", files={path: "[Container]\n"}, units=units))
    assert f"[Install] of {path} decides" in said(host, "quadlet")
    assert host.is_active("web.service")
    agent.apply(host, machine_config("changed", files={path: "[Container]\n#\n"}, units=units))
    assert "web.service is made by a generator" in said(host, "changed")
    assert host.reboots == 0


@pytest.mark.long
@pytest.mark.finding(
    "units: what systemd can do with a unit",
    "A policy with an action that systemd rejects is refused before the lease.",
)
def test_actions_that_systemd_rejects(make_node: HostMaker) -> None:
    policy = agent.policy(files={"/etc/x": ["Reload nor.service"], "/etc/y": ["Restart rms.service"]})
    host = make_node(files={agent.POLICY: policy})
    host.write("/etc/systemd/system/nor.service", SLEEP)
    host.write("/etc/systemd/system/rms.service", f"[Unit]\nRefuseManualStop=yes\n{SLEEP}")
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "start", "nor.service", "rms.service"])
    message = refusal(host, machine_config("both", files={"/etc/x": "1", "/etc/y": "1"}))
    assert "nodeDisruptionPolicy: nor.service: it cannot be reloaded, because it has no ExecReload=" in message
    assert "nodeDisruptionPolicy: rms.service: it cannot be restarted, because RefuseManualStop=" in message
    dropins = {"10-reload.conf": "[Service]\nExecReload=/bin/true\n"}
    policy = agent.policy(
        files={"/etc/x": ["DaemonReload", "Reload nor.service"]}, units={"nor.service": ["DaemonReload"]}
    )
    host.write(agent.POLICY, policy)
    agent.apply(host, machine_config("fits", files={"/etc/x": "1"}, units={"nor.service": UnitSpec(dropins=dropins)}))
    wait_done(host, "fits")
    assert host.reboots == 0
