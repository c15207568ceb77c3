# SPDX-License-Identifier: Apache-2.0
"""The order of a drain: the lead time before the first eviction, and pods that go first or last.

Both are decided from the cluster alone, so a restarted agent continues: the begin of the evictions is an annotation of
the Node in the API server's time, and the present step follows from the pods that are left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import ceil
from typing import Final

from nodeagent.core.coordination.kube_objects import Pod
from nodeagent.core.coordination.kube_time import parse_time, seconds_time

# 63 characters for a name or a value, 253 for a prefix, as the API server has it.
_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY: Final = rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}"
_TERM: Final = rf"(!{_KEY}|{_KEY}(!?=({_NAME})?)?)"
# The equality-based label selectors of Kubernetes. Lists of values need no form of their own: selectors are listed.
SELECTOR: Final = rf"^{_TERM}(,{_TERM})*$"

# Seconds by which a begin may be later than the lead time from now, for rounding.
SLACK: Final = 5.0


class DrainStep(IntEnum):
    FIRST = 0
    USUAL = 1
    LAST = 2


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """Label selectors of the pods that go before and after all others. A pod of both goes last."""

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    def step(self, pod: Pod) -> DrainStep:
        labels = pod["metadata"].get("labels") or {}
        # Storage that other pods need must outlast them, whatever else its labels match.
        if any(matches(selector, labels) for selector in self.last):
            return DrainStep.LAST
        return DrainStep.FIRST if any(matches(selector, labels) for selector in self.first) else DrainStep.USUAL


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Return whether every term of a valid ``SELECTOR`` holds. As in Kubernetes, ``key!=value`` holds without the
    key."""
    return all(_holds(term, labels) for term in selector.split(","))


def _holds(term: str, labels: Mapping[str, str]) -> bool:
    match = re.match(r"(!?)([^!=]+)(!?=)?(.*)", term)
    if match is None:
        return False
    absent, key, operator, value = match.groups()
    if operator is None:
        return (key in labels) != bool(absent)
    return (labels.get(key) == value) == (operator == "=")


def present_step(order: DrainOrder, pods: Sequence[Pod]) -> DrainStep:
    """Return the step whose pods are evicted now: the earliest one that has pods, terminating ones included.

    A pod that comes late puts the drain back to its step.
    """
    return min((order.step(pod) for pod in pods), default=DrainStep.LAST)


def lead_note(operation: str, latest: float, lead_time: float) -> str:
    """Return the annotation for evictions that begin ``lead_time`` seconds after ``latest``, an upper bound of the
    server's time."""
    # Rounded up, so that the lead time is never shorter than requested.
    return f"{seconds_time(ceil(latest + lead_time))} {operation}"


def begins_at(note: str) -> str:
    """Return the time of an annotation, for messages."""
    return note.partition(" ")[0]


def is_note_of(note: str, operation: str) -> bool:
    return note.partition(" ")[2] == operation


def lead_left(note: str, operation: str, earliest: float, latest: float, lead_time: float) -> float | None:
    """Return the seconds until the evictions of this operation begin, 0.0 or less if they may.

    ``earliest`` and ``latest`` are bounds of the server's time. None: the annotation is absent, damaged, of another
    operation, or later than the present lead time allows. Then it has to be written again, and the lead time is waited
    for.
    """
    begins = parse_time(begins_at(note))
    if begins is None or not is_note_of(note, operation) or begins - latest > lead_time + SLACK:
        return None
    return begins - earliest
