# SPDX-License-Identifier: Apache-2.0
"""Units: contents, drop-ins, enablement and masks, and the way back from each of them."""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import APP
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import UnitSpec, machine_config, unit_events, wait_done
from integration.hosts.snapshot import Entry, difference

WANTS = "/etc/systemd/system/multi-user.target.wants"
PRESET = "/etc/systemd/system-preset/10-ring.preset"
POLICY = agent.policy(
    files={"/etc/app.conf": ["Restart app.service"]},
    units={
        "app.service": ["DaemonReload", "Restart app.service"],
        "reloadable.service": ["DaemonReload", "Restart reloadable.service"],
        "kubelet.service": ["DaemonReload"],
        "flaky.service": ["DaemonReload"],
        "wanted.service": ["DaemonReload"],
        "unwanted.service": ["DaemonReload"],
    },
)


def enablement(host: Host, unit: str) -> str:
    return host.run(["systemctl", "is-enabled", unit], check=False).stdout.strip()


def update(host: Host, name: str, **units: UnitSpec) -> None:
    agent.apply(host, machine_config(name, units={f"{unit}.service": about for unit, about in units.items()}))
    wait_done(host, name)


def system(host: Host) -> dict[str, Entry]:
    return host.snapshot("/etc/systemd")


def test_a_unit_comes_changes_and_goes(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: POLICY})
    before = system(host)
    update(host, "new", app=UnitSpec(APP, enabled=True))
    assert enablement(host, "app.service") == "enabled"
    assert host.is_active("app.service")
    assert unit_events(host, "app.service") == ["app.service start"]
    assert host.run(["readlink", f"{WANTS}/app.service"]).stdout.strip() == "/etc/systemd/system/app.service"

    # The old [Install] section is what names the old links, so they go before it does.
    update(host, "elsewhere", app=UnitSpec(APP.replace("multi-user.target", "basic.target"), enabled=True))
    assert not host.exists(f"{WANTS}/app.service")
    assert host.exists("/etc/systemd/system/basic.target.wants/app.service")
    assert unit_events(host, "app.service") == [f"app.service {event}" for event in ("start", "stop", "start")]
    assert host.unit("app.service", "NeedDaemonReload")["NeedDaemonReload"] == "no"

    update(host, "disabled", app=UnitSpec(APP, enabled=False))
    assert enablement(host, "app.service") == "disabled"
    update(host, "gone")
    assert difference(before, system(host)) == []
    assert host.reboots == 0
    assert {entry["outcome"] for entry in agent.history(host)} == {"done"}


@pytest.mark.long
def test_a_drop_in_takes_effect_and_goes(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: POLICY})
    before = system(host)
    update(host, "with", reloadable=UnitSpec(dropins={"10-ring.conf": "[Service]\nEnvironment=RING=1\n"}))
    assert "RING=1" in host.unit("reloadable.service", "Environment")["Environment"]
    pid = host.unit("reloadable.service", "MainPID")["MainPID"]
    assert "RING=1" in host.read_text(f"/proc/{pid}/environ"), "restarted after the daemon-reload, not before"
    events = unit_events(host, "reloadable.service")
    assert events == [f"reloadable.service {event}" for event in ("start", "stop", "start")]
    update(host, "without")
    assert "RING=1" not in host.unit("reloadable.service", "Environment")["Environment"]
    assert difference(before, system(host)) == []
    assert host.reboots == 0


def test_enablement_masks_and_presets_come_back(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: POLICY, PRESET: "disable unwanted.service\nenable wanted.service\n"})
    before = system(host)
    idle = "[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
    update(
        host,
        "with",
        kubelet=UnitSpec(enabled=False),
        flaky=UnitSpec(mask=True),
        wanted=UnitSpec(idle),
        unwanted=UnitSpec(idle),
    )
    found = {
        unit: enablement(host, f"{unit}.service") for unit in ("kubelet", "flaky", "wanted", "unwanted", "reloadable")
    }
    assert found == {
        "kubelet": "disabled",
        "flaky": "masked",
        "wanted": "enabled",
        "unwanted": "disabled",
        "reloadable": "enabled",
    }
    assert host.run(["readlink", "/etc/systemd/system/flaky.service"]).stdout.strip() == "/dev/null"
    update(host, "without")
    assert enablement(host, "kubelet.service") == "enabled"
    assert enablement(host, "flaky.service") == "enabled"
    assert difference(before, system(host)) == []
    assert host.reboots == 0
