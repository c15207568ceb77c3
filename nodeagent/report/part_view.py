# SPDX-License-Identifier: Apache-2.0
"""The view of one part of the status: its JSON, its phrase in the line, and its metrics.

A part is a value of a class of its own, which an event of the feature folds into the status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nodeagent.report.counters import Counters
from nodeagent.report.exposition import Family, Sample
from nodeagent.report.status import Status

P = TypeVar("P")


def _no_phrase(_part: object, _status: Status) -> str:
    return ""


def _no_samples(_of: Status | Counters) -> Iterable[Sample]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView(Generic[P]):
    """``to_json`` and ``phrase`` are called with a part only. ``samples`` gets a status without one too, because a
    metric may be 0 then."""

    part: type[P]
    # Of ``nodeagent/status/v1``, where its value is null without the part.
    key: str
    to_json: Callable[[P, Status], Any]
    # In ``STATUS=``, which ``systemctl status`` shows. "" for none.
    phrase: Callable[[P, Status], str] = _no_phrase
    # In the order of the page of metrics.
    families: Sequence[Family] = ()
    samples: Callable[[Status], Iterable[Sample]] = _no_samples
    # Counters follow at the end of the page. The views of the feature's events count them in ``Counters.part``.
    counter_families: Sequence[Family] = ()
    counter_samples: Callable[[Counters], Iterable[Sample]] = _no_samples
