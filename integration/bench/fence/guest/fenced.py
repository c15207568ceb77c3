# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest, with the package's interpreter: runs a command with a fence around what a unit writes.

    fenced.py UNIT LOG OPTIONS COMMAND...

OPTIONS is JSON: fields of FenceOptions, and in ``bounds`` those of Bounds. The protected workload is etcd and, for
priorities, the open-loop
probe. LOG gets a line of JSON for each change of the limits, with the time (monotonic clock), and at the end what could
not be put back.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nodeagent.features.fence.decide.bounds import Bounds
from nodeagent.features.fence.decide.view import FenceView
from nodeagent.features.fence.fence import FenceOptions, fenced
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.features.fence.sensors.sensors import Protected, etcd_metrics
from nodeagent.host.dbus.client import Bus
from nodeagent.host.etcd.options import Options

UNDO = Path("/run/bench/restore_log")
VICTIMS = Path("/sys/fs/cgroup/victims.slice")
METRICS = Options({"listen-metrics-urls": "http://127.0.0.1:2379"})


def victims() -> list[int]:
    return [int(pid) for file in VICTIMS.rglob("cgroup.procs") for pid in file.read_text().split()]


async def main(unit: str, log: str, chosen: dict[str, Any], command: Sequence[str]) -> int:
    options = FenceOptions(**{**chosen, "bounds": Bounds(**chosen.get("bounds", {}))})
    lines: list[dict[str, Any]] = []

    def emit(view: FenceView) -> None:
        line = dict(view.to_dict())
        changing = {key: line.get(key) for key in ("active", "reason", "message", "write_bps", "write_iops")}
        if not lines or any(lines[-1].get(key) != value for key, value in changing.items()):
            lines.append({"at": time.monotonic(), **line})

    async with Bus() as bus:
        victim = Protected(Path("/var/bench/etcd"), await etcd_metrics(METRICS), victims)
        restore_log = RestoreLog(UNDO)
        async with fenced(unit, victim, bus=bus, restore_log=restore_log, options=options, emit=emit) as fence:
            begun, worked = time.monotonic(), time.process_time()
            started = await asyncio.create_subprocess_exec(*command)
            status = await started.wait()
            # What the fence costs: parts of one processor, which is many times slower than a real one without KVM.
            cost = (time.process_time() - worked) / (time.monotonic() - begun)
    idle = None if fence.idle is None else [fence.idle.p50, fence.idle.p99]
    last = {"left": fence.left, "idle": idle, "cost": cost, "view": fence.view.to_dict()}
    lines.append({"at": time.monotonic(), **last})
    await asyncio.to_thread(Path(log).write_text, "".join(json.dumps(line) + "\n" for line in lines))
    return status


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4:])))
