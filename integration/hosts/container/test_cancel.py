# SPDX-License-Identifier: Apache-2.0
"""`nodeagent cancel`, `apply --at`, `--no-reboot` and `reboot`, and the question of `apply`, on a real host."""

from __future__ import annotations

import time

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container import events
from integration.hosts.container.configs import HOLD, SLOW
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.container.test_reboot import UNLISTED, start_update
from integration.hosts.nodeagent_client import (
    machine_config,
    outcomes,
    wait_done,
    wait_outcome,
    wait_phase,
)

FILE = "/root/next.yaml"
POLICY = agent.policy(files={"/etc/slow.conf": ["Restart slow.service"]})


def first(host: Host, **files: str) -> None:
    """Apply a first config, to which a cancellation goes back."""
    agent.apply(host, machine_config("first", files=dict(files)))
    wait_done(host, "first")


def wait_reason(host: Host, reason: str) -> dict[str, object]:
    def found() -> dict[str, object] | None:
        status = agent.status(host)
        return status if status["reason"] == reason else None

    return host.wait_for(found, f"the status has {reason}")


def test_an_update_that_waits_for_the_lease_ends_at_once(node: Host) -> None:
    first(node)
    node.run(["nodeagent", "maintenance", "start", "--reason", "disks are swapped"])
    agent.apply(node, machine_config("next", files={UNLISTED: "next\n"}))
    wait_phase(node, "Leasing")
    done = node.run(["nodeagent", "cancel"])
    assert "cancelled: the update to next has ended" in done.stdout
    assert "nothing was changed" in done.stdout
    status = agent.status(node)
    assert (status["phase"], status["current"], status["desired"], status["reason"]) == ("Idle", "first", "first", "")
    node.run(["nodeagent", "maintenance", "stop"])
    time.sleep(1)
    assert (node.reboots, node.exists(UNLISTED)) == (0, False)
    assert outcomes(node) == [("first", "done"), ("next", "cancelled")]
    entries = [entry for entry in node.journal(agent.UNIT) if "cancelled the update to next" in entry["MESSAGE"]]
    assert entries, "the journal names the operator"
    nothing = node.run(["nodeagent", "cancel"], check=False)
    assert (nothing.returncode, "NoUpdate" in nothing.stderr) == (4, True)


@pytest.mark.long
def test_a_blocked_reboot_is_taken_back_without_one(node: Host) -> None:
    first(node)
    agent.block_reboots(node)
    start_update(node, "next")
    wait_reason(node, "RebootBlocked")
    assert node.read_text(UNLISTED) == "name: next\n"
    done = node.run(["nodeagent", "cancel"])
    assert "the previous files are restored, without a reboot" in done.stdout
    assert not node.exists(UNLISTED)
    node.run(["systemctl", "stop", "backup.service"])
    time.sleep(2)
    assert (node.reboots, agent.status(node)["lease"], outcomes(node)[-1]) == (0, None, ("next", "cancelled"))
    # The same config is applied when an operator requests it.
    with node.rebooting():
        start_update(node, "next")
    wait_done(node, "next")


def test_another_config_takes_back_a_blocked_reboot(node: Host) -> None:
    first(node)
    agent.block_reboots(node)
    start_update(node, "second")
    wait_reason(node, "RebootBlocked")
    agent.apply(node, machine_config("third"))
    wait_done(node, "third")
    assert (node.reboots, node.exists(UNLISTED)) == (0, False)
    assert outcomes(node) == [("first", "done"), ("second", "superseded"), ("third", "done")]


@pytest.mark.long
def test_a_warning_of_users_is_cancelled(make_node: HostMaker) -> None:
    host = make_node(settings={"reboot": {"warn_users": 60}})
    first(host)
    host.log_in("core")
    start_update(host, "next")
    scheduled = "/run/systemd/shutdown/scheduled"
    host.wait_for(lambda: host.exists(scheduled), "the shutdown is announced")
    host.run(["nodeagent", "cancel"])
    assert (host.exists(scheduled), host.exists(UNLISTED), host.reboots) == (False, False, 0)


