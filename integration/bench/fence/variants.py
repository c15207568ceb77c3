# SPDX-License-Identifier: Apache-2.0
"""What an update is staged with: the cases that are compared, and the parts of each, as data.

``IDLE`` (A) stages nothing. ``UNFENCED`` (B) is ostree as it comes, ``OTHERS`` (M) what machine-config-daemon's image
of the OS ships for control planes: Nice 10, best-effort 6, each object synced on its own. ``FENCED`` (C) is that of
nodeagent, ``PLAIN`` (C-plain) without its change of the scheduler. The rest takes one part out, or holds one alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["FENCED", "HEADLINE", "IDLE", "OTHERS", "PLAIN", "UNFENCED", "VARIANTS", "QueueShape", "Variant"]


@dataclass(frozen=True, slots=True)
class QueueShape:
    max_sectors_kb: int | None  # None: as it is
    depth: int | None = None  # requests that the disk has at once; the kernel takes no less than 4
    scheduler: str = ""
    no_wbt: bool = False


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    title: str
    stages: bool = True
    nice: int = 0
    io_class: str = ""  # as systemd names it
    io_priority: int = 4
    object_fsync: bool = False  # core.per-object-fsync
    queue: QueueShape | None = None
    realtime_victims: bool = False
    write_iops: int | None = None
    write_bps: int | None = None
    memory_high: int | None = None  # bytes
    cpu_weight: int = 20  # of its slice; others have 100
    cpu_quota: int | None = None  # percent of one processor
    io_cost: int | None = None  # io.weight of the update, where the victims have 1000
    pauses: bool = False  # while XFS writes its own metadata
    fence: Mapping[str, Any] | None = None
    """What is other than the defaults of ``nodeagent.features.fence.fence.FenceOptions``; ``bounds`` by name."""


IDLE = Variant("idle", "nothing is staged", stages=False)
UNFENCED = Variant("unfenced", "ostree as it comes")
OTHERS = Variant(
    "mcd", "Nice 10, best-effort 6, per-object-fsync", nice=10, io_class="best-effort", io_priority=6, object_fsync=True
)
FENCED = Variant("fence", "the fence, as it comes", nice=10, object_fsync=True, fence={})
PLAIN = replace(
    FENCED, name="fence-plain", title="the fence, without a change of the scheduler", fence={"switch_scheduler": False}
)
HEADLINE = (IDLE, UNFENCED, OTHERS, FENCED, PLAIN)

_TIGHT = QueueShape(32, 1, "mq-deadline", no_wbt=True)
_SHAPED = Variant(
    "shaped",
    "small requests, short queue, priorities",
    nice=10,
    io_class="idle",
    object_fsync=True,
    queue=_TIGHT,
    realtime_victims=True,
)
_CAPPED = replace(_SHAPED, write_iops=200)

VARIANTS = {
    variant.name: variant
    for variant in (
        *HEADLINE,
        _SHAPED,
        replace(_SHAPED, name="shaped-batched", title="the shaped queue, without per-object-fsync", object_fsync=False),
        replace(
            _SHAPED,
            name="shaped-plain",
            title="the shaped queue, without priorities",
            io_class="",
            realtime_victims=False,
        ),
        replace(
            _SHAPED,
            name="shaped-16k",
            title="the shaped queue, requests of 16 KiB",
            queue=replace(_TIGHT, max_sectors_kb=16),
        ),
        replace(
            _SHAPED,
            name="shaped-64k",
            title="the shaped queue, requests of 64 KiB",
            queue=replace(_TIGHT, max_sectors_kb=64),
        ),
        replace(
            _SHAPED, name="shaped-none", title="small requests and a short queue, no scheduler", queue=QueueShape(32, 1)
        ),
        replace(
            _SHAPED,
            name="shaped-wbt",
            title="the shaped queue, with writeback throttling",
            queue=replace(_TIGHT, no_wbt=False),
        ),
        replace(
            _SHAPED,
            name="shaped-deep",
            title="small requests, mq-deadline, full depth",
            queue=QueueShape(32, None, "mq-deadline", no_wbt=True),
        ),
        *(
            replace(_CAPPED, name=f"shaped-{iops}", title=f"the shaped queue, {iops} writes/s", write_iops=iops)
            for iops in (80, 120, 160, 200, 240)
        ),
        replace(
            _CAPPED,
            name="shaped-160-batched",
            title="the shaped queue, 160 writes/s, without per-object-fsync",
            write_iops=160,
            object_fsync=False,
        ),
        replace(
            _CAPPED,
            name="shaped-160-mem",
            title="the shaped queue, 160 writes/s, 256 MiB",
            write_iops=160,
            memory_high=256 << 20,
        ),
        Variant(
            "fence-still",
            "the fence, with 240 writes/s that stay",
            nice=10,
            object_fsync=True,
            # Strained or calm: the rate is at its floor, and a calm of that length does not come.
            fence={
                "bounds": {"floor": 8e6, "first": 8e6, "floor_iops": 240, "patience": 1e6},
            },
        ),
        replace(FENCED, name="fence-steady", title="the fence, which does not rise", fence={"bounds": {"wary": 1e6}}),
        replace(
            FENCED, name="fence-early", title="the fence, idle class from the first instruction on", io_class="idle"
        ),
        replace(FENCED, name="fence-paused", title="the fence, paused while XFS writes its own metadata", pauses=True),
        replace(FENCED, name="fence-cpu", title="the fence, half of a processor", cpu_quota=50),
        Variant("fence-batched", "the fence, without per-object-fsync", nice=10, fence={}),
        replace(
            FENCED,
            name="fence-mq",
            title="the fence, as it comes, on a disk with mq-deadline",
            queue=QueueShape(None, None, "mq-deadline"),
        ),
        *(
            replace(OTHERS, name=f"cost{weight}", title=f"io.cost, weight {weight} to 1000", io_cost=weight)
            for weight in (20, 100)
        ),
        Variant("fsync", "per-object-fsync alone", object_fsync=True),
        Variant("weight", "as much of the processor as others", cpu_weight=100),
        Variant(
            "class",
            "mq-deadline and priorities, per-object-fsync",
            io_class="idle",
            object_fsync=True,
            queue=QueueShape(None, None, "mq-deadline", no_wbt=True),
            realtime_victims=True,
        ),
        replace(
            _CAPPED,
            name="shaped-300-16k",
            title="requests of 16 KiB, 300 a second",
            write_iops=300,
            queue=replace(_TIGHT, max_sectors_kb=16),
        ),
        Variant("cap4", "4 MB/s, per-object-fsync", object_fsync=True, write_bps=4_000_000),
        Variant("cap8", "8 MB/s", write_bps=8_000_000),
        Variant("iops120", "120 writes/s, per-object-fsync", object_fsync=True, write_iops=120),
        Variant("small", "requests of 32 KiB, per-object-fsync", object_fsync=True, queue=QueueShape(32)),
        Variant("memory", "256 MiB of memory", memory_high=256 << 20),
    )
}
