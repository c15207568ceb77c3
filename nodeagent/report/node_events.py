# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes Events of an update or a maintenance, for a feature that writes them.

An Event answers the question of an operator who runs ``kubectl describe node``, so Events are rare: something began or
ended, it waits and for whom, it failed. Each reports a fact, not a plan: a drain that was given up is not reported as
done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from nodeagent.report.status import Status
from nodeagent.update.states import Phase

P = TypeVar("P")

OWN_NAME = "nodeagent"


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A Kubernetes Event to write. ``reason`` and ``action`` are CamelCase words; the action is one of the agent."""

    reason: str
    action: str
    note: str
    warning: bool = False


@dataclass(slots=True)
class NodeMemory:
    """What the Kubernetes Events of an event depend on beside it: what happened before, and the time.

    ``status`` is the status before the event, ``now`` the steady clock in seconds.
    """

    status: Status = field(default_factory=Status)
    now: float = 0.0
    # The phase that was entered last.
    phase: Phase | None = None
    _parts: dict[type[Any], Any] = field(default_factory=dict)

    def part(self, kind: type[P]) -> P:
        """Return what a feature remembers, which starts as ``kind()``."""
        part: P = self._parts.setdefault(kind, kind())
        return part
