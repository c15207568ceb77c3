# SPDX-License-Identifier: Apache-2.0
"""The links that enable units: those of a config, and those of the host beside it, on the systemd of a real host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import UnitSpec, machine_config, wait_outcome
from integration.hosts.snapshot import Entry, difference

UNITS = "/etc/systemd/system"
# A policy has no entries for templates and instances: a change of them reboots the host.
NAMES = ("z.service", "z.socket", "b.service", "a.service", "my.target", "i.service", "f.service")
POLICY = agent.policy(
    files={"/etc/boom": ["Restart boom.service"], f"{UNITS}/f.service": ["DaemonReload"]},
    units={name: ["DaemonReload"] for name in NAMES},
)
MY_TARGET = """\
[Unit]
Requires=multi-user.target
After=multi-user.target
AllowIsolate=yes
[Install]
Alias=default.target
"""
BOOM = "[Service]\nExecStart=/bin/sh -c 'grep -q ok /etc/boom && exec sleep infinity; exit 1'\n"


def unit(*lines: str, wanted: str = "multi-user.target") -> str:
    return "\n".join(["[Service]", "ExecStart=/bin/sleep infinity", "[Install]", f"WantedBy={wanted}", *lines, ""])


HOST_UNITS = {
    f"{UNITS}/boom.service": f"{BOOM}[Install]\nWantedBy=multi-user.target\n",
    f"{UNITS}/a.service": unit("Alias=bus.service"),
    f"{UNITS}/z.service": unit("Also=z.socket"),
    f"{UNITS}/z.socket": "[Socket]\nListenStream=/run/z.sock\n[Install]\nWantedBy=sockets.target\n",
}


@pytest.fixture
def host(make_node: HostMaker) -> Host:
    """A host whose admin enabled units in several ways, and that has its first config."""
    made = make_node(files={agent.POLICY: POLICY, **HOST_UNITS, "/etc/boom": "ok\n"})
    made.run(["systemctl", "daemon-reload"])
    made.run(["systemctl", "enable", "--now", "boom.service", "a.service", "z.socket"])
    made.run(["systemctl", "set-default", "multi-user.target"])
    made.run(["systemctl", "add-wants", "basic.target", "a.service"])
    update(made, "first")
    return made


def update(host: Host, name: str, units: Mapping[str, UnitSpec] | None = None, **more: Any) -> None:
    agent.apply(host, machine_config(name, units=units or {}, **more))
    assert wait_outcome(host, name)["outcome"] == "done"


def links(host: Host) -> dict[str, Entry]:
    return {path: entry for path, entry in host.snapshot(UNITS).items() if entry.kind == "link"}


def enabled(host: Host, *units: str) -> list[str]:
    return host.run(["systemctl", "is-enabled", *units], check=False).stdout.split()


@pytest.mark.finding(
    "units: changed templates", "A changed template keeps the links of its instances, also those of an admin."
)
@pytest.mark.finding(
    "units: instances of a changed template",
    "Instances that a config enables stay enabled when their template changes.",
)
@pytest.mark.long
def test_a_changed_template_keeps_its_instances(host: Host) -> None:
    before = links(host)
    instances = {f"echo@{name}.service": UnitSpec(enabled=True) for name in ("foo", "bar")}
    update(host, "one", {"echo@.service": UnitSpec(unit()), **instances})
    host.run(["systemctl", "enable", "--now", "echo@admin.service"])
    with_admin = links(host)
    update(host, "two", {"echo@.service": UnitSpec(unit("# 2")), **instances})
    assert links(host) == with_admin
    assert enabled(host, "echo@foo.service", "echo@bar.service", "echo@admin.service") == ["enabled"] * 3
    assert host.is_active("echo@admin.service")
    update(host, "three", {"echo@.service": UnitSpec(unit(wanted="basic.target")), **instances})
    assert host.exists(f"{UNITS}/basic.target.wants/echo@foo.service")
    assert not host.exists(f"{UNITS}/multi-user.target.wants/echo@foo.service")
    host.run(["systemctl", "disable", "--now", "echo@admin.service"])
    update(host, "none")
    assert difference(before, links(host)) == []


@pytest.mark.long
@pytest.mark.finding(
    "units: links of other units", "A unit that leaves takes no link of another unit with it, whatever Also= names."
)
@pytest.mark.finding(
    "units: other units in Also=", "Each entry has the enablement that it demands, whatever Also= of another names."
)
def test_entries_that_also_connects_hold_at_the_same_time(host: Host) -> None:
    before = links(host)
    update(host, "on", {"z.service": UnitSpec(enabled=True)})
    assert enabled(host, "z.service", "z.socket") == ["enabled", "enabled"]
    update(host, "none")
    assert difference(before, links(host)) == []
    update(host, "both", {"z.service": UnitSpec(enabled=False), "z.socket": UnitSpec(enabled=True)})
    assert enabled(host, "z.socket") == ["enabled"]
    update(host, "other", {"z.service": UnitSpec(enabled=True), "z.socket": UnitSpec(enabled=False)})
    assert enabled(host, "z.service", "z.socket") == ["enabled", "disabled"]
    update(host, "none-again")
    assert difference(before, links(host)) == []
    assert host.reboots == 0


@pytest.mark.long
@pytest.mark.finding("units: links of an admin", "A reverted update leaves the links of the host as they were.")
@pytest.mark.finding("units: failed units that were taken away", "No unit that an update took away stays failed.")
def test_a_revert_gives_the_links_of_the_host_back(host: Host) -> None:
    before = host.snapshot(UNITS)
    agent.apply(
        host,
        machine_config(
            "bad",
            files={"/etc/boom": "bad\n"},
            units={
                "b.service": UnitSpec(unit("Alias=bus.service"), enabled=True),
                "my.target": UnitSpec(MY_TARGET, enabled=True),
                "z.service": UnitSpec(enabled=False),
                "a.service": UnitSpec(mask=True),
            },
        ),
    )
    assert wait_outcome(host, "bad")["outcome"] == "reverted"
    assert difference(before, host.snapshot(UNITS)) == []
    assert host.run(["systemctl", "get-default"]).stdout.strip() == "multi-user.target"
    assert enabled(host, "a.service", "z.socket", "bus.service") == ["enabled", "enabled", "alias"]
    host.run(["nodeagent", "verify"])


@pytest.mark.finding(
    "units: links of an admin", "Links from before come back when the entry leaves that replaced them."
)
def test_links_come_back_when_the_entry_leaves(host: Host) -> None:
    before = links(host)
    my = UnitSpec(MY_TARGET, enabled=True)
    update(host, "with", {"b.service": UnitSpec(unit("Alias=bus.service"), enabled=True), "my.target": my})
    assert host.run(["systemctl", "get-default"]).stdout.strip() == "my.target"
    update(host, "without")
    assert difference(before, links(host)) == []
    update(host, "off", {"a.service": UnitSpec(enabled=False)})
    assert enabled(host, "a.service") == ["disabled"]
    assert not host.exists(f"{UNITS}/basic.target.wants/a.service")
    update(host, "none")
    assert difference(before, links(host)) == []


@pytest.mark.long
@pytest.mark.finding(
    "units: drift of links", "Links follow the [Install] section of a unit in storage.files and of a drop-in."
)
@pytest.mark.finding(
    "units: install sections", "Links follow an [Install] section that is not in the contents of the entry."
)
def test_links_follow_an_install_section_elsewhere(host: Host) -> None:
    before = links(host)
    for target in ("multi-user.target", "timers.target"):
        dropin = {"10-i.conf": f"[Install]\nWantedBy={target}\n"}
        i = UnitSpec("[Service]\nExecStart=/bin/true\n", enabled=True, dropins=dropin)
        units = {"i.service": i, "f.service": UnitSpec(enabled=True)}
        update(host, target, units, files={f"{UNITS}/f.service": unit(wanted=target)})
        mine = sorted(path for path in links(host).keys() - before.keys())
        assert mine == [f"{UNITS}/{target}.wants/{name}.service" for name in "fi"]
    host.run(["rm", f"{UNITS}/timers.target.wants/i.service"])
    shown = host.run(["nodeagent", "verify"], check=False).stdout
    assert re.search(r"^unit:i.service +is disabled$", shown, re.MULTILINE), shown
    host.run(["systemctl", "enable", "i.service"])
    host.run(["nodeagent", "verify"])
    update(host, "none")
    assert difference(before, links(host)) == []
