# SPDX-License-Identifier: Apache-2.0
"""A new deployment that is no good: back to the old one, with its files, once; or left as it is, where that is set."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import ANCHOR, CERTIFICATE, MIRRORED, REGISTRIES, SSH_KEY
from integration.hosts.container.test_safe_parts import KEYS
from integration.hosts.nodeagent_client import UnitSpec
from integration.hosts.ostree import bls, updates
from integration.hosts.ostree.conftest import OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.hosts.ostree.test_harness import fill_boot
from integration.hosts.snapshot import difference
from integration.trees.ostree_repo import Commit
from integration.trees.tree import BAD, BAD_UNIT, A, B, Part, Tree
from nodeagent.update.ports.events import UpdateResumed

QUICK = {"verify": {"timeout": 4}}
# `rpm-ostree kargs --append=by-hand`
KARGS = """
import gi
gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib
bus = Gio.bus_get_sync(Gio.BusType.SYSTEM)
def call(connection, name, path, interface, method, arguments):
    return connection.call_sync(name, path, interface, method, arguments, None, 0, 60000, None).unpack()
OWNER, PATH = "org.projectatomic.rpmostree1", "/org/projectatomic/rpmostree1/fedora_coreos"
(config,) = call(bus, OWNER, PATH, f"{OWNER}.OS", "GetDeploymentBootConfig", GLib.Variant("(sb)", ("", False)))
asked = GLib.Variant("(sasasasa{sv})", (config["options"], ["by-hand"], [], [], {}))
(address,) = call(bus, OWNER, PATH, f"{OWNER}.OS", "KernelArgs", asked)
peer = Gio.DBusConnection.new_for_address_sync(address, Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT, None, None)
loop = GLib.MainLoop()
TRANSACTION = f"{OWNER}.Transaction"
peer.signal_subscribe(None, TRANSACTION, "Finished", "/", None, 0, lambda *signal: loop.quit())
call(peer, None, "/", TRANSACTION, "Start", None)
loop.run()
"""


def bad(publish: Publish, files: Mapping[str, str] | None = None, keys: Sequence[str] | None = None) -> str:
    """BAD_UNIT runs in A, and fails in BAD."""
    units = {updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True), BAD_UNIT: UnitSpec(enabled=True)}
    given = {updates.MINE: "mine of bad\n", **(files or {})}
    return agent.machine_config("bad", files=given, units=units, keys=keys, osImageURL=publish(BAD).by_digest)


@pytest.mark.slow
def test_the_old_one_comes_back(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    node = make_node_at_a(settings=QUICK)
    before = agent.managed(node)
    agent.apply(node, bad(publish))
    ended = agent.wait_outcome(node, "bad", updates.WAIT)
    assert (ended["outcome"], ended["reason"]) == ("reverted", "UnitUnhealthy")
    assert BAD_UNIT in ended["message"]
    now = agent.status(node)
    assert (now["phase"], now["reason"], now["current"]) == ("Degraded", "Reverted", "a")
    updates.check(node, "a", A)
    assert difference(before, agent.managed(node)) == []
    # Into the new one, back into the old one, and once more because that one had started with the new file.
    ran = ["mine of bad | content of bad", "mine of bad | content of a", "mine of a | content of a"]
    assert updates.ran(node) == ran
    node.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(node)
    time.sleep(2)
    assert (agent.status(node)["phase"], node.reboots) == ("Degraded", 3), "it is not tried again without a request"

    # On request it is tried again, with the same end, although that deployment exists already.
    updates.apply_again(node, bad(publish))
    node.wait_for(lambda: len(agent.outcomes(node)) == 3, "it has failed again", updates.WAIT, every=0.2)
    agent.wait_phase(node, "Degraded")
    updates.check(node, "a", A)
    assert agent.outcomes(node)[1:] == [("bad", "reverted")] * 2
    assert difference(before, agent.managed(node)) == []
    # Something else is tried at once.
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)


@pytest.mark.long
@pytest.mark.slow
def test_fixes_reach_a_host_whose_os_update_failed(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    """Of a rejected config, what repairs the access to a host and its trust is applied, and nothing else."""
    node = make_node_at_a(settings={**QUICK, "on_blocked": "apply-safe-parts"})
    fixes = {ANCHOR: CERTIFICATE, REGISTRIES: MIRRORED}
    agent.apply(node, bad(publish, fixes, [SSH_KEY]))
    node.wait_for(lambda: agent.status(node)["partial"] is not None, "the fixes are applied", updates.WAIT)
    status = agent.wait_phase(node, "Degraded")
    assert agent.outcomes(node)[-2:] == [("bad", "reverted"), ("bad", "partial")]
    assert status["partial"]["applied"] == [f"file:{REGISTRIES}", f"file:{ANCHOR}", "sshkey:core"]
    waits = {each["change"] for each in status["partial"]["waits"]}
    assert waits == {"osImageURL:osImageURL", f"file:{updates.MINE}", f"unit:{BAD_UNIT}"}
    assert [node.read_text(path) for path in fixes] == list(fixes.values())
    assert SSH_KEY in node.read_text(KEYS)
    updates.check(node, "a", A)
    verified = json.loads(node.run(["nodeagent", "verify", "--json"]).stdout)
    assert (verified["ok"], set(verified["waits"])) == (True, waits)

    with node.rebooting():
        node.run(["systemctl", "reboot"])
    agent.wait_daemon(node)
    assert agent.wait_phase(node, "Degraded")["partial"] == status["partial"]
    updates.check(node, "a", A)
    # A good OS takes the fixes along.
    files = {updates.MINE: "mine of b\n", **fixes}
    units = {updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True)}
    agent.apply(
        node, agent.machine_config("b", files=files, units=units, keys=[SSH_KEY], osImageURL=publish(B).by_digest)
    )
    updates.wait_updated(node, "b", B)
    assert agent.status(node)["partial"] is None
    assert SSH_KEY in node.read_text(KEYS)


@pytest.mark.finding(
    "rpm-ostreed: failed transactions",
    "What a failed transaction left staged is discarded, and an image that fails the sanity check is `ImageBroken`.",
)
def test_what_the_daemon_rejects_is_never_booted(node_at_a: OstreeHost, publish: Publish) -> None:
    """The real daemon runs a program of the new tree after it has staged it, and leaves it staged if that fails."""
    node = node_at_a
    broken = Tree("41.4.0", B.files, B.units).having(
        Part("no-true", b"1", lambda root: (root / "usr/bin/true").unlink())
    )
    agent.apply(node, updates.config("broken", publish(broken), kernelArguments=["nosmt"]))
    now = agent.wait_phase(node, "Degraded")
    assert now["reason"] == "ImageBroken"
    assert "bwrap(/usr/bin/true)" in now["message"]
    assert not any(d.staged for d in node.deployments())
    assert node.reboots == 0
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)


# What coreos-assembler writes into the repository of each image.
APPEND = "mount -o remount,rw /sysroot && ostree config set sysroot.bls-append-except-default 'grub_users=\"\"'"


@pytest.mark.finding(
    "OS: GRUB passwords",
    "Where the entry that would become the default asks for a GRUB password, the old tree is deployed once more.",
)
@pytest.mark.slow
def test_the_old_one_comes_back_where_grub_has_a_password(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    """Its entry has a list of users as soon as it is not the default, and keeps it: swapped, it stops at a prompt."""
    node = make_node_at_a(settings=QUICK)
    before = agent.managed(node)
    (old,) = node.deployments()
    node.run(["unshare", "--mount", "sh", "-c", APPEND])
    node.run(["mkdir", "/boot/grub2"])
    node.write("/boot/grub2/user.cfg", 'set superusers="root"\n')
    agent.apply(node, bad(publish))
    updates.wait_logged(node, UpdateResumed)
    assert [bls.asks_password(node.root, entry) for entry in bls.entries(node.root)] == [False, True]
    ended = agent.wait_outcome(node, "bad", updates.WAIT)
    assert (ended["outcome"], ended["reason"]) == ("reverted", "UnitUnhealthy")
    updates.check(node, "a", A)
    assert difference(before, agent.managed(node)) == []
    now = node.deployments()[0]
    assert (now.checksum, now.serial) == (old.checksum, old.serial + 1)
    assert node.cmdline[:3] == ["root=LABEL=root", "rw", "quiet"]
    assert not bls.asks_password(node.root, node.next_boot)


@pytest.mark.long
@pytest.mark.slow
def test_what_is_staged_on_it_goes_with_it(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    """Another program changes the kernel arguments of the deployment to roll back, which makes rpm-ostree refuse."""
    node = make_node_at_a(settings={"verify": {"timeout": 20}})
    agent.apply(node, bad(publish))
    updates.wait_logged(node, UpdateResumed)
    node.write("/run/kargs.py", KARGS)
    node.run(["python3", "/run/kargs.py"])
    assert any(d.staged for d in node.deployments())
    ended = agent.wait_outcome(node, "bad", updates.WAIT)
    assert (ended["outcome"], ended["reason"]) == ("reverted", "UnitUnhealthy")
    updates.check(node, "a", A)
    assert "by-hand" not in node.cmdline
    assert not any(d.staged for d in node.deployments()), "the foreign deployment was discarded"


@pytest.mark.slow
def test_a_foreign_deployment_is_in_the_way_of_a_rollback(
    make_node_at_a: OstreeHostMaker, publish: Publish, commit_b: Commit
) -> None:
    """nodeagent does not remove it: an operator decides."""
    node = make_node_at_a(settings={"verify": {"timeout": 20}})
    agent.apply(node, bad(publish))
    updates.wait_logged(node, UpdateResumed)
    node.stage(commit_b)
    ended = agent.wait_outcome(node, "bad", updates.WAIT)
    assert (ended["outcome"], ended["reason"]) == ("degraded", "StagedByOther")
    now = agent.status(node)
    assert (updates.shown(now)[:2], node.reboots) == ([f"{B.version} staged", f"{BAD.version} booted"], 1)
    assert now["lease"] is not None
    node.run(["ostree", "admin", "undeploy", "0"])
    agent.apply(node, updates.config("a", publish(A)))
    updates.wait_updated(node, "a", A)


def test_it_stays_where_that_is_set(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    node = make_node_at_a(settings={**QUICK, "on_failure": "degraded"})
    agent.apply(node, bad(publish))
    ended = agent.wait_outcome(node, "bad", updates.WAIT)
    assert (ended["outcome"], ended["reason"]) == ("degraded", "UnitUnhealthy")
    now = agent.status(node)
    assert (now["phase"], now["current"], updates.shown(now)[0]) == ("Degraded", "a", f"{BAD.version} booted")
    assert now["lease"] is not None
    assert node.reboots == 1
    # The way out is another config, here the one before.
    agent.apply(node, updates.config("a", publish(A)))
    updates.wait_updated(node, "a", A)


@pytest.mark.slow
def test_boot_is_full_at_the_shutdown(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    node = make_node_at_a(boot_size="1m")
    before = agent.managed(node)
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_blocked(node)
    fill_boot(node, leave="100K")  # the kernel of B is 64 KiB, its initramfs 256
    updates.unblock_reboot(node)
    ended = agent.wait_outcome(node, "b", updates.WAIT)
    assert (ended["outcome"], ended["reason"]) == ("reverted", "FinalizeFailed")
    assert "No space left on device" in ended["message"]
    updates.check(node, "a", A)
    assert difference(before, agent.managed(node)) == []
    node.run(["rm", "/boot/full"])
    updates.apply_again(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)


def test_boot_has_no_byte_left_at_the_shutdown(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    """libostree cannot record the cause of the failure there."""
    node = make_node_at_a(boot_size="1m")
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_blocked(node)
    fill_boot(node, leave="0")
    updates.unblock_reboot(node)
    ended = agent.wait_outcome(node, "b", updates.WAIT)
    assert (ended["outcome"], ended["reason"]) == ("reverted", "FinalizeFailed")
    assert "No space left on device" in ended["message"]
    updates.check(node, "a", A)


def test_boot_is_full_before(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    node = make_node_at_a(boot_size="1m")
    fill_boot(node, leave="100K")
    done = agent.apply_command(node, updates.config("b", publish(B)), check=False)
    assert done.returncode == 4
    assert "BootFull" in done.stderr
    assert updates.shown(agent.status(node)) == [f"{A.version} booted"]


def test_manual_rollback_with_half_of_an_update_staged(node_at_a: OstreeHost, publish: Publish) -> None:
    """The image was staged, its kernel arguments failed: nodeagent discards it without an operator."""
    node = node_at_a
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)
    full = "min-free-space-percent '3%' would be exceeded, at least 4.1 kB requested"
    updates.inject_faults(node, {"at": "method:KernelArgs", "do": "fail", "message": full})
    agent.apply(node, updates.config("bad", publish(BAD), kernelArguments=["nosmt"]))
    now = agent.wait_phase(node, "Degraded")
    assert (now["reason"], updates.shown(now)[0]) == ("NoSpace", f"{BAD.version} staged locked")
    # It is refused while that is being tried once more.
    node.wait_for(lambda: node.run(["nodeagent", "rollback"]), "the rollback is accepted", updates.WAIT, every=0.2)
    updates.wait_current(node, "a")
    updates.check(node, "a", A)
    assert node.reboots == 2


def test_manual_rollback(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    before = agent.managed(node)
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)
    for name, tree in (("a", A), ("b", B), ("a", A)):
        node.run(["nodeagent", "rollback"])
        updates.wait_current(node, name)
        updates.check(node, name, tree)
    assert difference(before, agent.managed(node)) == []
    assert node.reboots == 4
