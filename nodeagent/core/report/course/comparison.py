"""The same update as "drain, pull, stage, reboot": what it would have taken, by parts that were measured on this host.

A machine-config-daemon first drains, then pulls and stages on the empty node, and reboots. So the time out of service
is the sum of all parts. A part that was not measured is left out and named, so the sum is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.core.report.course.marks import length
from nodeagent.core.report.course.timeline import Timeline, measured_reboot
from nodeagent.core.update.phase import Phase


@dataclass(frozen=True, slots=True)
class MeasuredReboot:
    """A reboot of this host that was measured in another update."""

    seconds: float
    update: str


@dataclass(frozen=True, slots=True)
class Part:
    """``out``: the node is out of service. ``source`` describes where the length comes from."""

    name: str
    seconds: float
    out: bool
    source: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """``missing`` are the parts that were not measured."""

    this: tuple[Part, ...]
    usual: tuple[Part, ...]
    missing: tuple[str, ...]

    @property
    def out(self) -> tuple[float, float]:
        """Seconds out of service in this update, and in the usual way."""
        return _sum(self.this), _sum(self.usual)


def comparison_of(timeline: Timeline, other: MeasuredReboot | None = None) -> Comparison | None:
    """Return the comparison. None without a measured reboot, or for an update that disrupted nothing.

    ``other`` is used if this update had no reboot.
    """
    spent = {phase: _length(timeline, phase) for phase in Phase}
    reboot, source = measured_reboot(timeline), "measured in this update, until the host was verified"
    if reboot is None and other is not None:
        reboot, source = other.seconds, f"measured in the update to {other.update}, until the host was verified"
    # Without it, the largest part of the usual way would be missing.
    if reboot is None:
        return None
    usual: list[Part] = []
    missing: list[str] = []
    if spent[Phase.DRAINING]:
        usual.append(Part("drain", spent[Phase.DRAINING], True, "measured in this update"))
    else:
        # A guess would favour this update.
        missing.append("the drain")
    # An update of files alone pulls nothing, in the usual way either.
    if spent[Phase.STAGING]:
        usual.append(Part("pull and stage", spent[Phase.STAGING], True, "measured in this update"))
    # The actions are left out: a reboot takes their place.
    writing = spent[Phase.WRITING]
    usual.append(Part("write", writing, True, "measured in this update"))
    usual.append(Part("reboot", reboot, True, source))
    return Comparison(_this(timeline), tuple(usual), tuple(missing))


def _this(timeline: Timeline) -> tuple[Part, ...]:
    outage = timeline.outage
    if outage is None:
        return (Part("beside all services", timeline.total, False, f"the whole update, {length(timeline.total)}"),)
    parts = (
        Part("beside all services", outage.start, False, "until the first disruption"),
        Part("out of service" if outage.whole else "units restarted", outage.seconds, True, "measured in this update"),
        Part("watched", timeline.total - outage.end, False, "while all services ran again"),
    )
    return tuple(part for part in parts if part.seconds > 0)


def _length(timeline: Timeline, phase: Phase) -> float:
    return sum(bar.seconds for bar in timeline.phases if bar.name == phase)


def _sum(parts: tuple[Part, ...]) -> float:
    return sum(part.seconds for part in parts if part.out)
