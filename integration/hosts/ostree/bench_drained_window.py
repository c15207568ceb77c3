# SPDX-License-Identifier: Apache-2.0
"""How long a host of bootc is out of service for an update of the OS: ours against "drain, pull, stage, reboot".

    .venv/bin/pytest -s -n0 integration/hosts/ostree/bench_drained_window.py

Prints one JSON object. Two containers go from A to the same image, one after the other, and pull it from a registry of
a known speed; all that pulls and stages is real. The windows are those of the benchmark of this name for the virtual
machines, where the host has rpm-ostree: a container starts no kernel and its disk is not limited, so here the pull is
nearly all of the difference.
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
from integration.hosts.ostree.conftest import Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.hosts.ostree.registry_faults import misbehave
from integration.hosts.ostree.test_adapter import script
from integration.trees.tree import B, Part

LIMIT = 0.5  # of the project
FILES, SIZE = 1024, 65536
RATE = 4_000_000  # bytes in a second, of the registry
TIMEOUT = 1800


def _payload(root: Path) -> None:
    directory = root / "usr/share/payload"
    directory.mkdir(parents=True)
    for number in range(FILES):
        (directory / str(number)).write_bytes(random.Random(number).randbytes(SIZE))


BIG = B.having(Part("payload", f"{FILES} {SIZE}".encode(), _payload))


@pytest.mark.timeout(TIMEOUT)
def test_drained_window(
    make_bootc_node_at_a: Callable[[], OstreeHost], publish_bootc_node: Publish, capsys: pytest.CaptureFixture[str]
) -> None:
    image = publish_bootc_node(BIG)
    node = make_bootc_node_at_a()
    misbehave(node, of="/blobs/", rate=RATE)
    started = time.monotonic()
    agent.apply(node, updates.config("b", image))
    agent.wait_done(node, "b", TIMEOUT)
    total = time.monotonic() - started
    entries = agent.update_journal(node, agent.history(node)[0]["update_id"])
    times = [(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, entry) for entry in entries]
    leased = next(at for at, entry in times if entry.get("NODEAGENT_PHASE") == "Leasing")
    ours = times[-1][0] - leased

    node = make_bootc_node_at_a()
    misbehave(node, of="/blobs/", rate=RATE)
    node.write("/run/adapter.py", script("bootc", "Bootc"))
    python = ["/usr/lib/nodeagent/bin/python3", "-BIS", "/run/adapter.py"]
    node.run(["systemctl", "stop", agent.UNIT])
    started = time.monotonic()
    staged = json.loads(node.run([*python, "stage", image.by_digest], timeout=TIMEOUT).stdout)
    assert staged[0][0] == image.digest, staged
    staging = time.monotonic() - started
    node.run([*python, "unlock"])
    with node.rebooting():
        node.run(["systemctl", "reboot"])
    drain_first = time.monotonic() - started
    agent.wait_daemon(node)
    there = updates.wait_status(node, "the deployments are known", lambda now: now["deployments"])
    assert there["deployments"][0]["digest"] == image.digest

    ratio = ours / drain_first
    result = {
        "schema": "nodeagent/bench-drained-window/v1",
        "host": "container, bootc",
        "payload_bytes": FILES * SIZE,
        "rate": RATE,
        "ours_seconds": round(ours, 1),
        "ours_from_apply_seconds": round(total, 1),
        "drain_first_seconds": round(drain_first, 1),
        "drain_first_staging_seconds": round(staging, 1),
        "ratio": round(ratio, 2),
        "good": ratio <= LIMIT,
    }
    with capsys.disabled():
        print(f"\n{json.dumps(result, indent=2)}")
