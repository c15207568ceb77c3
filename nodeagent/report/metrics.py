# SPDX-License-Identifier: Apache-2.0
"""The status and the counters as Prometheus metrics.

Names, labels and meanings are an interface: the table in docs/reference/metrics.md is generated from ``families``.
Labels have few values each: phases, reasons, outcomes, names of configs. Times are seconds since the epoch, so that
nothing is written while nothing happens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.report.counters import BOUNDS, Counters
from nodeagent.report.exposition import Family, MetricKind, Sample
from nodeagent.report.parts.registry import part_views
from nodeagent.report.status import Status
from nodeagent.update.history.outcome import IN_HISTORY
from nodeagent.update.states import Phase

# An info metric carries its facts in labels, by which PromQL joins it with others.
INFO = Family("nodeagent_info", "The daemon is up; its version. Always 1.", ("version",))
# One series for each phase, so that a query for any phase has an answer.
PHASE = Family("nodeagent_phase", "1 for the phase that the agent is in, 0 for the others.", ("phase",))
PHASE_START = Family("nodeagent_phase_start_timestamp_seconds", "Start of this phase.")
# To PromQL a label with an empty value is no label, so there is no sample without a reason.
REASON = Family(
    "nodeagent_reason", "Why the agent is degraded, or what it waits for. Absent without a reason.", ("reason",)
)
# Names come and go with the configs, but each host has only two of them at a time.
CONFIG = Family("nodeagent_config_info", "Names of the current and the desired config.", ("current", "desired"))
IN_SYNC = Family("nodeagent_config_in_sync", "1 if the current config is the desired one.")
WAITING = Family(
    "nodeagent_waiting_changes",
    "Changes of a blocked config that wait while its safe parts are applied. Absent otherwise.",
)
WAITING_START = Family(
    "nodeagent_waiting_start_timestamp_seconds", "Time since which only the safe parts of a config are applied."
)
DEPLOYMENT = Family(
    "nodeagent_deployment_info", "The booted and the staged deployment.", ("state", "checksum", "version")
)
LEASE = Family(
    "nodeagent_lease_held", "Holder of the lease of this node. Absent without a holder.", ("backend", "holder")
)
LEASE_START = Family("nodeagent_lease_start_timestamp_seconds", "Time when the holder took the lease.")
UPDATES = Family("nodeagent_updates_total", "Ended updates, by outcome.", ("outcome",), kind=MetricKind.COUNTER)
# A histogram, because the quantiles of a fleet follow from the buckets of its hosts, and not from their quantiles.
DURATION = Family(
    "nodeagent_update_duration_seconds",
    "Duration of updates, reboots included. Superseded and withdrawn updates do not count.",
    kind=MetricKind.HISTOGRAM,
)
ENDED = Family("nodeagent_last_update_end_timestamp_seconds", "End of the last update.")
REBOOTS = Family("nodeagent_reboots_total", "Reboots that the agent requested for an update.", kind=MetricKind.COUNTER)
AVOIDED = Family(
    "nodeagent_reboots_avoided_total",
    "Updates in which an entry of the admin's policy replaced a reboot of the built-in policy.",
    kind=MetricKind.COUNTER,
)
FALLBACKS = Family(
    "nodeagent_fallbacks_total", "Updates with a fallback reboot, whatever their outcome.", kind=MetricKind.COUNTER
)
SOFT_REBOOTS = Family(
    "nodeagent_soft_reboots_total",
    "Reboots for an update that started all services and no kernel; they are among nodeagent_reboots_total.",
    kind=MetricKind.COUNTER,
)
# Reasons are a closed list, so the number of series is bounded.
REFUSED = Family("nodeagent_refused_total", "Refused desired configs, by reason.", ("reason",), kind=MetricKind.COUNTER)
WAITS = Family(
    "nodeagent_waits_total",
    "Waits, by phase and reason. LeaseHeld in Releasing: another holder took the node during a reboot.",
    ("phase", "reason"),
    kind=MetricKind.COUNTER,
)
# The current phase is left out, so that the page changes with events, and not with the time.
PHASE_SECONDS = Family(
    "nodeagent_phase_seconds_total",
    "Time spent in each phase, without the current one. Leasing is the wait for the lease.",
    ("phase",),
    kind=MetricKind.COUNTER,
)
FETCHED = Family("nodeagent_staging_fetched_bytes_total", "Fetched bytes of OS images.", kind=MetricKind.COUNTER)

# Metrics that continue after a restart of the daemon.
HISTORY = (UPDATES, DURATION, ENDED, REBOOTS, AVOIDED, FALLBACKS, SOFT_REBOOTS)
_BEFORE_PARTS: Final = (
    *(INFO, PHASE, PHASE_START, REASON, CONFIG, IN_SYNC, WAITING, WAITING_START, DEPLOYMENT),
    *(LEASE, LEASE_START),
)


def families() -> Sequence[Family]:
    """Return the families in the order of the page."""
    gauges = (family for view in part_views() for family in view.families)
    counters = (family for view in part_views() for family in view.counter_families)
    return *_BEFORE_PARTS, *gauges, *HISTORY, REFUSED, WAITS, PHASE_SECONDS, FETCHED, *counters


def samples(status: Status, counters: Counters, version: str) -> Iterator[Sample]:
    yield from _standing(status, version)
    yield from _others(status)
    for view in part_views():
        yield from view.samples(status)
    yield from _history(counters)
    for reason, count in sorted(counters.refused.items()):
        yield REFUSED.at(count, reason)
    for labels, count in sorted(counters.waits.items()):
        yield WAITS.at(count, *labels)
    for phase in Phase:
        yield PHASE_SECONDS.at(counters.phases.get(phase, 0.0), phase)
    yield FETCHED.at(counters.fetched)
    for view in part_views():
        yield from view.counter_samples(counters)


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
    if status.partial is not None:
        yield WAITING.at(len(status.partial.waits))
        if (since := parse_time(status.partial.since)) is not None:
            yield WAITING_START.at(since)
    for deployment in status.deployments:
        for state, is_so in (("booted", deployment.booted), ("staged", deployment.staged)):
            if is_so:
                yield DEPLOYMENT.at(1, state, deployment.checksum, deployment.version)


def _in_sync(status: Status) -> bool:
    """Return whether the current config is the desired one, by digest if both are known: a name may be reused."""
    if status.current_digest and status.desired_digest:
        return status.current_digest == status.desired_digest
    return status.current == status.desired


def _others(status: Status) -> Iterator[Sample]:
    if status.lease is not None:
        yield LEASE.at(1, status.backend, status.lease.name)
        if (since := parse_time(status.lease.since)) is not None:
            yield LEASE_START.at(since)


def _history(counters: Counters) -> Iterator[Sample]:
    # Outcomes that never occurred are zero, and not absent: increase() of PromQL does not see a series begin, so the
    # first failure of a host would not count.
    for outcome in sorted({*map(str, IN_HISTORY), *counters.updates}):
        yield UPDATES.at(counters.updates[outcome], outcome)
    below = 0
    for bound, count in zip((*BOUNDS, math.inf), counters.lengths, strict=True):
        below += count
        yield DURATION.at(below, suffix="_bucket", le=bound)
    yield DURATION.at(counters.seconds, suffix="_sum")
    yield DURATION.at(below, suffix="_count")
    if counters.ended is not None:
        yield ENDED.at(counters.ended)
    yield REBOOTS.at(counters.reboots)
    yield AVOIDED.at(counters.avoided)
    yield FALLBACKS.at(counters.fallbacks)
    yield SOFT_REBOOTS.at(counters.soft_reboots)
