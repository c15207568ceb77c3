"""Prometheus' text format (version 0.0.4), as far as we write it: counters, gauges and one histogram.

Not by prometheus_client: it takes 60 ms to import, for its servers, locks and collectors, and what we need of it is the
forty lines below. The tests read them back with its parser.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Family", "MetricKind", "Sample", "render"]


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric by its name, with what it says. Names are an interface: alerts are written with them."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()

    def at(self, value: float, *labels: str, suffix: str = "", le: float | None = None) -> Sample:
        """One sample. ``labels`` in the order of ``self.labels``; ``suffix`` and ``le`` are those of histograms."""
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {len(labels)}")
        pairs = list(zip(self.labels, labels, strict=True))
        if le is not None:
            pairs.append(("le", _number(le)))
        return Sample(self, suffix, tuple(pairs), value)


@dataclass(frozen=True, slots=True)
class Sample:
    family: Family
    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


def render(samples: Iterable[Sample]) -> str:
    """The page. The samples of a family must be adjacent, and stay in their order."""
    lines: list[str] = []
    before: Family | None = None
    for sample in samples:
        family = sample.family
        if family is not before:
            lines.append(f"# HELP {family.name} {_escaped(family.help)}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            before = family
        lines.append(f"{family.name}{sample.suffix}{_braces(sample.labels)} {_number(sample.value)}")
    return "".join(f"{line}\n" for line in lines)


def _braces(labels: Sequence[tuple[str, str]]) -> str:
    inner = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)
