# SPDX-License-Identifier: Apache-2.0
"""Past updates, and the one under way."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, UnsetType

from nodeagent.contract.keys import Keys, about
from nodeagent.contract.shared import Detail, Disruption
from nodeagent.core.plan.change import ChangeKind, PolicySource


class Entry(Keys):
    update_id: Annotated[str, about("id of the update; empty for a request that began none")]
    from_name: Annotated[str, about("the config before; empty without one")]
    to_name: Annotated[str, about("the new config")]
    to_digest: Annotated[str, about("SHA-256 of its text")]
    started: Annotated[str, about("RFC 3339 by the wall clock")]
    finished: Annotated[str, about("RFC 3339 by the wall clock; while it is under way, the time of the answer")]
    seconds: Annotated[
        float,
        about("length by the clock of each boot; the time between two boots is that of the wall clock"),
    ]
    outcome: Annotated[
        str,
        about(
            "done, done-after-fallback, partial, reverted, degraded, superseded, withdrawn, cancelled, refused; "
            "under-way for one that has not ended"
        ),
    ]
    disruption: Annotated[Disruption, about("the strongest planned action")]
    reboots: Annotated[int, about("reboots that the agent requested")]
    soft_reboots: Annotated[int, about("how many of them were soft; the others were full")]
    boots: Annotated[
        int,
        about(
            "boots during the update, whatever their cause. More boots than reboots: a power cut, or another program "
            "that rebooted the host. A power cut after the request counts as the reboot"
        ),
    ]
    fallback: Annotated[bool, about("whether one of the reboots was not planned")]
    reboot_avoided: Annotated[bool, about("whether the policy of the admin replaced one")]
    reason: Annotated[str, about("why it ended so, or why the reboot was soft or full; empty for none")]
    message: Annotated[str, about("the reason in words")]
    successor: Annotated[str, about("the config that replaced it; empty for none")]
    failed_unit: Annotated[str, about("the unit that failed last; empty for none")]
    etcd_disk: Annotated[
        dict[str, Any], about("latency of etcd's disk before, during and after the staging; empty without one")
    ]


class Totals(Keys):
    updates: Annotated[int, about("updates that the store keeps")]
    reboots: Annotated[int, about("reboots that they requested")]
    reboots_avoided: Annotated[int, about("reboots that the policy of the admin replaced")]


class History(Keys):
    schema: Annotated[Literal["nodeagent/history/v1"], about("the schema of this object")]
    updates: Annotated[list[Entry], about("the newest first, up to --limit")]
    totals: Annotated[Totals, about("over all updates of the store")]


class KeptChange(Keys):
    domain: Annotated[str, about("as in a plan")]
    key: Annotated[str, about("as in a plan")]
    change: Annotated[ChangeKind, about("how the entry changed")]
    policy: Annotated[PolicySource, about("whose entry of the policy decided, as in nodeagent/plan/v1")]
    actions: Annotated[list[str], about("as Restart crio.service")]
    details: Annotated[list[Detail], about("up to 5 values, as in a plan")] | UnsetType = UNSET


class KeptPlan(Keys):
    changes: Annotated[list[KeptChange], about("up to 100 changes")] | UnsetType = UNSET
    more: Annotated[int, about("number of further changes")] | UnsetType = UNSET
    actions: Annotated[list[str], about("the ordered actions, as Restart crio.service")] | UnsetType = UNSET
    drain: Annotated[bool, about("whether the node was to be drained")] | UnsetType = UNSET
    os: Annotated[str, about("what the staged OS changed, in one line; only if it is known")] | UnsetType = UNSET


class Boot(Keys):
    id: Annotated[str, about("boot id; +N after the N-th soft reboot")]
    seen: Annotated[float, about("first sign of life of the update in this boot, seconds of CLOCK_BOOTTIME")]
    last: Annotated[float, about("last sign of life, likewise")]
    offset: Annotated[float, about("Unix time of the wall clock less CLOCK_BOOTTIME, at last")]
    accepted: Annotated[float | None, about("when logind accepted a reboot, likewise; null without one")]
    clock_steps: Annotated[
        list[tuple[float, float]],
        about("changes of the wall clock by a second or more: when each was noticed, and the seconds"),
    ]


class Span(Keys):
    name: Annotated[str, about("the phase, or the step, as restart crio.service; empty for a wait")]
    at: Annotated[str, about("RFC 3339 by the wall clock at that time")]
    boot: Annotated[int, about("index of the boot")]
    mono: Annotated[float, about("its beginning, seconds of CLOCK_BOOTTIME")]
    seconds: Annotated[
        float | None, about("length; null while it lasts. After a crash, it ends at the last sign of life")
    ]
    result: Annotated[
        Literal["", "done", "failed", "skipped"], about("of a step; empty if it was interrupted, and for others")
    ]
    phase: Annotated[str, about("the phase of a step or a wait; empty for a phase")]
    reason: Annotated[str, about("the cause of a phase, or of a wait")]
    message: Annotated[str, about("of a step, or what the update waits for")]


class Pace(Keys):
    boot: Annotated[int, about("index of the boot")]
    mono: Annotated[float, about("its beginning, seconds of CLOCK_BOOTTIME")]
    seconds: Annotated[float, about("its length")]
    throttled: Annotated[float, about("seconds with a limit on writes")]
    exceedances: Annotated[int, about("slow fsyncs of etcd")]
    source: Annotated[str, about("where the latency comes from")]
    every: Annotated[float, about("distance of two points in seconds")]
    samples: Annotated[
        list[tuple[float, int | None, float | None]],
        about(
            "up to 120 points: seconds since the beginning, limit in bytes/s (null: none), p99 of etcd's fsyncs in "
            "milliseconds (null: not known). Each point has the lowest limit and the largest latency since the last one"
        ),
    ]


class Trail(Keys):
    boots: Annotated[list[Boot], about("the boots of the update, the first one first")] | UnsetType = UNSET
    phases: Annotated[list[Span], about("up to 60, in order")] | UnsetType = UNSET
    steps: Annotated[list[Span], about("up to 100, in order")] | UnsetType = UNSET
    waits: Annotated[list[Span], about("up to 40, in order")] | UnsetType = UNSET
    writes: Annotated[int, about("files, units and passwords that were written")] | UnsetType = UNSET
    fence: Annotated[Pace | None, about("the course of the I/O fence; null without one")] | UnsetType = UNSET
    omitted: Annotated[int, about("items that were left out: the first and the last are kept")] | UnsetType = UNSET
    omitted_boots: Annotated[int, about("boots among them")] | UnsetType = UNSET


class Update(Entry):
    schema: Annotated[Literal["nodeagent/update/v1"], about("the schema of this object")]
    plan: Annotated[KeptPlan, about("a summary of the plan; empty for an update long ago")]
    trail: Annotated[
        Trail,
        about(
            "the course of the update; empty for an update long ago. A length is the difference of two times of one "
            "boot, which no change of the wall clock affects"
        ),
    ]


class UpdateDifference(Keys):
    what: Annotated[str, about("what differs: to, outcome, took, an entry, in PHASE, and others")]
    a: Annotated[str, about("of the first update; - for nothing")]
    b: Annotated[str, about("of the second update")]


class HistoryDiff(Keys):
    schema: Annotated[Literal["nodeagent/history-diff/v1"], about("the schema of this object")]
    a: Annotated[str, about("id of the first update")]
    b: Annotated[str, about("id of the second update")]
    differences: Annotated[list[UpdateDifference], about("empty if the two do not differ")]
