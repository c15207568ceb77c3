# SPDX-License-Identifier: Apache-2.0
"""Others who change this host as well: seen, named, waited for, and never overwritten."""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import Publish
from integration.hosts.ostree.ostree_host import FINALIZE, OstreeHost
from integration.trees.ostree_repo import Commit
from integration.trees.tree import A, B
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import StagingAdvanced, UpdateWaiting

ZINCATI = "[Service]\nExecStart=sleep infinity\n"
# Another program with the lock of the sysroot, as `ostree admin` and bootc have it.
LOCK = """
import gi, time
gi.require_version("OSTree", "1.0")
from gi.repository import OSTree
sysroot = OSTree.Sysroot.new_default()
sysroot.initialize()
sysroot.set_mount_namespace_in_use()
sysroot.lock()
open("/run/locked", "w").close()
time.sleep(4)
"""
# `rpm-ostree cancel`, as far as it matters.
CANCEL = """
import gi
gi.require_version("Gio", "2.0")
from gi.repository import Gio
flags = Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT
address = "unix:path=/run/rpm-ostree-transaction.sock"
peer = Gio.DBusConnection.new_for_address_sync(address, flags, None, None)
peer.call_sync(None, "/", "org.projectatomic.rpmostree1.Transaction", "Cancel", None, None, 0, 5000, None)
"""


def refused(node: OstreeHost, config: str) -> str:
    done = agent.apply_command(node, config, check=False)
    assert done.returncode == 4, done
    return done.stderr


def untouched(node: OstreeHost, *ended: tuple[str, str]) -> None:
    """`ended`: updates after the first one that changed nothing."""
    assert node.reboots == 0
    assert node.read_text(updates.MINE) == "mine of a\n"
    assert agent.outcomes(node) == [("a", "done"), *ended]


def test_a_second_driver(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    node.write("/run/systemd/system/zincati.service", ZINCATI)
    node.run(["systemctl", "start", "zincati"])
    said = refused(node, updates.config("b", publish(B)))
    assert "OtherDriver" in said
    assert "Zincati" in said
    assert "systemctl" in said
    untouched(node)
    assert updates.shown(agent.status(node)) == [f"{A.version} booted"]
    node.run(["systemctl", "stop", "zincati"])
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)


@pytest.mark.finding(
    "rpm-ostreed: boot entries",
    "The daemon is never queried for a boot entry; kernel arguments are read from /boot and from the staged state.",
)
def test_something_is_staged_already(node_at_a: OstreeHost, publish: Publish, commit_b: Commit) -> None:
    """nodeagent does not change, replace or boot the deployment of another client."""
    node = node_at_a
    node.stage(commit_b)
    agent.apply(node, updates.config("k", publish(A), kernelArguments=["nosmt"]))
    now = agent.wait_phase(node, "Degraded")
    assert now["reason"] == "StagedByOther"
    assert B.version in now["message"]
    untouched(node)
    assert [d.checksum for d in node.deployments() if d.staged] == [commit_b.checksum]
    # Staged without kernel arguments: a daemon that is asked for them aborts.
    assert not [entry for entry in node.journal("rpm-ostreed.service") if "assertion failed" in entry["MESSAGE"]]
    node.run(["ostree", "admin", "undeploy", "0"])
    updates.apply_again(node, updates.config("k", publish(A), kernelArguments=["nosmt"]))
    updates.wait_updated(node, "k", A)


def test_another_program_stages_over_it(node_at_a: OstreeHost, publish: Publish, commit_b: Commit) -> None:
    """Ours is thrown away by libostree then. His stays, the files are put back, and nothing is rebooted."""
    node = node_at_a
    updates.block_reboot(node)
    agent.apply(node, updates.config("k", publish(A), kernelArguments=["nosmt"]))
    updates.wait_blocked(node)
    node.stage(commit_b)
    updates.unblock_reboot(node)
    ended = agent.wait_outcome(node, "k")
    assert (ended["outcome"], ended["reason"]) == ("reverted", "StagedByOther")
    assert [d.checksum for d in node.deployments() if d.staged] == [commit_b.checksum]
    assert node.read_text(updates.MINE) == "mine of a\n"
    assert node.reboots == 0


