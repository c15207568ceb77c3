# SPDX-License-Identifier: Apache-2.0
"""What the phases and entries of a run come to, as JSON, and whether the aims are reached. Pure.

All in milliseconds but staging and harm, which are seconds. A run in which staging was not seen to hurt proves nothing
about a fence: it is *inconclusive*, with the reasons, whatever the fence's numbers are. So is one in which this
machine had no time for the guest. A phase in which it had none does not count where the variant has others, whatever
came of either.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from integration.bench.fence.rounds import Phase
from integration.bench.fence.stats import HARMFUL, Entry, between, histogram_quantile, median, quantile, summary

__all__ = ["AIMS", "aims", "counted", "doubts", "late", "of_phase", "of_variants", "quiet"]

CONTENTION = 3.0  # times the idle p99 that staging without a fence must cost, or nothing was shown
DRIFT = 2.0  # between the idle phases of a run
WAITED = 0.25  # part of the time for which the guest was kept from running
STOLEN = 0.15  # part of what this machine asked of its own host and did not get, in any phase
_BUCKET = re.compile(r'^etcd_disk_(\w+)_duration_seconds_bucket\{le="([^"]+)"\}$')

AIMS: Mapping[str, Mapping[str, float]] = {
    "xfs": {"harm": 0.0, "worst_ms": 100.0, "p99_over_idle": 3.0, "staging_over_unfenced": 1.5},
    "ext4": {"harm_over_others": 0.1, "worst_ms": 250.0},
}

Json = dict[str, Any]


def of_phase(
    phase: Phase, entries: Sequence[Entry], rate: float, others: Mapping[str, Sequence[Entry]] | None = None
) -> Json:
    """``others``: what else was timed, by name; each gets three numbers."""
    found = summary(between(entries, phase.begin, phase.end), rate)
    before, after = phase.etcd
    etcd = {
        f"{name}_p99_ms": _ms(histogram_quantile(_buckets(before, name), _buckets(after, name), 0.99))
        for name in ("wal_fsync", "backend_commit")
    }
    counts = {
        name: round(after[key] - before[key])
        for name in ("leader_changes_seen", "heartbeat_send_failures", "slow_apply")
        if (key := f"etcd_server_{name}_total") in after and key in before
    }
    return {
        "variant": phase.variant,
        "round": phase.round,
        "begin": round(phase.begin, 2),
        "end": round(phase.end, 2),
        "staging_s": None if phase.staging is None else round(phase.staging, 2),
        "written_bytes": phase.written,
        "writes": phase.writes,
        "entries": found.count,
        "p50_ms": _ms(found.p50),
        "p99_ms": _ms(found.p99),
        "p999_ms": _ms(found.p999),
        "worst_ms": _ms(found.worst),
        "sync_p99_ms": _ms(found.sync_p99),
        "over_ms": dict(found.over),
        "harm_s": round(found.harm, 3),
        "steps_s": [round(at - phase.begin, 1) for at in phase.steps],
        "late_ms": late(between(entries, phase.begin, phase.end), phase.begin),
        "after": _after(phase, entries, rate),
        "etcd": {**etcd, **counts},
        "others": {name: _three(between(some, phase.begin, phase.end)) for name, some in (others or {}).items()},
        "fence": list(phase.fence),
        "pauses": list(phase.pauses),
        "noise": {name: round(value, 3) for name, value in phase.noise.items()},
    }


def _after(phase: Phase, entries: Sequence[Entry], rate: float) -> Json | None:
    """Return the effect on later entries; None if nothing was staged."""
    if phase.after is None:
        return None
    found = summary(between(entries, phase.end, phase.after), rate)
    return {
        "seconds": round(phase.after - phase.end, 1),
        "harm_s": round(found.harm, 3),
        "worst_ms": _ms(found.worst),
        "late_ms": late(between(entries, phase.end, phase.after), phase.begin),
    }


def late(entries: Sequence[Entry], begin: float) -> dict[int, float]:
    """The worst of each second, counted from ``begin``, in which an entry took harmfully long."""
    found: dict[int, float] = {}
    for entry in entries:
        if entry.latency > HARMFUL:
            second = int(entry.due - begin)
            found[second] = max(found.get(second, 0.0), round(entry.latency * 1000, 1))
    return found


def quiet(noise: Mapping[str, float]) -> bool:
    """Return whether this machine had time for the guest."""
    return noise["host_waited"] <= WAITED and noise["host_stolen"] <= STOLEN


def counted(phases: Sequence[Json]) -> list[Json]:
    """Those that were quiet; of a variant that was never measured in quiet, all."""
    measured = {phase["variant"] for phase in phases if quiet(phase["noise"])}
    return [phase for phase in phases if quiet(phase["noise"]) or phase["variant"] not in measured]


def of_variants(phases: Sequence[Json]) -> dict[str, Json]:
    """Medians over the rounds, sums of counts, and the worst of all; ratios are of medians."""
    found: dict[str, Json] = {}
    for name in dict.fromkeys(phase["variant"] for phase in phases):
        mine = [phase for phase in phases if phase["variant"] == name]
        row: Json = {"rounds": len(mine), "harm_s": [phase["harm_s"] for phase in mine]}
        row |= {f"{key}_ms": median([p[f"{key}_ms"] for p in mine]) for key in ("p50", "p99", "p999", "sync_p99")}
        row["worst_ms"] = max(phase["worst_ms"] for phase in mine)
        if mine[0]["after"] is not None:
            row["after_harm_s"] = [phase["after"]["harm_s"] for phase in mine]
            row["after_worst_ms"] = max(phase["after"]["worst_ms"] for phase in mine)
        row["p99_ms_of_rounds"] = [phase["p99_ms"] for phase in mine]
        row["over_ms"] = {bound: sum(p["over_ms"][bound] for p in mine) for bound in mine[0]["over_ms"]}
        row["entries"] = sum(phase["entries"] for phase in mine)
        if all(phase["staging_s"] is not None for phase in mine):
            row["staging_s"] = median([phase["staging_s"] for phase in mine])
            row["staging_s_of_rounds"] = [phase["staging_s"] for phase in mine]
            row["written_bytes"] = median([phase["written_bytes"] for phase in mine])
            row["writes"] = median([phase["writes"] for phase in mine])
        row["p99_over_idle"] = _ratio(phases, mine, "idle", "p99_ms")
        row["staging_over_unfenced"] = _ratio(phases, mine, "unfenced", "staging_s")
        for key in ("wal_fsync_p99_ms", "backend_commit_p99_ms"):
            known = [phase["etcd"][key] for phase in mine if phase["etcd"][key] is not None]
            row[key] = median(known) if known else None
        row["others"] = _others(mine)
        row["leader_changes"] = sum(phase["etcd"].get("leader_changes_seen", 0) for phase in mine)
        found[name] = row
    return found


def doubts(phases: Sequence[Json], variants: Mapping[str, Json]) -> list[str]:
    """Why nothing follows from this run; empty if something does."""
    found = []
    if "idle" not in variants or "unfenced" not in variants:
        return ["without idle and unfenced there is nothing to compare with"]
    if (shown := variants["unfenced"]["p99_over_idle"]) is None or shown < CONTENTION:
        found.append(
            f"contention was not shown: unfenced staging costs {shown} times the idle p99, below {CONTENTION:g}"
        )
    idle = variants["idle"]["p99_ms_of_rounds"]
    if max(idle) > DRIFT * min(idle):
        found.append(f"the idle disk drifts: its p99 is between {min(idle):g} and {max(idle):g} ms")
    for name in variants:
        noises = [phase["noise"] for phase in phases if phase["variant"] == name]
        waited, stolen = (max(noise[key] for noise in noises) for key in ("host_waited", "host_stolen"))
        if waited > WAITED:
            found.append(f"{name}: this machine was too busy: the guest was kept waiting {waited:.0%} of the time")
        if stolen > STOLEN:
            found.append(f"{name}: this machine is a guest itself, and was not given {stolen:.0%} of what it asked for")
    return found


def aims(filesystem: str, variants: Mapping[str, Json], fenced: str = "fence", others: str = "mcd") -> dict[str, Json]:
    """Each aim with what was asked and what was reached (None: it cannot be said). Harm and the worst entry are those
    of a staging and of what came after it."""
    mine = variants[fenced]
    reached: dict[str, float | None] = {
        "harm": max(_harms(mine)),
        "worst_ms": max(mine["worst_ms"], mine["after_worst_ms"]),
        "p99_over_idle": mine["p99_over_idle"],
        "staging_over_unfenced": mine.get("staging_over_unfenced"),
        "harm_over_others": None,
    }
    if others in variants and (harm := sum(_harms(variants[others]))) > 0:
        reached["harm_over_others"] = round(sum(_harms(mine)) / harm, 3)
    return {
        name: {
            "aim": aim,
            "reached": reached[name],
            "kept": None if (is_now := reached[name]) is None else is_now <= aim,
        }
        for name, aim in AIMS[filesystem].items()
    }


def _harms(row: Json) -> list[float]:
    """Of each round, with what came after it."""
    return [round(during + after, 3) for during, after in zip(row["harm_s"], row["after_harm_s"], strict=True)]


def _three(entries: Sequence[Entry]) -> Json | None:
    if not entries:
        return None
    latencies = [entry.latency for entry in entries]
    return {"p50_ms": _ms(median(latencies)), "p99_ms": _ms(quantile(latencies, 0.99)), "worst_ms": _ms(max(latencies))}


def _others(phases: Sequence[Json]) -> Json:
    """Medians over the rounds, and the worst of all."""
    names = phases[0].get("others", {})
    found = {}
    for name in names:
        known = [phase["others"][name] for phase in phases if phase["others"][name] is not None]
        if known:
            middle = {key: median([each[key] for each in known]) for key in ("p50_ms", "p99_ms")}
            found[name] = {**middle, "worst_ms": max(each["worst_ms"] for each in known)}
    return found


def _ratio(phases: Sequence[Json], mine: Sequence[Json], other: str, key: str) -> float | None:
    """Of our median to the other's."""
    theirs = [phase[key] for phase in phases if phase["variant"] == other]
    if not theirs or None in theirs or None in (ours := [phase[key] for phase in mine]):
        return None
    return round(median(ours) / median(theirs), 2)


def _buckets(counters: Mapping[str, float], name: str) -> dict[float, float]:
    found = {}
    for key, value in counters.items():
        if (match := _BUCKET.match(key)) and match[1] == name:
            found[math.inf if match[2] == "+Inf" else float(match[2])] = value
    return found


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
