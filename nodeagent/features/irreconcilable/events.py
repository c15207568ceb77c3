# SPDX-License-Identifier: Apache-2.0
"""The event of the feature and its view, and the sections in the status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.enumerated import enumerated
from nodeagent.core.syslog import NOTICE
from nodeagent.features.irreconcilable.decide import HOW
from nodeagent.report.event_view import EventView
from nodeagent.report.exposition import Family, Sample
from nodeagent.report.part_view import PartView
from nodeagent.report.status import Status
from nodeagent.update.ports.events import Event

LEFT_OUT: Final = Family(
    "nodeagent_section_left_out",
    "1 for each section of the current config that this host does not have. Absent if it has all of them.",
    ("section",),
)


@dataclass(frozen=True, slots=True)
class SectionsLeftOut(Event):
    """``sections`` of the current config differ from what this host was installed with. Empty: none does any more."""

    sections: Sequence[str]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """There is at least one section."""

    sections: tuple[str, ...]


def _sentence(event: SectionsLeftOut) -> str:
    if not event.sections:
        return "each section of the current config is as this host was installed"
    return f"not applied: {enumerated(event.sections, 5)}; {HOW}"


def _folded(status: Status, event: SectionsLeftOut) -> Status:
    return status.with_part(LeftOut(tuple(event.sections))) if event.sections else status.without_part(LeftOut)


def _samples(status: Status) -> Iterator[Sample]:
    if (part := status.part(LeftOut)) is not None:
        yield from (LEFT_OUT.at(1, section) for section in part.sections)


VIEWS: Final = (
    EventView(
        event=SectionsLeftOut,
        id="7a1d0c3f5b9e4d6f8a2b4c6d8e0f1a3b",
        priority=NOTICE,
        sentence=lambda event, _: _sentence(event),
        fold=_folded,
    ),
)

PARTS: Final = (
    PartView(
        part=LeftOut,
        key="left_out",
        to_json=lambda part, _: list(part.sections),
        absent=list,
        families=(LEFT_OUT,),
        samples=_samples,
    ),
)
