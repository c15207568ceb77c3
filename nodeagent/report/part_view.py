# SPDX-License-Identifier: Apache-2.0
"""The view of one part of the status: its JSON, its phrase in the line, its properties and its metrics.

A part is a value of a class of its own, which an event of the feature folds into the status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from nodeagent.report.counters import Counters
from nodeagent.report.exposition import Family, Sample
from nodeagent.report.status import Status

P = TypeVar("P")


def _no_phrase(_part: object, _status: Status) -> str:
    return ""


def _no_samples(_of: Status | Counters) -> Iterable[Sample]:
    return ()


def _null() -> None:
    pass


def _no_disruption(_part: object, _status: Status) -> Disruption | None:
    return None


def _always(_part: object, _status: Status) -> bool:
    return True


def _not_stored(_note: Callable[[str], str]) -> Any:
    return None


@dataclass(frozen=True, slots=True)
class TypedProperty:
    """A property of the D-Bus interface. ``signature`` is of D-Bus, ``about`` is for the reference.

    D-Bus has no null, so a missing value is 0 or empty.
    """

    signature: str
    about: str
    value: Callable[[Status], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disruption:
    """What an operator does with this node, or is about to do, while every update waits.

    ``since`` is "" while it is planned. ``until`` is "" without an end. ``drain_by`` is the deadline of its drain, and
    ``then`` what follows after that. ``waits`` is why it cannot go on now.
    """

    requester: str
    reason: str
    since: str = ""
    until: str = ""
    planned: bool = False
    draining: bool = False
    drained: bool = False
    drain_by: str = ""
    then: str = ""
    waits: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """A condition that the Node of this host has. ``message`` returns "" while it does not hold.

    ``holds`` and ``otherwise`` are the reasons of the condition, as CamelCase words.
    """

    kind: str
    holds: str
    otherwise: str
    message: Callable[[Status], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView(Generic[P]):
    """``to_json`` and ``phrase`` are called with a part only. ``samples`` gets a status without one too, because a
    metric may be 0 then."""

    part: type[P]
    # Of ``nodeagent/status/v1``.
    key: str
    to_json: Callable[[P, Status], Any]
    # Returns the JSON without the part.
    absent: Callable[[], Any] = _null
    # Whether the part remains in the status after an event that did not set it.
    lasts: Callable[[P, Status], bool] = _always
    # In ``STATUS=``, which ``systemctl status`` shows. "" for none.
    phrase: Callable[[P, Status], str] = _no_phrase
    # By their names.
    properties: Mapping[str, TypedProperty] = field(default_factory=dict)
    disruption: Callable[[P, Status], Disruption | None] = _no_disruption
    condition: NodeCondition | None = None
    # Returns the part, or None, from the notes of the store, for a status while the daemon does not run.
    stored: Callable[[Callable[[str], str]], P | None] = _not_stored
    # In the order of the page of metrics.
    families: Sequence[Family] = ()
    samples: Callable[[Status], Iterable[Sample]] = _no_samples
    # Counters follow at the end of the page. The views of the feature's events count them in ``Counters.part``.
    counter_families: Sequence[Family] = ()
    counter_samples: Callable[[Counters], Iterable[Sample]] = _no_samples
