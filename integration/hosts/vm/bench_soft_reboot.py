# SPDX-License-Identifier: Apache-2.0
"""Seconds by phase of the same update with a soft reboot and with a full one: a fallback, and a new OS.

    .venv/bin/pytest -s integration/hosts/vm/bench_soft_reboot.py

Prints one JSON object. All begin on machines that go on from the same frozen guest, one after the other. The fallback
is that of a unit which fails until the userspace has started again; the new OS is B, with the kernel of A.

`total` is the time from the request of the config until the agent is at rest, by the clock of this machine. The others
are by the clocks of the guest: `window` from the phase Leasing until the update is verified and the lease is released,
which is the time out of service; `reboot` from the moment when logind accepted the request until the agent runs again;
and the phases of the agent's history.

A guest has no firmware and no boot loader, and its kernel starts in seconds, so the difference is that of QEMU, kernel
and initramfs only. There is no limit: on a busy machine the figures are those of its load.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.vm import nodes
from integration.hosts.vm.conftest import VmMaker
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.soft_reboots import POLICY, flaky, kinds
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import B

TIMEOUT = 3600


def window(trail: Mapping[str, Any]) -> float:
    """Return the seconds out of service."""

    def begin(span: Mapping[str, Any]) -> float:
        return float(span["mono"] + trail["boots"][span["boot"]]["offset"])

    leasing, last = next(each for each in trail["phases"] if each["name"] == "Leasing"), trail["phases"][-1]
    return begin(last) + (last["seconds"] or 0.0) - begin(leasing)


def seconds_by_phase(node: Vm) -> Mapping[str, float]:
    """Return the seconds out of service, of each phase of the newest update, and of its reboots."""
    trail = json.loads(node.run(["nodeagent", "history", "show", "--json"], timeout=nodes.WAIT).stdout)["trail"]
    phases: dict[str, float] = {"window": window(trail)}
    for phase in trail["phases"]:
        # Rebooting ends with the shutdown, which `reboot` has.
        if phase["seconds"] is not None and phase["name"] != "Rebooting":
            phases[phase["name"]] = phases.get(phase["name"], 0) + phase["seconds"]
    for index, (before, after) in enumerate(itertools.pairwise(trail["boots"])):
        # systemd may stop the agent before it has saved that logind accepted the reboot.
        left = before["accepted"] or [each["mono"] for each in trail["phases"] if each["boot"] == index][-1]
        gap = after["seen"] + after["offset"] - left - before["offset"]
        phases["reboot"] = phases.get("reboot", 0) + gap
    return {name: round(seconds, 1) for name, seconds in phases.items()}


@pytest.mark.timeout(TIMEOUT)
def test_soft_reboot(
    make_composefs_node: VmMaker, composefs_shelf: RegistryDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        "fallback": ("new", flaky(composefs_shelf, "fail until-soft-reboot"), POLICY, "done-after-fallback"),
        "new_os": ("b", updates.config("b", composefs_shelf.of(B)), updates.POLICY, "done"),
    }
    result: dict[str, Any] = {"schema": "nodeagent/bench-soft-reboot/v1"}
    for case, (name, config, policy, outcome) in cases.items():
        for setting, soft in (("auto", 1), ("never", 0)):
            node = make_composefs_node()
            result |= {"accelerator": node.hardware.accel, "versions": nodes.versions(node)}
            node.write(agent.POLICY, policy)
            nodes.settings(node, {"reboot": {"soft": setting}})
            started = time.monotonic()
            agent.apply(node, config)
            entry = agent.wait_outcome(node, name, TIMEOUT)
            total = round(time.monotonic() - started, 1)
            assert kinds(entry) == (outcome, 1, soft)
            result[f"{case}_{'soft' if soft else 'full'}_seconds"] = {"total": total, **seconds_by_phase(node)}
            node.close()
    with capsys.disabled():
        print(f"\n{json.dumps(result, indent=2)}")
