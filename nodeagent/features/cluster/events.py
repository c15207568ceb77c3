# SPDX-License-Identifier: Apache-2.0
"""The event of the feature, and its part of the status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodeagent.features.cluster.decide.drain import Remaining
from nodeagent.report.status import Status
from nodeagent.update.ports.events import Event


@dataclass(frozen=True, slots=True)
class DrainAdvanced(Event):
    """``remaining`` are the pods that are left. ``deadline`` is RFC 3339, ``then`` describes what follows it."""

    remaining: Sequence[Remaining]
    deadline: str = ""
    then: str = ""
    routine: bool = False


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """A drain that has begun. ``deadline`` and ``then`` as in ``DrainAdvanced``."""

    remaining: Sequence[Remaining] = ()
    deadline: str = ""
    then: str = ""


def remaining_of(status: Status) -> Sequence[Remaining]:
    """Return the pods that the drain waits for; none without a drain."""
    progress = status.part(DrainProgress)
    return tuple(progress.remaining) if progress is not None else ()