@pytest.mark.long
def test_restarted_services_get_their_files_back(make_node: HostMaker) -> None:
    host = make_node(
        files={agent.POLICY: POLICY, "/etc/systemd/system/slow.service": SLOW},
        settings={"actions": {"settle": 10}, "verify": {"timeout": 60}},
    )
    agent.write_desired(host, machine_config("first", files={"/etc/slow.conf": "one"}))
    host.wait_for(lambda: agent.status(host)["phase"] == "Verifying", "the first config settles")
    wait_done(host, "first")
    # While its action runs.
    host.write(HOLD, "")
    agent.apply(host, machine_config("acting", files={"/etc/slow.conf": "two"}))
    wait_phase(host, "Acting")
    host.run(["systemd-run", "--on-active=2", "rm", HOLD])
    done = host.run(["nodeagent", "cancel"], timeout=120)
    assert "the previous files are restored" in done.stdout
    # While it is watched.
    agent.apply(host, machine_config("verifying", files={"/etc/slow.conf": "three"}))
    wait_phase(host, "Verifying")
    host.run(["nodeagent", "cancel"], timeout=120)
    assert (host.read_text("/etc/slow.conf"), host.reboots) == ("one", 0)
    assert host.events("slow.service")[-1].digest == events.digest(b"one"), "the service has read it"
    assert outcomes(host)[1:] == [("acting", "cancelled"), ("verifying", "cancelled")]


@pytest.mark.long
def test_killed_while_it_is_taken_back(node: Host) -> None:
    first(node)
    agent.block_reboots(node)
    start_update(node, "next")
    wait_reason(node, "RebootBlocked")
    node.run(["systemd-run", "--on-active=0.05", "systemctl", "kill", "--signal=KILL", agent.UNIT])
    node.run(["nodeagent", "cancel"], check=False, timeout=120)
    agent.wait_daemon(node)
    status = agent.status(node)
    if status["reason"] == "RebootBlocked":
        # The daemon was killed before the request was recorded.
        node.run(["nodeagent", "cancel"])
    wait_outcome(node, "next")
    assert (node.reboots, node.exists(UNLISTED), outcomes(node)[-1]) == (0, False, ("next", "cancelled"))


@pytest.mark.long
def test_a_held_reboot_and_a_time(node: Host) -> None:
    first(node)
    node.write(FILE, machine_config("next", files={UNLISTED: "next\n"}))
    node.run(["nodeagent", "apply", "--no-reboot", FILE])
    wait_reason(node, "RebootRequired")
    shown = ["cat", "/run/motd.d/50-nodeagent"]
    node.wait_for(lambda: "reboot required" in node.run(shown, check=False).stdout, "the message of the day")
    assert not node.exists(UNLISTED)
    # A time replaces it, and is kept over a restart of the daemon.
    node.run(["nodeagent", "apply", "--at", "tomorrow 02:00", FILE])
    wait_reason(node, "Scheduled")
    node.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(node)
    wait_reason(node, "Scheduled")
    assert "waits until" in node.run(["nodeagent", "status"]).stdout
    assert "nothing to do" in node.run(["nodeagent", "reboot"]).stdout
    node.run(["nodeagent", "apply", "--no-reboot", FILE])
    wait_reason(node, "RebootRequired")
    with node.rebooting():
        node.run(["nodeagent", "reboot"])
    wait_done(node, "next")
    assert node.reboots == 1


def test_apply_on_a_terminal_shows_the_plan_and_prompts(node: Host) -> None:
    first(node)
    node.write(FILE, machine_config("next", files={UNLISTED: "next\n"}))

    def typed(answer: str) -> tuple[int, str]:
        command = f"echo {answer} | script -qec 'nodeagent apply {FILE}' /dev/null"
        done = node.run(["sh", "-c", command], check=False)
        return done.returncode, done.stdout

    code, said = typed("n")
    assert (code, "nothing was changed" in said, node.reboots) == (6, True, 0)
    assert "Reboot" in said
    assert agent.status(node)["desired"] == "first"
    with node.rebooting():
        assert typed("y")[0] == 0
    wait_done(node, "next")