def test_another_program_removes_it(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_blocked(node)
    node.run(["ostree", "admin", "undeploy", "0"])
    updates.unblock_reboot(node)
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1


@pytest.mark.finding(
    "OS: soft reboots",
    "A locked deployment that is prepared for a soft reboot is reported at once, and cleared before a reboot of ours.",
)
def test_another_program_prepares_a_soft_reboot_into_it(node_at_a: OstreeHost, publish: Publish) -> None:
    """It would start what is locked, unmerged. The guest's libostree is too old to prepare one, and to clear it: the
    note that newer ones leave has to do."""
    node = node_at_a
    note = "/run/ostree/nextroot-booted"
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_blocked(node)

    def reported() -> bool:
        return "LockedSoftReboot" in [problem["reason"] for problem in agent.status(node)["problems"]]

    assert not reported()
    node.write(f"{note}.new", "")
    node.run(["mv", f"{note}.new", note])
    node.wait_for(reported, "it is reported at once", 20)
    node.run(["rm", note])
    node.wait_for(lambda: not reported(), "it is over", 20)
    node.write(note, "")
    updates.unblock_reboot(node)
    ended = agent.wait_outcome(node, "b")
    assert (ended["outcome"], ended["reason"]) == ("degraded", "LockedSoftReboot")
    assert node.reboots == 0
    node.run(["rm", note])
    updates.apply_again(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)


@pytest.mark.finding(
    "OS: what a boot brings", "A rollback that another program queues is seen at once, without rpm-ostreed as well."
)
@pytest.mark.parametrize("absent", [False, True], ids=["with rpm-ostreed", "without"])
def test_another_program_changes_the_boot_order(
    node_at_a: OstreeHost, publish: Publish, commit_b: Commit, absent: bool
) -> None:
    """As `bootc rollback`, and a second one, do."""
    node = node_at_a
    if absent:
        node.run(["systemctl", "mask", "--runtime", "--now", "rpm-ostreed.service"])
    node.add(commit_b)
    node.run(["ostree", "admin", "deploy", commit_b.checksum])

    def reported() -> str:
        problems = agent.status(node)["problems"]
        return next((each["message"] for each in problems if each["reason"] == "StagedByOther"), "")

    message = node.wait_for(reported, "the problem in the status", 20)
    assert commit_b.checksum in message
    files = {updates.MINE: "mine of a\n", "/etc/other.conf": "needs a reboot\n"}
    unit = {updates.MINE_UNIT: agent.UnitSpec(updates.UNIT, enabled=True)}
    config = agent.machine_config("k", files=files, units=unit, osImageURL=publish(A).by_digest)
    agent.apply(node, config)
    updates.wait_logged(node, UpdateWaiting, Reason.STAGED_BY_OTHER)
    node.write("/run/k.yaml", config)
    assert commit_b.checksum in node.run(["nodeagent", "plan", "/run/k.yaml"]).stdout
    assert not node.exists("/etc/other.conf")
    node.run(["ostree", "admin", "set-default", "1"])
    node.wait_for(lambda: not reported(), "the end of the problem", 20)
    agent.wait_done(node, "k", updates.WAIT)
    assert node.reboots == 1
    assert node.booted != commit_b.checksum


def test_another_program_has_the_lock(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    node.write("/run/lock.py", LOCK)
    node.run(["systemd-run", "--unit=locker", "--property=PrivateMounts=yes", "python3", "/run/lock.py"])
    node.wait_for(lambda: node.exists("/run/locked"), "it has the lock")
    agent.apply(node, updates.config("b", publish(B)))
    now = updates.wait_step(node, "another program that holds the lock")
    assert now["phase"] == "Staging"
    updates.wait_updated(node, "b", B)


def test_an_operator_cancels_the_transaction(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    updates.inject_faults(node, updates.SLOW)
    node.write("/run/cancel.py", CANCEL)
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_step(node, "Fetching ostree chunk")
    node.run(["python3", "/run/cancel.py"])
    updates.wait_said(node, "Operation was cancelled")
    untouched(node)
    # It would be tried again. Who cancelled because he wants something else need not wait for that.
    agent.apply(node, updates.config("a", publish(A)))
    agent.wait_done(node, "a")
    untouched(node, ("b", "withdrawn"))


def test_nothing_is_staged_during_a_maintenance(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    node.run(["nodeagent", "maintenance", "start", "--reason", "disk"])
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_logged(node, UpdateWaiting, Reason.LEASE_HELD)
    assert agent.status(node)["phase"] == "Staging"
    assert updates.shown(agent.status(node)) == [f"{A.version} booted"]
    assert not updates.logged(node, StagingAdvanced)
    node.run(["nodeagent", "maintenance", "stop"])
    updates.wait_updated(node, "b", B)


def test_a_maintenance_ends_the_staging(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    updates.inject_faults(node, {"at": "layer:2", "do": "hang", "times": 1})
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_step(node, "Fetching ostree chunk")
    node.run(["nodeagent", "maintenance", "start", "--reason", "disk"])
    updates.wait_logged(node, UpdateWaiting, Reason.LEASE_HELD)
    assert updates.shown(agent.status(node)) == [f"{A.version} booted"]
    node.run(["nodeagent", "maintenance", "stop"])
    updates.wait_updated(node, "b", B)


def test_a_newer_config_while_staging(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    updates.inject_faults(node, {"at": "layer:2", "do": "hang", "times": 1})
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_step(node, "Fetching ostree chunk")
    agent.apply(node, updates.config("k", publish(A), kernelArguments=["nosmt"]))
    updates.wait_updated(node, "k", A)
    assert agent.outcomes(node) == [("a", "done"), ("b", "superseded"), ("k", "done")]
    assert node.reboots == 1
    assert "nosmt" in node.cmdline


def test_what_is_staged_goes_with_its_config(node_at_a: OstreeHost, publish: Publish) -> None:
    """The config before is desired again when B is staged and waits for the lease: nothing of B is left."""
    node = node_at_a
    updates.inject_faults(node, {"at": "staged", "do": "sleep", "seconds": 3})
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_step(node, "Fetching ostree chunk")
    node.run(["nodeagent", "maintenance", "start", "--reason", "disk"])
    agent.wait_phase(node, "Leasing")
    agent.apply(node, updates.config("a", publish(A)))
    agent.wait_done(node, "a")
    untouched(node, ("b", "withdrawn"))
    assert updates.shown(agent.status(node)) == [f"{A.version} booted"]
    assert not any(d.staged for d in node.deployments())


def test_a_reboot_by_hand_does_not_apply_what_is_locked(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_blocked(node)
    with node.rebooting():
        # A clean shutdown, unlike --force, which would stop nothing and so finalize nothing.
        node.run(["systemctl", "start", "reboot.target", "--job-mode=replace-irreversibly", "--no-block"])
    updates.wait_updated(node, "b", B)
    assert updates.ran(node) == ["mine of b | content of a", "mine of b | content of b"]
    assert node.reboots == 2
    assert "Not finalizing" in "".join(e["MESSAGE"] for e in node.journal(FINALIZE, boot=node.boots[0].boot_id))


def test_an_image_that_is_not_pinned(node_at_a: OstreeHost, publish: Publish) -> None:
    done = agent.apply_command(node_at_a, updates.config("b", f"{publish(B).name}:{B.version}"), check=False)
    assert done.returncode == 2
    assert "ImageNotPinned" in done.stderr
    assert "osImageURL" in done.stderr
    untouched(node_at_a)
