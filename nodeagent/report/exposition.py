# SPDX-License-Identifier: Apache-2.0
"""The text format of Prometheus (version 0.0.4).

prometheus_client takes 60 ms to import, for servers, locks and collectors that are not used here; the tests read the
output with its parser.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its name and help. Names are an interface, because alerts use them."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE

    def at(self, value: float, *labels: str, suffix: str = "", le: float | None = None) -> Sample:
        """Return one sample. ``labels`` are in the order of ``self.labels``; the rest is for histograms."""
        # Prometheus refuses a whole page for one sample that is wrong.
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
    """Return the page. The samples of a family must be adjacent; their order remains."""
    lines: list[str] = []
    before: Family | None = None
    for sample in samples:
        family = sample.family
        if family is not before:
            lines.append(f"# HELP {family.name} {_escaped(family.help)}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            before = family
        lines.append(f"{family.name}{sample.suffix}{_braces(sample.labels)} {_number(sample.value)}")
    # The format requires a line break behind the last line.
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
