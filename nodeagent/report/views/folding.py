# SPDX-License-Identifier: Apache-2.0
"""What the events of an update change in the status, whatever their kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.update.ports.events import CauseEvent, PhaseEntered, StatusProblem, UpdateContext, UpdateEvent
from nodeagent.update.states import Phase

_UNDRAINED: Final = frozenset({Phase.IDLE, Phase.DEGRADED, Phase.LEASING, Phase.DRAINING})


def named(status: Status, event: UpdateEvent, *, names_desired: bool = False) -> Status:
    """Return the status with the names of the event.

    ``names_desired``: the event names the desired config, or the config that is the reason. Other events of an update
    name its target, which may not be desired any more.
    """
    about = event.about
    desired = (about.desired if names_desired or not about.update_id else "") or status.desired or about.desired
    return replace(
        status,
        current=about.current or status.current,
        desired=desired,
        desired_digest=status.desired_digest if desired == status.desired else "",
        boot_id=about.boot_id or status.boot_id,
        # An event without an update, such as a warning of the cluster, does not know it.
        reboot=about.reboot or (status.reboot if about.phase is status.phase else None),
    )


def entered(status: Status, event: UpdateEvent, reason: str, message: str, *, names_desired: bool = False) -> Status:
    """Return the status in the phase of the event, with a new reason and message."""
    about = event.about
    same = about.phase is status.phase
    return replace(
        named(status, event, names_desired=names_desired),
        phase=about.phase,
        reason=reason,
        message=message,
        brief="",
        since=about.since or status.since,
        update_id=about.update_id,
        target=target(status, about),
        step=status.step if same and about.phase in (Phase.WRITING, Phase.ACTING) else None,
        failed_unit=about.failed_unit if reason else None,
        drained=_drained(status, about.phase),
    )


def caused(status: Status, event: CauseEvent | PhaseEntered) -> Status:
    return entered(status, event, event.reason, event.message)


def other_problems(status: Status, topic: str) -> Sequence[StatusProblem]:
    return tuple(problem for problem in status.problems if problem.topic != topic)


def target(status: Status, about: UpdateContext) -> str:
    """Return the name of the config of the update under way."""
    if about.phase in (Phase.IDLE, Phase.DEGRADED) or not about.update_id:
        return ""
    return about.desired or status.target


def _drained(status: Status, phase: Phase) -> bool:
    """Return whether the node is drained: from the end of a complete drain until its update or maintenance ends."""
    if phase in _UNDRAINED:
        return False
    return status.drained or (status.phase is Phase.DRAINING and status.reason != Reason.DRAIN_TIMED_OUT)
