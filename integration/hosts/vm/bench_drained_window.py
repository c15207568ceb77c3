# SPDX-License-Identifier: Apache-2.0
"""How long a node is out of service for an update of the OS: ours against the order "drain, pull, stage, reboot".

    .venv/bin/pytest -s integration/hosts/vm/bench_drained_window.py

Prints one JSON object for each back end. Both orders go from A to the same image, on machines that go on from the same
frozen guest, one after the other. The image is B and 700 MB that A has not, as much as a whole image of Fedora CoreOS
has. The window begins where work would be taken off the node, and ends when the new OS serves:

- `ours`: from the moment the agent's journal has it in the phase Leasing until it has the update as done, which
  includes the verification after the boot.
- `drain_first`: from the request to stage until the boot is complete (`systemctl is-system-running --wait`), the same
  adapter and the same stand-in doing the work, with no file to write and nothing verified. The best case of that order.

To drain takes no time here: there is no cluster, and it would be the same for both. The registry is a disk of the
guest, so what a network would add to `drain_first` is not in it; rpm-ostreed, where there is one, runs already in both.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.test_adapter import SCRIPT, script
from integration.hosts.vm import nodes
from integration.hosts.vm.conftest import VmMaker
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.image_registry import Published
from integration.trees.tree import A, B, Part

LIMIT = 0.5  # of the project
FILES, SIZE = 10_650, 65536
TIMEOUT = 3600


def _payload(root: Path) -> None:
    directory = root / "usr/share/payload"
    directory.mkdir(parents=True)
    for number in range(FILES):
        (directory / str(number)).write_bytes(random.Random(number).randbytes(SIZE))


BIG = B.having(Part("payload", f"{FILES} {SIZE}".encode(), _payload))


@pytest.mark.timeout(TIMEOUT)
def test_drained_window(
    make_registry: Callable[..., RegistryDisk], make_node: VmMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf = make_registry(A, BIG)

    def make() -> Vm:
        node = make_node(media=shelf)
        node.run(["systemctl", "start", "rpm-ostreed"], timeout=nodes.WAIT)
        return node

    _measure("rpm-ostree", make, shelf.of(BIG), SCRIPT, capsys)


@pytest.mark.timeout(TIMEOUT)
def test_drained_window_of_a_host_of_bootc(
    make_bootc_shelf: Callable[..., RegistryDisk],
    make_bootc_node: VmMaker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The pull and the deployment are real, and so is the registry, a program of the guest."""
    shelf = make_bootc_shelf(A, BIG)
    _measure("bootc", lambda: make_bootc_node(media=shelf), shelf.of(BIG), script("bootc", "Bootc"), capsys)


def _measure(
    back_end: str, make: Callable[[], Vm], image: Published, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node = make()
    started = time.monotonic()
    agent.apply(node, updates.config("b", image))
    agent.wait_done(node, "b", TIMEOUT)
    total = time.monotonic() - started
    entries = agent.update_journal(node, agent.history(node)[0]["update_id"])
    times = [(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, entry) for entry in entries]
    leased = next(at for at, entry in times if entry.get("NODEAGENT_PHASE") == "Leasing")
    ours = times[-1][0] - leased
    node.close()

    node = make()
    node.write("/run/adapter.py", program)
    python = ["/usr/lib/nodeagent/bin/python3", "-BIS", "/run/adapter.py"]
    node.run(["systemctl", "stop", agent.UNIT], timeout=nodes.WAIT)
    started = time.monotonic()
    staged = json.loads(node.run([*python, "stage", image.by_digest], timeout=TIMEOUT).stdout)
    assert staged[0][0] == image.digest, staged
    staging = time.monotonic() - started
    node.run([*python, "unlock"], timeout=nodes.WAIT)
    with node.rebooting(nodes.WAIT):
        node.run(["systemctl", "reboot"])
    drain_first = time.monotonic() - started
    agent.wait_daemon(node, nodes.WAIT)
    there = updates.wait_status(node, "the deployments are known", lambda now: now["deployments"], nodes.WAIT)
    assert there["deployments"][0]["digest"] == image.digest

    ratio = ours / drain_first
    result = {
        "schema": "nodeagent/bench-drained-window/v1",
        "back_end": back_end,
        "accelerator": node.hardware.accel,
        "payload_bytes": FILES * SIZE,
        "ours_seconds": round(ours, 1),
        "ours_from_apply_seconds": round(total, 1),
        "drain_first_seconds": round(drain_first, 1),
        "drain_first_staging_seconds": round(staging, 1),
        "ratio": round(ratio, 2),
        "good": ratio <= LIMIT,
    }
    with capsys.disabled():
        print(f"\n{json.dumps(result, indent=2)}")
