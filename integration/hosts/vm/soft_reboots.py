"""Configs of the tests of soft reboots: a unit that fails until the userspace, or the kernel, has started again."""

from __future__ import annotations

from typing import Any

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.vm.registry_disk import RegistryDisk
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
