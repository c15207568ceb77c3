# SPDX-License-Identifier: Apache-2.0
"""Planned reboots: once, verified afterwards, and with respect for programs and people on the host."""

from __future__ import annotations

import time

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, outcomes, wait_done, wait_phase

UNLISTED = "/etc/kubernetes/unlisted.conf"  # in no policy, so its change asks for a reboot


def start_update(host: Host, name: str = "rebooted") -> None:
    agent.apply(host, machine_config(name, files={UNLISTED: f"name: {name}\n"}))


def test_an_unlisted_file_reboots_the_host_once(node: Host) -> None:
    first = node.boot_id
    with node.rebooting():
        start_update(node)
    status = wait_done(node, "rebooted")
    assert node.boot_id not in ("", first)
    assert (node.reboots, status["boot_id"], status["lease"]) == (1, node.boot_id, None)
    assert node.read_text(UNLISTED) == "name: rebooted\n"
    newest = agent.history(node)[0]
    assert (newest["outcome"], newest["disruption"], newest["reboots"]) == ("done", "reboot", 1)
    assert newest["reboot_avoided"] is False
    # The record was on the disk before the host went down, and the agent of the next boot went on from it.
    entries = agent.update_journal(node, newest["update_id"])
    assert {entry["_BOOT_ID"] for entry in entries} == {first.replace("-", ""), node.boot_id.replace("-", "")}
    assert any("resuming" in entry["MESSAGE"] for entry in entries)
    time.sleep(1)
    assert node.reboots == 1


def test_a_reboot_waits_for_who_blocks_it(node: Host) -> None:
    agent.block_reboots(node)
    start_update(node)

    def blocked() -> dict[str, object] | None:
        status = agent.status(node)
        return status if status["reason"] == "RebootBlocked" else None

    status = node.wait_for(blocked, "the agent says that it waits")
    assert status["phase"] == "Rebooting"
    assert "backup" in str(status["message"])
    assert "nightly backup" in str(status["message"])
    said = node.run(["nodeagent", "status"]).stdout
    assert "nightly backup" in said
    time.sleep(1)
    assert node.reboots == 0
    with node.rebooting():
        agent.unblock_reboots(node)
    wait_done(node, "rebooted")
    assert node.reboots == 1


@pytest.mark.long
def test_a_reboot_waits_for_as_long_as_set_and_no_longer(make_node: HostMaker) -> None:
    host = make_node(settings={"reboot": {"inhibitor_wait": 1, "inhibitor_override": True}})
    agent.block_reboots(host)
    with host.rebooting():
        start_update(host)
    wait_done(host, "rebooted")
    assert any("overriding for the reboot: backup" in entry["MESSAGE"] for entry in host.journal(agent.UNIT))


@pytest.mark.long
def test_a_reboot_that_stays_blocked_degrades_where_it_may_not_override(make_node: HostMaker) -> None:
    host = make_node(settings={"reboot": {"inhibitor_wait": 1, "inhibitor_override": False}})
    agent.block_reboots(host)
    start_update(host)
    status = wait_phase(host, "Degraded")
    assert (status["reason"], host.reboots) == ("RebootBlocked", 0)
    assert "nightly backup" in status["message"]
    assert outcomes(host) == [("rebooted", "degraded")]


@pytest.mark.long
def test_people_who_are_logged_in_are_warned(make_node: HostMaker) -> None:
    host = make_node(settings={"reboot": {"warn_users": 2}})
    host.log_in("core")
    with host.rebooting():
        start_update(host)
        scheduled = host.wait_for(
            lambda: host.read_text("/run/systemd/shutdown/scheduled"), "the shutdown is announced", every=0.02
        )
        announced = time.monotonic()
    assert "MODE=reboot" in scheduled
    assert "rebooted" in scheduled, "it says what the reboot is for"
    assert time.monotonic() - announced > 1.5
    wait_done(host, "rebooted")


@pytest.mark.long
def test_a_reboot_that_is_not_allowed_is_refused_before_anything_is_written(make_node: HostMaker) -> None:
    host = make_node(settings={"reboot": {"allow": False}})
    refused = agent.apply_command(host, machine_config("rebooted", files={UNLISTED: "x"}), check=False)
    assert (refused.returncode, host.exists(UNLISTED)) == (4, False)
    assert "RebootNotAllowed" in refused.stderr
    assert UNLISTED in refused.stderr
