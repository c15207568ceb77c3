"""A new deployment that is no good: back to the old one, with its files, once; or left as it is, where that is set."""

from __future__ import annotations

import time

from integration.host import agent
from integration.host.agent import UnitSpec
from integration.host.snapshot import difference
from integration.ostreehost import updates
from integration.ostreehost.conftest import OstreeHostMaker, Publish
from integration.ostreehost.machine import OstreeHost
from integration.ostreehost.test_harness import fill_boot
from integration.trees.tree import BAD, BAD_UNIT, A, B

QUICK = {"verify": {"timeout": 4}}


def bad(publish: Publish) -> str:
    """BAD_UNIT runs in A, and fails in BAD."""
    units = {updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True), BAD_UNIT: UnitSpec(enabled=True)}
    files = {updates.MINE: "mine of bad\n"}
    return agent.machine_config("bad", files=files, units=units, osImageURL=publish(BAD).by_digest)


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
    assert (agent.status(node)["phase"], node.reboots) == ("Degraded", 3), "it is not tried again by itself"

    # By a person it is, with the same end, although that deployment is there already.
    updates.apply_again(node, bad(publish))
    node.wait_for(lambda: len(agent.outcomes(node)) == 3, "it has failed again", updates.WAIT, every=0.2)
    agent.wait_phase(node, "Degraded")
    updates.check(node, "a", A)
    assert agent.outcomes(node)[1:] == [("bad", "reverted")] * 2
    assert difference(before, agent.managed(node)) == []
    # Something else is tried at once.
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)


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
    """Then libostree cannot note there why it failed."""
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


def test_rollback_by_a_person(node_at_a: OstreeHost, publish: Publish) -> None:
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
