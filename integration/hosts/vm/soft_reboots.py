# SPDX-License-Identifier: Apache-2.0
"""Configs of the tests of soft reboots: a unit that fails until the userspace, or the kernel, has started again.

A check of the admin holds the verification, which may otherwise be over before a question of the test is answered.
"""

from __future__ import annotations

from typing import Any

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.vm import nodes
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import A

MODE = "/etc/flaky/mode"
POLICY = agent.policy(
    files={updates.MINE: ["None"], "/etc/flaky": ["Restart flaky.service"]},
    units={updates.MINE_UNIT: ["DaemonReload"]},
)


def flaky(shelf: RegistryDisk, mode: str) -> str:
    """`a` with a unit that behaves as `mode` says; the OS stays."""
    files = {updates.MINE: "mine of a\n", MODE: mode}
    units = {updates.MINE_UNIT: agent.UnitSpec(updates.UNIT, enabled=True)}
    return agent.machine_config("new", files=files, units=units, osImageURL=shelf.of(A).by_digest)


def kinds(entry: dict[str, Any]) -> tuple[str, int, int]:
    return entry["outcome"], entry["reboots"], entry["soft_reboots"]


CHECK = "/etc/nodeagent/checks/after-apply.d/required.d/10-hold"
RELEASED = "/var/released"


def hold_verification(node: Vm) -> None:
    """Let no update be verified before `release`, in this boot and later ones."""
    node.write(CHECK, f"#!/bin/sh\ntest -e {RELEASED}\n", mode=0o755)
    node.run(["sync"])


def wait_held(node: Vm) -> None:
    """Wait until only that check is missing: all else is verified."""

    def held() -> bool:
        now = agent.status(node)
        return now["phase"] == "Verifying" and "10-hold failed" in now["message"]

    node.wait_for(held, "the verification waits for the check", nodes.WAIT)


def release(node: Vm) -> None:
    """Let the update be verified; also while the guest's agent starts again."""

    def written() -> bool:
        node.write(RELEASED, "")
        return True

    node.wait_for(written, "the verification may end", nodes.WAIT)
