# SPDX-License-Identifier: Apache-2.0
"""``on_blocked: apply-safe-parts``: a window is closed, or a reboot is not allowed, and keys and registries arrive."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import ANCHOR, CERTIFICATE, HOLD, MIRRORED, REGISTRIES, SLOW, SSH_KEY
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import UnitSpec, machine_config, outcomes, unit_events, wait_done, wait_phase
from nodeagent.report.views.registry import views
from nodeagent.update.ports.events import SafePartsApplied

KEYS = "/home/core/.ssh/authorized_keys.d/ignition"
OTHER_KEY = SSH_KEY.replace("5aV ring", "5aW ring")
# Not in any policy, so that its change needs a reboot.
UNLISTED = "/etc/unlisted"


def closed(host: Host) -> dict[str, Any]:
    """A window in three days, and safe parts before it."""
    day = host.run(["date", "-u", "-d", "3 days", "+%a"]).stdout.strip().lower()
    return {"on_blocked": "apply-safe-parts", "windows": {"open": [f"{day} 00:00 60"], "zone": "UTC"}}


def base(name: str, unlisted: str, *keys: str, **files: str) -> str:
    """``files`` are the registries and the certificate authority."""
    paths = {"registries": REGISTRIES, "anchor": ANCHOR, "slow": "/etc/slow.conf"}
    given = {UNLISTED: unlisted, **{paths[each]: text for each, text in files.items()}}
    return machine_config(name, files=dict(given), units={"slow.service": UnitSpec(SLOW)}, keys=keys)


def first(make_node: HostMaker) -> Host:
    policy = agent.policy(files={"/etc/slow.conf": ["Restart slow.service"]})
    host = make_node(files={agent.POLICY: policy})
    agent.write_desired(host, base("old", "1", SSH_KEY))
    wait_done(host, "old", agent.REBOOT_TIMEOUT)
    return host


def use(host: Host, settings: dict[str, Any]) -> None:
    agent.settings(host, settings)
    host.run(["systemctl", "reload", agent.UNIT])


def partial(host: Host) -> dict[str, Any] | None:
    found: dict[str, Any] | None = agent.status(host)["partial"]
    return found


@pytest.mark.long
def test_a_key_and_an_authority_arrive_and_the_reboot_waits_for_its_window(make_node: HostMaker) -> None:
    host = first(make_node)
    use(host, closed(host))
    reboots, before = host.reboots, len(host.events())
    config = base("new", "2", OTHER_KEY, anchor=CERTIFICATE)
    planned = json.loads(host.run(["nodeagent", "plan", "-", "--json"], stdin=config).stdout)
    agent.write_desired(host, config)
    wait_phase(host, "Leasing", reason="WindowClosed")
    host.wait_for(lambda: partial(host) is not None, "the safe parts are applied")
    status = wait_phase(host, "Leasing", reason="WindowClosed")
    assert status["partial"]["applied"] == planned["parts"]["safe"] == [f"file:{ANCHOR}", "sshkey:core"]
    assert status["partial"]["waits"] == [{"change": f"file:{UNLISTED}", "for": "Drain, Reboot"}]
    assert (status["current"], status["desired"], status["lease"]) == ("old", "new", None)
    assert OTHER_KEY in host.read_text(KEYS)
    assert unit_events(host, since=before)[-2:] == ["crio.service stop", "crio.service start"]
    assert (host.read_text(UNLISTED), host.reboots) == ("1", reboots)
    shown = host.run(["nodeagent", "status"]).stdout
    assert "2 of 3 changes of new are applied" in shown
    assert f"file:{UNLISTED}: Drain, Reboot" in shown
    (entry,) = host.journal(match={"MESSAGE_ID": views()[SafePartsApplied].id})
    assert (entry["NODEAGENT_REASON"], entry["NODEAGENT_WAITS"]) == ("WindowClosed", "1")
    # The file of the metrics follows the status after a moment.
    host.wait_for(
        lambda: "nodeagent_waiting_changes 1" in host.read_text("/run/nodeagent/metrics.prom"),
        "the metric of what waits",
    )

    # What waits is no drift; an applied part that is changed manually is.
    verified = json.loads(host.run(["nodeagent", "verify", "--json"]).stdout)
    assert (verified["ok"], verified["waits"]) == (True, [f"file:{UNLISTED}"])
    host.write(ANCHOR, CERTIFICATE + "\n")
    host.wait_for(lambda: [e["entry"] for e in agent.status(host)["drift"]] == [f"file:{ANCHOR}"], "drift", 20)
    host.write(ANCHOR, CERTIFICATE)

    host.power_cut()
    agent.wait_daemon(host)
    wait_phase(host, "Leasing", reason="WindowClosed")
    assert partial(host) == status["partial"]
    with host.rebooting():
        use(host, {})
    agent.wait_daemon(host)
    wait_done(host, "new", agent.REBOOT_TIMEOUT)
    assert (host.read_text(UNLISTED), partial(host)) == ("2", None)
    assert outcomes(host)[-2:] == [("new", "partial"), ("new", "done")]


@pytest.mark.long
def test_a_power_cut_while_the_safe_parts_are_applied(make_node: HostMaker) -> None:
    host = first(make_node)
    use(host, closed(host))
    host.run(["systemctl", "start", "slow.service"])
    host.write(HOLD, "")
    agent.write_desired(host, base("new", "2", OTHER_KEY, slow="x"))
    wait_phase(host, "Acting")
    host.power_cut()
    agent.wait_daemon(host)
    host.wait_for(lambda: partial(host) is not None, "the safe parts are applied", agent.REBOOT_TIMEOUT)
    wait_phase(host, "Leasing", reason="WindowClosed")
    assert OTHER_KEY in host.read_text(KEYS)
    assert host.read_text("/etc/slow.conf") == "x"
    assert host.read_text(UNLISTED) == "1"
    assert outcomes(host)[-1] == ("new", "partial")
    # The current config takes them back, also outside of the window.
    agent.write_desired(host, base("old", "1", SSH_KEY))
    host.wait_for(lambda: partial(host) is None, "the parts are taken back")
    wait_done(host, "old")
    assert OTHER_KEY not in host.read_text(KEYS)
    assert not host.exists("/etc/slow.conf")
    assert partial(host) is None


@pytest.mark.long
def test_registries_are_fixed_on_a_degraded_host(make_node: HostMaker) -> None:
    host = first(make_node)
    use(host, {"on_blocked": "apply-safe-parts", "reboot": {"allow": False}})
    agent.write_desired(host, base("stuck", "2", SSH_KEY))
    assert wait_phase(host, "Degraded")["reason"] == "RebootNotAllowed"
    before, original = len(host.events()), host.read_text(REGISTRIES)
    agent.write_desired(host, base("fixed", "2", SSH_KEY, registries=MIRRORED))
    host.wait_for(lambda: partial(host) is not None, "the safe parts are applied")
    status = wait_phase(host, "Degraded", reason="RebootNotAllowed")
    assert (status["partial"]["config"], status["partial"]["applied"]) == ("fixed", [f"file:{REGISTRIES}"])
    assert host.read_text(REGISTRIES) == MIRRORED
    assert unit_events(host, since=before) == ["crio.service reload"]
    assert host.read_text(UNLISTED) == "1"
    host.run(["nodeagent", "rollback", "--wait"], check=False)
    host.wait_for(lambda: partial(host) is None, "the parts are taken back")
    assert host.read_text(REGISTRIES) == original != MIRRORED
    assert wait_done(host, "old")["current"] == "old"
