# SPDX-License-Identifier: Apache-2.0
"""The power goes in an update of the OS: data without a flush is lost, and no operator helps.

A cut takes what is staged (it is in /run), so most of these are staged again. `NODEAGENT_VM_CUTS=20` makes the soak as
long, and adds the moments that the ostree hosts have as well: each takes minutes without KVM. The soak prints its
seed, and `NODEAGENT_VM_SEED` repeats one.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.ostree_host import FINALIZE
from integration.hosts.vm import nodes
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import A, B

FEW = 1
CUTS = int(os.environ.get("NODEAGENT_VM_CUTS", FEW))
SEED = int(os.environ.get("NODEAGENT_VM_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
ARGUMENT = "ring=four"
CUT_TIMEOUT = 600  # seconds for one cut of the soak and the update around it


def first_deployment(node: Vm, *words: str) -> None:
    """Wait until the next to boot is B, with these words of updates.shown()."""
    wanted = " ".join([B.version, *words])
    updates.wait_status(node, wanted, lambda now: updates.shown(now)[0] == wanted, nodes.WAIT)


def pulling(node: Vm, start: Callable[[], None]) -> None:
    start()
    updates.wait_step(node, "Fetching ostree chunk", nodes.WAIT)


def staged(node: Vm, start: Callable[[], None]) -> None:
    start()
    first_deployment(node, "staged", "locked")


def written(node: Vm, start: Callable[[], None]) -> None:
    updates.block_reboot(node)
    start()
    agent.wait_phase(node, "Rebooting", timeout=nodes.WAIT)
    assert node.read_text(updates.MINE) == "mine of b\n"
    first_deployment(node, "staged", "locked")


def unlocked(node: Vm, start: Callable[[], None]) -> None:
    nodes.delay_shutdown(node)
    start()
    first_deployment(node, "staged")


def finalizing(node: Vm, start: Callable[[], None]) -> None:
    start()
    first_deployment(node, "staged", "locked")
    # The harness's agent outlives the services, and systemctl asks systemd itself. Requested in the guest, because it
    # is over in seconds.
    begun = f"systemctl show --property=ActiveState --value {FINALIZE} | grep -q ^deactivating"
    node.run(["sh", "-c", f"until {begun}; do sleep 0.2; done"], timeout=nodes.WAIT)


def booted(node: Vm, start: Callable[[], None]) -> None:
    with node.rebooting(nodes.WAIT, complete=False):
        start()


# Each costs minutes without KVM, so CI has the moment between the old system and the new one.
LONG = [pulling, finalizing, *([staged, written, booted] if CUTS > FEW else [])]
MOMENTS = [unlocked, *(pytest.param(moment, marks=pytest.mark.long) for moment in LONG)]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_converges(node: Vm, shelf: RegistryDisk, moment: Callable[[Vm, Callable[[], None]], None]) -> None:
    old = node.boots[-1].options
    moment(node, lambda: agent.apply(node, updates.config("b", shelf.of(B))))
    node.power_cut(nodes.WAIT, complete=False)
    if moment not in (finalizing, booted):
        assert node.boots[-1].options == old, "nothing had touched the boot loader"
    updates.wait_updated(node, "b", B, nodes.WAIT)
    # One reboot for the update, or none where the power cut was one.
    assert node.reboots == (1 if node.boots[1].options == old or moment is booted else 0)
    assert agent.outcomes(node) == [("a", "done"), ("b", "done")]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(CUT_TIMEOUT * (CUTS + 1))
def test_soak(node: Vm, shelf: RegistryDisk, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(SEED)
    # With a kernel argument, because that is what a second try could add twice.
    turns = [("b", B, [ARGUMENT]), ("a", A, [])]
    whole = 0.0
    for number in range(CUTS + 1):
        name, tree, arguments = turns[number % 2]
        boots = len(node.boots)
        started = time.monotonic()
        agent.apply(node, updates.config(name, shelf.of(tree), kernelArguments=arguments))
        # The first goes through, to see how long one takes.
        after = chance.uniform(0, whole)
        if number:
            time.sleep(after)
            node.power_off()
            node.start()
        updates.wait_updated(node, name, tree, CUT_TIMEOUT)
        whole = whole or time.monotonic() - started
        assert agent.outcomes(node)[-1] == (name, "done")
        assert len(agent.outcomes(node)) == number + 2, "each update is there once"
        assert node.read_text("/proc/cmdline").split().count(ARGUMENT) == len(arguments)
        said = f"cut {number} of {CUTS} (seed {SEED}) after {after:.1f} s: {len(node.boots) - boots} boots"
        with capsys.disabled():
            print(f"\n{said}, {time.monotonic() - started:.0f} s")
