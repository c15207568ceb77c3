# SPDX-License-Identifier: Apache-2.0
"""A fallback by a soft reboot on a real systemd host: the kernel stays, all services start again.

The boot of the container is the boot of the kernel; systemd itself counts the soft reboots.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.container.test_fallback import GOOD, MODE, POLICY, QUICK, flaky
from integration.hosts.snapshot import difference

pytestmark = pytest.mark.finding(
    "OS: soft reboots",
    "At most one soft and one full reboot before a revert, whatever happens in between.",
)

SYSCTL = "/etc/sysctl.d/50-flaky.conf"
SOFT = {**QUICK, "reboot": {"soft": "fallback"}}


def started(make_node: HostMaker, policy: str = POLICY) -> Host:
    host = make_node(settings=SOFT, files={agent.POLICY: policy})
    agent.apply(host, GOOD)
    agent.wait_done(host, "good")
    return host


def chosen(host: Host) -> list[str]:
    """Return the words of the journal about fallbacks, and the reasons of warnings about their kind."""
    entries = host.journal(agent.UNIT)
    found = [e["MESSAGE"] for e in entries if "falling back to a" in e["MESSAGE"]]
    words = ["soft" if "falling back to a soft reboot" in message else "full" for message in found]
    refused = [e["NODEAGENT_REASON"] for e in entries if "a full reboot, not a soft one" in e["MESSAGE"]]
    return [*words, *refused]


def kinds(entry: dict[str, Any]) -> tuple[str, int, int]:
    return entry["outcome"], entry["reboots"], entry["soft_reboots"]


@pytest.mark.long
def test_a_soft_reboot_that_cures(make_node: HostMaker) -> None:
    host = started(make_node)
    first = host.boot_id
    before = host.snapshot("/etc", "/var/home")
    answer = json.loads(host.run(["nodeagent", "plan", "--json", "-"], stdin=flaky("new", "x")).stdout)
    assert answer["fallback"] == {"kind": "soft"}
    mode = "fail until-soft-reboot"
    agent.apply(host, flaky("new", mode))
    host.wait_for(lambda: host.soft_reboots == 1, "the userspace starts again", agent.REBOOT_TIMEOUT)
    agent.wait_done(host, "new")
    assert kinds(agent.history(host)[0]) == ("done-after-fallback", 1, 1)
    assert (host.reboots, host.boot_id, agent.status(host)["soft_reboots"]) == (0, first, 1)
    assert host.is_active("flaky.service")
    assert chosen(host) == ["soft"]
    assert agent.status(host)["lease"] is None
    page = "/run/nodeagent/metrics.prom"
    host.wait_for(lambda: "nodeagent_soft_reboots_total 1\n" in host.read_text(page), "the metrics count it")
    changed = difference(before, host.snapshot("/etc", "/var/home"))
    assert [line for line in changed if MODE not in line and agent.DESIRED not in line] == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("mode", ["fail until-reboot", "fail"], ids=["a full one cures", "none cures"])
def test_a_full_one_follows_it_once(make_node: HostMaker, mode: str) -> None:
    host = started(make_node)
    with host.rebooting(timeout=agent.REBOOT_TIMEOUT):
        agent.apply(host, flaky("new", mode))
    entry = agent.wait_outcome(host, "new")
    outcome = "reverted" if mode == "fail" else "done-after-fallback"
    assert kinds(entry) == (outcome, 2, 1)
    assert (host.reboots, host.soft_reboots) == (1, 0), "the count begins again with the kernel"
    assert chosen(host) == ["soft", "full"]
    assert host.read_text(MODE) == ("ok" if mode == "fail" else mode)
    assert host.is_active("flaky.service")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("obstacle", ["masked", "mounted"])
def test_a_host_on_which_it_is_full(make_node: HostMaker, obstacle: str) -> None:
    host = started(make_node)
    if obstacle == "masked":
        host.run(["systemctl", "mask", "soft-reboot.target"])
        reason = "SoftRebootUnsupported"
    else:
        # The tree of another program: systemd would start it.
        host.run(["mkdir", "/run/nextroot"])
        host.run(["mount", "--bind", "/", "/run/nextroot"])
        reason = "NextRootPrepared"
    plan = json.loads(host.run(["nodeagent", "plan", "--json", "-"], stdin=flaky("new", "x")).stdout)
    assert (plan["fallback"]["kind"], plan["fallback"]["reason"]) == ("full", reason)
    with host.rebooting():
        agent.apply(host, flaky("new", "fail until-reboot"))
    assert kinds(agent.wait_outcome(host, "new")) == ("done-after-fallback", 1, 0)
    assert chosen(host) == ["full", reason]


@pytest.mark.slow
@pytest.mark.long
def test_what_only_a_kernel_reads_gets_a_full_one(make_node: HostMaker) -> None:
    actions = ["Restart flaky.service"]
    host = started(make_node, agent.policy(files={"/etc/flaky": actions, "/etc/sysctl.d": actions}))
    config = agent.machine_config("new", files={MODE: "fail until-reboot", SYSCTL: "kernel.panic = 10\n"})
    plan = json.loads(host.run(["nodeagent", "plan", "--json", "-"], stdin=config).stdout)
    assert plan["fallback"]["because"] == [f"file:{SYSCTL}"]
    with host.rebooting():
        agent.apply(host, config)
    assert kinds(agent.wait_outcome(host, "new")) == ("done-after-fallback", 1, 0)
    assert chosen(host) == ["full", "KernelStartNeeded"]
