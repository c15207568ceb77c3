# SPDX-License-Identifier: Apache-2.0
"""The trail of an update on one axis, and the same update as "drain, pull, stage, reboot".

The axis has the seconds since the first phase, over all boots. A machine-config-daemon first drains, then pulls and
stages on the empty node, and reboots. So the time out of service is the sum of all parts, as they were measured on this
host. A part that was not measured is left out and named, so the sum is a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from nodeagent.core.display import with_times
from nodeagent.features.page.view.marks import length
from nodeagent.update.history.trail import Result, Span, Trail, gap_before, trail_from_dict
from nodeagent.update.states import Phase


class PartKind(StrEnum):
    """The effect of a part of an update on the host. The value is also the class of its bar."""

    # All services run.
    QUIET = "quiet"
    WAIT = "wait"
    DISRUPT = "disrupt"
    REVERT = "revert"
    FAILED = "failed"
    SKIPPED = "skipped"


_KINDS: Mapping[str, PartKind] = {
    Phase.LEASING: PartKind.WAIT,
    Phase.DRAINING: PartKind.DISRUPT,
    Phase.ACTING: PartKind.DISRUPT,
    Phase.REBOOTING: PartKind.DISRUPT,
    Phase.REVERTING: PartKind.REVERT,
}
_RESULTS: Mapping[str, PartKind] = {Result.FAILED: PartKind.FAILED, Result.SKIPPED: PartKind.SKIPPED}


@dataclass(frozen=True, slots=True)
class Bar:
    """``start`` and ``seconds`` are on the axis. ``at`` is the wall clock at that time, ``boot`` the index of the
    boot."""

    name: str
    kind: PartKind
    start: float
    seconds: float
    at: str = ""
    boot: int = 0
    text: str = ""

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass(frozen=True, slots=True)
class Downtime:
    """The time between two boots, from the last sign of life in one to the first in the next.

    ``seconds`` None: it is not known, because the wall clock went back. ``booted`` is the part of it after the start of
    the kernel, None if that is not known.
    """

    start: float
    seconds: float | None
    booted: float | None

    @property
    def end(self) -> float:
        return self.start + (self.seconds or 0.0)


@dataclass(frozen=True, slots=True)
class ServiceOutage:
    """``whole``: the node was drained, or the host rebooted. Otherwise only the units of some actions were affected."""

    start: float
    end: float
    whole: bool

    @property
    def seconds(self) -> float:
        return self.end - self.start


# Seconds on the axis, limit in bytes/s, p99 in milliseconds.
Point = tuple[float, int | None, float | None]


@dataclass(frozen=True, slots=True)
class Timeline:
    total: float
    phases: tuple[Bar, ...]
    steps: tuple[Bar, ...]
    waits: tuple[Bar, ...]
    boots: tuple[Bar, ...]
    downs: tuple[Downtime, ...]
    outage: ServiceOutage | None
    fence: tuple[Point, ...] = ()
    # On the axis, and by how many seconds the wall clock was set.
    clock_steps: tuple[tuple[float, float], ...] = ()
    omitted: int = 0


def timeline_of(update: Mapping[str, Any]) -> Timeline | None:
    """Return the time line of a ``nodeagent/update/v1`` object; None if it has no trail."""
    trail = trail_from_dict(update.get("trail"))
    if not trail.phases or not trail.boots:
        return None
    axis = _Axis(trail)
    phases = _joined([axis.bar(span, span.name, _phase_kind(span)) for span in trail.phases])
    steps = tuple(axis.bar(span, span.name, _step_kind(span)) for span in trail.steps)
    waits = tuple(axis.bar(span, with_times(span.message, _time_of_day), PartKind.WAIT) for span in trail.waits)
    fence = trail.fence
    points = () if fence is None else tuple((axis.at(fence.boot, fence.mono + s[0]), s[1], s[2]) for s in fence.samples)
    return Timeline(
        total=axis.total,
        phases=phases,
        steps=steps,
        # A wait without a length was over with the event that reported it.
        waits=tuple(wait for wait in waits if wait.seconds > 0),
        boots=axis.boots,
        downs=axis.downs,
        outage=_outage(axis, phases, steps, drained=any(span.name == Phase.DRAINING for span in trail.phases)),
        fence=points,
        clock_steps=tuple(
            (axis.at(index, mono), seconds)
            for index, boot in enumerate(trail.boots)
            for mono, seconds in boot.clock_steps
        ),
        omitted=trail.omitted,
    )


class _Axis:
    """The places of the boots on the axis."""

    def __init__(self, trail: Trail) -> None:
        first = trail.phases[0]
        self._trail = trail
        self._starts: list[float] = []
        boots: list[Bar] = []
        downs: list[Downtime] = []
        at = 0.0
        for index, boot in enumerate(trail.boots):
            # The agent may have lived for weeks in this boot before the update began.
            seen = max(boot.seen, first.mono) if index == first.boot else boot.seen
            if index:
                gap = gap_before(trail, index)
                # Some hosts of tests count from the boot of another machine.
                booted = boot.seen if gap is not None and boot.seen <= gap else None
                downs.append(Downtime(at, gap, booted))
                at += gap or 0.0
            self._starts.append(at - seen)
            lasted = max(0.0, boot.last - seen)
            boots.append(Bar(boot.id, PartKind.QUIET, at, lasted, boot=index))
            at += lasted
        self.boots, self.downs, self.total = tuple(boots), tuple(downs), at

    def at(self, boot: int, mono: float) -> float:
        return max(0.0, self._starts[boot] + mono)

    def bar(self, span: Span, name: str, kind: PartKind) -> Bar:
        start = self.at(span.boot, span.mono)
        seconds = self.boots[span.boot].end - start if span.seconds is None else span.seconds
        text = ": ".join(filter(None, (span.reason, span.message)))
        return Bar(name, kind, start, max(0.0, seconds), span.at, span.boot, text)

    def accepted(self) -> list[float]:
        """Return the times at which logind accepted a reboot."""
        return [self.at(i, boot.accepted) for i, boot in enumerate(self._trail.boots) if boot.accepted is not None]


def _joined(phases: list[Bar]) -> tuple[Bar, ...]:
    """Return the phases, with those that were under way at a reboot until the first one of the next boot."""
    for index in range(1, len(phases)):
        before, after = phases[index - 1], phases[index]
        if before.boot != after.boot and after.start > before.end:
            phases[index - 1] = replace(before, seconds=after.start - before.start)
    return tuple(phases)


def _time_of_day(stamp: str) -> str:
    return stamp[11:19]


def _phase_kind(span: Span) -> PartKind:
    # After a boot, services are verified that were not there before.
    return PartKind.DISRUPT if span.name == Phase.VERIFYING and span.boot else _KINDS.get(span.name, PartKind.QUIET)


def _step_kind(span: Span) -> PartKind:
    return _RESULTS.get(span.result, PartKind.QUIET if span.phase == Phase.STAGING else PartKind.DISRUPT)


def _outage(axis: _Axis, phases: tuple[Bar, ...], steps: tuple[Bar, ...], *, drained: bool) -> ServiceOutage | None:
    """Return the time out of service.

    With a drain, it is from the cordon to the release, which uncordons. With a reboot only, it is from the first action
    or the accepted reboot to the end of the last verification. Otherwise it is from the first action to the last one.
    """
    # A daemon-reload stops no unit.
    acts = [step for step in steps if step.kind in (PartKind.DISRUPT, PartKind.FAILED) and step.name != "daemon-reload"]
    begins = [step.start for step in acts]
    if drained:
        starts = [phase.start for phase in phases if phase.name == Phase.DRAINING]
        return ServiceOutage(min(starts), phases[-1].end, whole=True)
    if axis.downs:
        verified = [phase.end for phase in phases if phase.name == Phase.VERIFYING and phase.boot]
        # A host that lost its power has no reboot that logind accepted.
        begins += axis.accepted() or [axis.downs[0].start]
        return ServiceOutage(min(begins), max(verified, default=axis.total), whole=True)
    return ServiceOutage(min(begins), max(step.end for step in acts), whole=False) if acts else None


def measured_reboot(timeline: Timeline) -> float | None:
    """Return the seconds from a requested reboot until the host was verified, None if the update has no such reboot."""
    if not timeline.downs or timeline.downs[-1].seconds is None:
        return None
    # Of several reboots, the last one led to the host that was verified.
    verified = [phase.end for phase in timeline.phases if phase.name == Phase.VERIFYING and phase.boot]
    return max(verified) - timeline.downs[-1].start if verified else None


@dataclass(frozen=True, slots=True)
class MeasuredReboot:
    """A reboot of this host that was measured in another update."""

    seconds: float
    update: str


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """``out``: the node is out of service. ``source`` describes where the length comes from."""

    name: str
    seconds: float
    out: bool
    source: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """``missing`` are the parts that were not measured."""

    this: tuple[ComparedPart, ...]
    usual: tuple[ComparedPart, ...]
    missing: tuple[str, ...]

    @property
    def out(self) -> tuple[float, float]:
        """Seconds out of service in this update, and in the usual way."""
        return _sum(self.this), _sum(self.usual)


def comparison_of(timeline: Timeline, other: MeasuredReboot | None = None) -> Comparison | None:
    """Return the comparison. None without a measured reboot, or for an update that disrupted nothing.

    ``other`` is used if this update had no reboot.
    """
    spent = {phase: sum(bar.seconds for bar in timeline.phases if bar.name == phase) for phase in Phase}
    reboot, source = measured_reboot(timeline), "measured in this update, until the host was verified"
    if reboot is None and other is not None:
        reboot, source = other.seconds, f"measured in the update to {other.update}, until the host was verified"
    # Without it, the largest part of the usual way would be missing.
    if reboot is None:
        return None
    usual: list[ComparedPart] = []
    missing: list[str] = []
    if spent[Phase.DRAINING]:
        usual.append(ComparedPart("drain", spent[Phase.DRAINING], True, "measured in this update"))
    else:
        # A guess would favour this update.
        missing.append("the drain")
    # An update of files alone pulls nothing, in the usual way either.
    if spent[Phase.STAGING]:
        usual.append(ComparedPart("pull and stage", spent[Phase.STAGING], True, "measured in this update"))
    # The actions are left out: a reboot takes their place.
    writing = spent[Phase.WRITING]
    usual.append(ComparedPart("write", writing, True, "measured in this update"))
    usual.append(ComparedPart("reboot", reboot, True, source))
    return Comparison(_this(timeline), tuple(usual), tuple(missing))


def _this(timeline: Timeline) -> tuple[ComparedPart, ...]:
    outage = timeline.outage
    if outage is None:
        return (
            ComparedPart("beside all services", timeline.total, False, f"the whole update, {length(timeline.total)}"),
        )
    parts = (
        ComparedPart("beside all services", outage.start, False, "until the first disruption"),
        ComparedPart(
            "out of service" if outage.whole else "units restarted", outage.seconds, True, "measured in this update"
        ),
        ComparedPart("watched", timeline.total - outage.end, False, "while all services ran again"),
    )
    return tuple(part for part in parts if part.seconds > 0)


def _sum(parts: tuple[ComparedPart, ...]) -> float:
    return sum(part.seconds for part in parts if part.out)
