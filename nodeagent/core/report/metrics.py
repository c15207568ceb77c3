"""What a monitoring system gets to see: the status and the tally as Prometheus metrics.

Names, labels and meanings are an interface (docs/metrics.md has the table, made from ``FAMILIES``). Labels have few
values each: phases, reasons, outcomes, names of configs. Times are seconds since the epoch, so that "how long by now"
is asked when it is asked: nothing is written while nothing happens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.core.report.counters import BOUNDS, Tally
from nodeagent.core.report.exposition import Family, Kind, Sample
from nodeagent.core.report.status import Status
from nodeagent.core.update.outcome import IN_HISTORY
from nodeagent.core.update.phase import Phase

__all__ = ["FAMILIES", "HISTORY", "samples"]


INFO = Family("nodeagent_info", Kind.GAUGE, "The daemon is up; its version. Always 1.", ("version",))
PHASE = Family("nodeagent_phase", Kind.GAUGE, "1 for the phase that the agent is in, 0 for the others.", ("phase",))
PHASE_START = Family(
    "nodeagent_phase_start_timestamp_seconds", Kind.GAUGE, "When this phase was entered, since the epoch."
)
REASON = Family(
    "nodeagent_reason", Kind.GAUGE, "Why the agent is degraded, or what it waits for. Absent without one.", ("reason",)
)
CONFIG = Family(
    "nodeagent_config_info",
    Kind.GAUGE,
    "The config that is in force and the one that is wanted.",
    ("current", "desired"),
)
IN_SYNC = Family("nodeagent_config_in_sync", Kind.GAUGE, "1 if the config that is wanted is the one in force.")
DRIFTED = Family(
    "nodeagent_drifted", Kind.GAUGE, "1 if an update is refused because somebody else changed managed files."
)
DEPLOYMENT = Family(
    "nodeagent_deployment_info",
    Kind.GAUGE,
    "The deployments that are booted or staged.",
    ("state", "checksum", "version"),
)
LEASE = Family(
    "nodeagent_lease_held", Kind.GAUGE, "Who holds this node. Absent when nobody does.", ("backend", "holder")
)
LEASE_START = Family("nodeagent_lease_start_timestamp_seconds", Kind.GAUGE, "Since when, since the epoch.")
MAINTENANCE = Family(
    "nodeagent_maintenance",
    Kind.GAUGE,
    "A person wants this node. Absent without a maintenance.",
    ("requester", "state"),
)
MAINTENANCE_START = Family(
    "nodeagent_maintenance_start_timestamp_seconds", Kind.GAUGE, "When it was asked for, since the epoch."
)
DRAIN_PODS = Family("nodeagent_drain_pods", Kind.GAUGE, "Pods that a drain waits for. Absent without a drain.")
FENCE = Family(
    "nodeagent_fence_active",
    Kind.GAUGE,
    "1 while staging is fenced, 0 if it cannot be. Absent while nothing is staged.",
)
FENCE_LIMIT = Family(
    "nodeagent_fence_write_limit_bytes_per_second", Kind.GAUGE, "What staging may write. Absent without a cap."
)
FENCE_P99 = Family(
    "nodeagent_fence_victim_fsync_p99_seconds",
    Kind.GAUGE,
    "Of etcd's fsyncs lately, while staging is fenced. Absent when nobody knows.",
)
UPDATES = Family("nodeagent_updates_total", Kind.COUNTER, "Updates that ended, by outcome.", ("outcome",))
DURATION = Family(
    "nodeagent_update_duration_seconds",
    Kind.HISTOGRAM,
    "From the start of an update to its end, reboots included. Not of superseded and withdrawn ones.",
)
ENDED = Family(
    "nodeagent_last_update_end_timestamp_seconds", Kind.GAUGE, "When the last update ended, since the epoch."
)
REBOOTS = Family("nodeagent_reboots_total", Kind.COUNTER, "Boots that came in the middle of an update.")
AVOIDED = Family(
    "nodeagent_reboots_avoided_total",
    Kind.COUNTER,
    "Updates in which an entry of the admin's policy replaced a reboot of the built-in policy.",
)
FALLBACKS = Family(
    "nodeagent_fallbacks_total", Kind.COUNTER, "Updates that rebooted because an action failed, however they ended."
)
REFUSED = Family(
    "nodeagent_refused_total", Kind.COUNTER, "Desired configs that were not begun, by reason.", ("reason",)
)
WAITS = Family(
    "nodeagent_waits_total",
    Kind.COUNTER,
    "Waits that began, by phase and reason. LeaseHeld while Releasing: the node was taken during a reboot of ours.",
    ("phase", "reason"),
)
PHASE_SECONDS = Family(
    "nodeagent_phase_seconds_total",
    Kind.COUNTER,
    "Time spent in phases that are over: Leasing waits for the lease, Draining drains, Staging stages.",
    ("phase",),
)
FETCHED = Family("nodeagent_staging_fetched_bytes_total", Kind.COUNTER, "Bytes of OS images that were fetched.")

THROTTLED = Family("nodeagent_fence_throttled_seconds_total", Kind.COUNTER, "Time in which staging was under a cap.")
SLOW_FSYNCS = Family(
    "nodeagent_fence_victim_slow_fsyncs_total", Kind.COUNTER, "Fsyncs of etcd over 100 ms while staging was fenced."
)

# In the order of the page.
HISTORY = (UPDATES, DURATION, ENDED, REBOOTS, AVOIDED, FALLBACKS)  # these go on after a restart
FAMILIES = (
    *(INFO, PHASE, PHASE_START, REASON, CONFIG, IN_SYNC, DRIFTED, DEPLOYMENT),
    *(LEASE, LEASE_START, MAINTENANCE, MAINTENANCE_START, DRAIN_PODS),
    *(FENCE, FENCE_LIMIT, FENCE_P99),
    *HISTORY,
    *(REFUSED, WAITS, PHASE_SECONDS, FETCHED, THROTTLED, SLOW_FSYNCS),
)


def samples(status: Status, tally: Tally, version: str) -> Iterator[Sample]:
    yield from _standing(status, version)
    yield from _others(status)
    yield from _fence(status)
    yield from _history(tally)
    for reason, count in sorted(tally.refused.items()):
        yield REFUSED.at(count, reason)
    for labels, count in sorted(tally.waits.items()):
        yield WAITS.at(count, *labels)
    for phase in Phase:
        yield PHASE_SECONDS.at(tally.phases.get(phase, 0.0), phase)
    yield FETCHED.at(tally.fetched)
    yield THROTTLED.at(tally.throttled)
    yield SLOW_FSYNCS.at(tally.slow_fsyncs)


def _standing(status: Status, version: str) -> Iterator[Sample]:
    yield INFO.at(1, version)
    for phase in Phase:
        yield PHASE.at(status.phase is phase, phase)
    if (since := parse_time(status.since)) is not None:
        yield PHASE_START.at(since)
    if status.reason:
        yield REASON.at(1, status.reason)
    yield CONFIG.at(1, status.current, status.desired)
    yield IN_SYNC.at(_in_sync(status))
    yield DRIFTED.at(status.reason == "Drifted")
    for found in status.deployments:
        for state, is_so in (("booted", found.booted), ("staged", found.staged)):
            if is_so:
                yield DEPLOYMENT.at(1, state, found.checksum, found.version)


def _in_sync(status: Status) -> bool:
    """By content where both digests are known: a name may stay while what it stands for changes."""
    if status.current_digest and status.desired_digest:
        return status.current_digest == status.desired_digest
    return status.current == status.desired


def _others(status: Status) -> Iterator[Sample]:
    if status.lease is not None:
        yield LEASE.at(1, status.backend, status.lease.name)
        if (since := parse_time(status.lease.since)) is not None:
            yield LEASE_START.at(since)
    if status.maintenance is not None:
        yield MAINTENANCE.at(1, status.maintenance.requester, status.maintenance.state(status.boot_id))
        if (since := parse_time(status.maintenance.since)) is not None:
            yield MAINTENANCE_START.at(since)
    if status.remaining is not None:
        yield DRAIN_PODS.at(len(status.remaining))


def _fence(status: Status) -> Iterator[Sample]:
    if status.fence is None:
        return
    yield FENCE.at(status.fence.active)
    if status.fence.write_bps is not None:
        yield FENCE_LIMIT.at(status.fence.write_bps)
    if status.fence.p99 is not None:
        yield FENCE_P99.at(status.fence.p99)


def _history(tally: Tally) -> Iterator[Sample]:
    for outcome in sorted({*map(str, IN_HISTORY), *tally.updates}):
        yield UPDATES.at(tally.updates[outcome], outcome)
    below = 0
    for bound, count in zip((*BOUNDS, math.inf), tally.lengths, strict=True):
        below += count
        yield DURATION.at(below, suffix="_bucket", le=bound)
    yield DURATION.at(tally.seconds, suffix="_sum")
    yield DURATION.at(below, suffix="_count")
    if tally.ended is not None:
        yield ENDED.at(tally.ended)
    yield REBOOTS.at(tally.reboots)
    yield AVOIDED.at(tally.avoided)
    yield FALLBACKS.at(tally.fallbacks)
