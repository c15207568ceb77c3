"""A status as lines for a person: what, since when, who, and what now. Pure, apart from colours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from nodeagent.cli._output import printable
from nodeagent.cli._terminal import BAD, DIM, GOOD, STRONG, WARN, ago, ahead, clock, paint
from nodeagent.core.hints import hint

__all__ = ["progress_line", "view"]

WIDTH = 24  # of the bar, in characters
SHOWN = 20  # pods that a drain waits for; those that are blocked come first


def view(status: dict[str, Any], now: datetime, *, bar: bool = False) -> list[str]:
    """``bar``: draw progress as one; plain text says 3/9 (40 %)."""
    rows = list(_rows(status, now, bar=bar))
    width = max(len(label) for label, _ in rows)
    return [f"{label.ljust(width)}  {text}" for label, text in rows]


def _rows(status: dict[str, Any], now: datetime, *, bar: bool) -> Iterator[tuple[str, str]]:
    phase, reason = status["phase"], status["reason"]
    yield "phase", paint(phase, _style(phase, reason)) + (f" ({reason})" if reason else "")
    if status["since"]:
        yield "since", f"{clock(status['since'], now)}, {ago(status['since'], now)}"
    if status["message"]:
        yield "message", printable(status["message"])
    if reason:
        yield "what now", paint(hint(reason), STRONG)
    for problem in status.get("problems", ()):
        yield "problem", paint(printable(f"{problem['reason']}: {problem['message']}"), WARN)
        yield "what now", paint(hint(problem["reason"]), STRONG)
    if step := status["step"]:
        yield "step", _step(step, bar=bar)
    yield "current", printable(status["current"]) or "none yet"
    target = status.get("target") or status["desired"]
    if status["desired"] and not status["desired"] == status["current"] == target:
        yield "desired", printable(status["desired"])
    if target != status["desired"]:  # the desired config has its turn afterwards
        yield "updating to", printable(target)
    if lease := status["lease"]:
        yield "lease", _lease(lease, now)
    if found := status.get("maintenance"):
        yield "maintenance", _maintenance(found, now)
    if drain := status["drain"]:
        yield from _drain(drain, now)
    for deployment in status["deployments"]:
        yield "deployment", _deployment(deployment)
    if fence := status["fence"]:
        yield "fence", printable(_fence(fence))
    if status["update_id"]:
        yield "update", paint(status["update_id"], DIM)
    if status["daemon"] != "running":
        yield "daemon", paint("stopped", WARN) + "; this is what its record says. Start it: systemctl start nodeagent"


def _fence(fence: dict[str, Any]) -> str:
    """Only the first three keys are of the contract; an older daemon sends no more."""
    if not fence["active"]:
        return f"not up: {fence.get('message', '')}"
    cap = (
        "writes are not capped" if fence["write_bps"] is None else f"writes at most {fence['write_bps'] / 1e6:.0f} MB/s"
    )
    p99 = "" if fence["victim_p99_ms"] is None else f", victims' p99 {fence['victim_p99_ms']} ms"
    if "exceedances" not in fence:
        return cap + p99
    slow = f", {fence['exceedances']} slow" if fence["exceedances"] else ""
    return f"{cap}{p99}{slow}, capped for {fence['throttled_seconds']:.0f} s ({fence['reason']}: {fence['message']})"


def _style(phase: str, reason: str) -> str:
    if phase == "Degraded":
        return BAD
    if phase == "Idle":
        return GOOD
    return WARN if reason else STRONG


def _step(step: dict[str, Any], *, bar: bool) -> str:
    if not step["count"]:  # a task without parts that could be counted
        return printable(step["name"])
    counted = f"{step['index']}/{step['count']} ({step['percent']} %)"
    if not bar:
        return f"{printable(step['name'])}, {counted}"
    full = round(WIDTH * step["percent"] / 100)
    return f"{printable(step['name'])}  {paint('█' * full, GOOD)}{paint('░' * (WIDTH - full), DIM)}  {counted}"


def _lease(lease: dict[str, Any], now: datetime) -> str:
    """Optional keys are those that an older daemon, or another backend, does not send."""
    text: str = lease["holder"]
    if lease.get("operation") == "maintenance":
        text += ", maintenance"
    if lease["reason"]:
        text += f": {lease['reason']}"
    if lease.get("since"):
        text += f" (since {clock(lease['since'], now)}, {ago(lease['since'], now)})"
    if lease["expires"]:
        text += f", expires {clock(lease['expires'], now)}"
    return printable(text)


def _drain(drain: dict[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    """Optional keys are those that an older daemon does not send."""
    if drain.get("requester"):
        since = f" (since {clock(drain['since'], now)}, {ago(drain['since'], now)})" if drain.get("since") else ""
        yield "drain for", printable(f"{drain['requester']}: {drain['reason']}{since}")
    if drain.get("deadline"):
        yield "deadline", f"{clock(drain['deadline'], now)}{ahead(drain['deadline'], now)}; then {drain['then']}"
    pods = drain["remaining"]
    told: set[str] = set()
    for pod in pods[:SHOWN]:
        yield "waits for", printable(f"{pod['namespace']}/{pod['name']}: {pod['why']}")
        if (way := pod.get("hint")) and way not in told:
            told.add(way)
            yield "what now", paint(printable(way), STRONG)
    if len(pods) > SHOWN:
        yield "waits for", f"{len(pods) - SHOWN} more (status --json has all)"
    if not pods:
        yield "waits for", "a second look: no pods are left"


def _maintenance(found: dict[str, Any], now: datetime) -> str:
    text = f"{found['state']}: {found['requester']}: {found['reason']} (since {clock(found['since'], now)}"
    text += f", until {clock(found['until'], now)})" if found["until"] else ", until a person stops it)"
    return printable(f"{text}; {found['message']}" if found["message"] else text)


def _deployment(deployment: dict[str, Any]) -> str:
    marks = [mark for mark in ("booted", "staged", "locked") if deployment[mark]]
    name = " ".join(part for part in (deployment["version"], deployment["checksum"][:12]) if part)
    return printable(name) + (f" ({', '.join(marks)})" if marks else "")


def progress_line(status: dict[str, Any]) -> str:
    """For logs and pipes: what changed, in one line."""
    parts = [status["phase"]]
    if step := status["step"]:
        parts.append(f"{step['index']}/{step['count']} {step['name']}" if step["count"] else step["name"])
    if status["reason"]:
        parts.append(status["reason"])
    if status["message"]:
        parts.append(status["message"])
    return printable(": ".join(parts))
