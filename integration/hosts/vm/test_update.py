# SPDX-License-Identifier: Apache-2.0
"""Updates of the OS by the agent on a really booted system: its kernel, its disk with /boot beside it, its reboots."""

from __future__ import annotations

import itertools

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.snapshot import difference
from integration.hosts.vm import nodes
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import DEFAULTS, NEW_UNIT, A, B

HEART = "heart.service"
BEATS = "/var/heart"
HEARTBEAT = f"""\
[Service]
ExecStart=/bin/sh -c 'while read -r up rest </proc/uptime; do echo "$up"; sleep 0.2; done >>{BEATS}'
"""
# Seconds between two beats. A drain would be longer. Without KVM one processor does everything, ten times slower.
LONGEST_PAUSE = 30.0


@pytest.mark.slow
def test_from_a_to_b_and_back(node: Vm, shelf: RegistryDisk) -> None:
    before = agent.managed(node)
    first = node.boots[-1].options
    node.write(f"/run/systemd/system/{HEART}", HEARTBEAT)
    node.run(["systemctl", "start", HEART])
    pid = node.unit(HEART, "MainPID")

    agent.apply(node, updates.config("b", shelf.of(B)))
    staged = updates.wait_status(node, "B is staged", lambda s: len(s["deployments"]) == 2, nodes.WAIT)
    assert updates.shown(staged) == [f"{B.version} staged locked", f"{A.version} booted"]
    assert (staged["current"], staged["desired"]) == ("a", "b")
    assert node.unit(HEART, "MainPID") == pid
    updates.wait_updated(node, "b", B, nodes.WAIT)

    assert (node.reboots, len(node.boots)) == (1, 2)
    assert node.boots[-1].options != first, "the boot loader was given the other deployment"
    beats = [float(line) for line in node.read_text(BEATS).split()]
    pauses = [after - before for before, after in itertools.pairwise(beats)]
    assert max(pauses) < LONGEST_PAUSE
    assert node.read_text(DEFAULTS) == B.files[DEFAULTS]
    assert node.is_active(NEW_UNIT)
    last = agent.history(node)[0]
    assert (last["from_name"], last["to_name"], last["outcome"]) == ("a", "b", "done")
    assert (last["disruption"], last["reboots"]) == ("reboot", 1)
    shown = agent.status(node)["deployments"]
    assert [(d["version"], d["booted"], d["digest"]) for d in shown] == [
        (B.version, True, shelf.of(B).digest),
        (A.version, False, shelf.of(A).digest),
    ]

    agent.apply(node, updates.config("a", shelf.of(A)))
    updates.wait_updated(node, "a", A, nodes.WAIT)
    assert node.reboots == 2
    assert agent.outcomes(node) == [("a", "done"), ("b", "done"), ("a", "done")]
    assert difference(before, agent.managed(node)) == []
