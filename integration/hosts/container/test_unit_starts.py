# SPDX-License-Identifier: Apache-2.0
"""Units that come, are enabled, disabled, masked and leave, by the recommended policy: systemd does what a boot would,
and the host was not rebooted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image
from integration.hosts.nodeagent_client import UnitSpec, machine_config, wait_done

pytestmark = pytest.mark.long

WANTED = "[Install]\nWantedBy={}.target\n"
LOOP = "[Service]\nExecStart=/usr/bin/sleep infinity\n" + WANTED.format("multi-user")
ONCE = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/sleep 1\n" + WANTED.format("multi-user")
OF_THE_OS = "ring-os.service"

NEW = {
    "ring.service": UnitSpec(LOOP, True),
    "ring-off.service": UnitSpec(LOOP, False),
    "ring-sleep.service": UnitSpec(LOOP.replace("multi-user", "sleep"), True),
    "ring-tick.timer": UnitSpec("[Timer]\nOnActiveSec=1h\n" + WANTED.format("timers"), True),
    "ring-tick.service": UnitSpec("[Service]\nType=oneshot\nExecStart=/usr/bin/true\n"),
    "ring-in.socket": UnitSpec("[Socket]\nListenStream=/run/ring\n" + WANTED.format("sockets"), True),
    "ring-in.service": UnitSpec("[Service]\nExecStart=/usr/bin/sleep infinity\n"),
    "ring@.service": UnitSpec(LOOP.replace("infinity", "%i")),
    "ring@9000.service": UnitSpec(enabled=True),
    # It starts after the other one, whatever its name.
    "a-late.service": UnitSpec(f"[Unit]\nAfter=ring-once.service\n{LOOP}", True),
    "ring-once.service": UnitSpec(ONCE, True),
    OF_THE_OS: UnitSpec(enabled=True),
}


@pytest.fixture
def node(make_host: Callable[..., Host], agent_image: Image) -> Host:
    host = make_host(agent_image)
    agent.settings(host, {"recommended_policy": True})
    host.write(f"/usr/lib/systemd/system/{OF_THE_OS}", LOOP)
    host.boot()
    agent.wait_daemon(host)
    to(host, "base", {})
    return host


def to(host: Host, name: str, units: Mapping[str, UnitSpec]) -> None:
    """Bring the units to the host, without a reboot."""
    before = host.reboots
    agent.write_desired(host, machine_config(name, files={"/etc/motd": "ring\n"}, units=dict(units)))
    wait_done(host, name)
    assert host.reboots == before


def states(host: Host, *units: str) -> list[str]:
    return [host.run(["systemctl", "is-active", unit], check=False).stdout.strip() for unit in units]


def stamp(host: Host, unit: str, member: str) -> int:
    return int(host.run(["systemctl", "show", "-P", f"{member}TimestampMonotonic", unit]).stdout)


def test_units_come_change_and_leave(node: Host) -> None:
    to(node, "new", NEW)
    up = ("ring.service", "ring-tick.timer", "ring-in.socket", "ring@9000.service", "a-late.service", OF_THE_OS)
    assert states(node, *up) == ["active"] * len(up)
    down = ("ring-off.service", "ring-sleep.service", "ring-tick.service", "ring-in.service")
    assert states(node, *down) == ["inactive"] * len(down)
    ended, began = stamp(node, "ring-once.service", "ActiveEnter"), stamp(node, "a-late.service", "InactiveExit")
    assert 0 < ended <= began

    changed = {
        "ring.service": replace(NEW["ring.service"], enabled=False),
        "ring-off.service": replace(NEW["ring-off.service"], enabled=True),
        "ring-tick.timer": replace(NEW["ring-tick.timer"], mask=True),
        "ring@9000.service": UnitSpec(enabled=False),
        OF_THE_OS: UnitSpec(enabled=False),
    }
    to(node, "changed", {**NEW, **changed})
    assert states(node, *changed) == ["inactive", "active", "inactive", "inactive", "inactive"]
    to(node, "back", NEW)
    assert states(node, *changed) == ["active", "inactive", "active", "active", "active"]
    # What a oneshot has done stays until a boot, so that one stays as well.
    gone = ("ring.service", "ring-tick.timer", "ring-in.socket", "a-late.service", "ring@9000.service", OF_THE_OS)
    to(node, "gone", {unit: spec for unit, spec in NEW.items() if unit not in gone})
    assert states(node, *gone) == ["inactive"] * len(gone)
    enabled = node.run(["systemctl", "is-enabled", OF_THE_OS, "ring@9000.service"], check=False).stdout.split()
    assert enabled == ["disabled", "disabled"]


def test_what_fails_is_taken_back(node: Host) -> None:
    kept = {"ring.service": UnitSpec(LOOP, True), OF_THE_OS: UnitSpec(enabled=True)}
    to(node, "first", kept)
    broken = {
        "ring.service": replace(kept["ring.service"], enabled=False),
        OF_THE_OS: UnitSpec(enabled=True),
        "ring-new.service": UnitSpec(LOOP, True),
        "ring-z.service": UnitSpec(LOOP.replace("/usr/bin/sleep", "/usr/bin/false"), True),
    }
    agent.write_desired(node, machine_config("broken", files={"/etc/motd": "ring\n"}, units=broken))
    assert agent.wait_outcome(node, "broken")["outcome"] == "reverted"
    assert states(node, "ring.service", "ring-new.service", OF_THE_OS) == ["active", "inactive", "active"]


def test_what_waits_for_a_boot(node: Host) -> None:
    def planned(**units: UnitSpec) -> tuple[list[str], str]:
        named = {name.replace("_", "."): unit for name, unit in units.items()}
        config = machine_config("plan", files={"/etc/motd": "ring\n"}, units=named)
        plan = json.loads(node.run(["nodeagent", "plan", "--json", "-"], stdin=config).stdout)
        return [action["type"] for action in plan["actions"]], plan["changes"][0]["why"]

    boot = ["Drain", "Reboot"]
    mount = "[Mount]\nWhat=tmpfs\nWhere=/srv\nType=tmpfs\n" + WANTED.format("multi-user")
    assert planned(srv_mount=UnitSpec(mount, True)) == (boot, "programs keep what they have open below it")
    early = UnitSpec(f"[Unit]\nBefore=ssh.service\n{LOOP}", True)
    assert planned(early_service=early) == (boot, "a boot starts it before ssh.service")
    # The host has another unit of this name, which runs.
    assert planned(**{"ring-os_service": UnitSpec(f"# mine\n{LOOP}", True)})[0] == boot
