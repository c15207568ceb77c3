# SPDX-License-Identifier: Apache-2.0
"""The course of an update: what is done in each state, and what follows it.

The table reads in the order in which an update happens: stage if the OS changes, lease, drain if the plan drains,
write, act, reboot if the plan reboots, verify, release. It is the only list of legal states and transitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.update.states import (
    ABORT,
    DEGRADED,
    IDLE,
    REVERT,
    STILL_RELEASING,
    UNRELEASED,
    Apply,
    Fallback,
    Phase,
    Prepare,
    Revert,
    State,
)


class Stage(StrEnum):
    """The work of a state, in the module of ``update.stages`` that is named after it."""

    NONE = ""
    STAGE = "stage"
    STAGE_AGAIN = "stage again"
    LEASE = "lease"
    DRAIN = "drain"
    DRAIN_FOR_FALLBACK = "drain for the fallback"
    WRITE = "write"
    ACT = "act"
    REBOOT = "reboot"
    VERIFY = "verify"
    REVERT = "revert"
    VERIFY_REVERTED = "verify the revert"
    RELEASE = "release"


class Failure(StrEnum):
    """What answers a failure of a state. ``update.decide.after_failure`` has the conditions."""

    # Nothing was written: the update gives back what it took, and is tried again later.
    POSTPONE = "postpone"
    # A reboot that the plan does not have, where it may help; otherwise as REVERT.
    REBOOT = "reboot"
    # The previous config is restored; the host stays half-way where the settings forbid that.
    REVERT = "revert"
    # The host stays as it is, half-way. Only an operator can know what is right.
    DEGRADE = "degrade"
    # The end of the update is reported, and the release goes on.
    REPORT_END = "report the end"


class Restart(StrEnum):
    """How a start of the agent continues, as the journal has it."""

    IDLE = "idle"
    DEGRADED = "degraded"
    # Nothing was written: drop the update, and read the desired config again.
    START_OVER = "start over"
    # Continue the drain. Its deadline does not change.
    DRAIN = "drain"
    # Every write is idempotent.
    WRITE = "write"
    # Run the actions that are not done.
    ACT = "act"
    # The files are written, and the staged deployment is lost.
    STAGE = "stage"
    # A reboot was requested, but this is still the old boot.
    REBOOT_AGAIN = "reboot again"
    # A boot took the place of the actions, or was the one that was requested.
    VERIFY = "verify"
    REVERT = "revert"
    RELEASE = "release"


# The phases that a start of the agent in another boot enters.
AFTER_BOOT: Final[Mapping[Restart, Phase]] = MappingProxyType(
    {Restart.VERIFY: Phase.VERIFYING, Restart.REVERT: Phase.REVERTING, Restart.STAGE: Phase.STAGING}
)


class Cancellation(StrEnum):
    # Nothing was written: the update ends, and gives back what it holds.
    END = "end"
    # The previous files are restored, without a reboot.
    REVERT = "revert"
    # The update is reverted already.
    REVERTING = "reverting"
    # There is no update: the staging of an OS for a plan ends.
    STAGING = "staging"


# The states that each answer to a failure leads to, besides the reboots, which the rows have.
_LEADS_TO: Final[Mapping[Failure, frozenset[State]]] = MappingProxyType(
    {
        Failure.POSTPONE: frozenset({ABORT, DEGRADED}),
        Failure.REBOOT: frozenset({REVERT, DEGRADED}),
        Failure.REVERT: frozenset({REVERT, DEGRADED}),
        Failure.DEGRADE: frozenset({DEGRADED}),
        Failure.REPORT_END: frozenset({STILL_RELEASING, UNRELEASED}),
    }
)


@dataclass(frozen=True, slots=True)
class Row:
    """What is done in a state, and what follows.

    ``then`` is what success leads to; the stage chooses by the plan. ``also`` is what something else leads to, which
    the comment of the row names. A phase alone is one of the same leg. ``failure`` is the answer to a failure.

    ``restart`` is how a start of the agent continues in the same boot, and ``boot`` in another one. ``cancel`` is what
    a cancellation leads to, or the reason for which it is refused. ``lease``: the update must hold the node lease.

    ``deadline`` is in seconds; None where something else bounds the stage. With ``by_progress`` it starts again with
    each file, or each part of a verification: how long these take depends on how many there are.
    """

    stage: Stage
    then: tuple[State | Phase, ...]
    _: KW_ONLY
    also: tuple[State | Phase, ...] = ()
    lease: bool = False
    deadline: float | None = None
    by_progress: bool = False
    failure: Failure | None = None
    restart: Restart
    boot: Restart
    cancel: Cancellation | AnyReason


_S, _F, _R, _C, _P = Stage, Failure, Restart, Cancellation, Phase
_NONE, _LATE = Reason.NO_UPDATE, Reason.CANCEL_TOO_LATE
_BEGIN: Final = (IDLE, DEGRADED, (Prepare, _P.STAGING), (Prepare, _P.LEASING))
_HOUR: Final = 3600.0

# fmt: off
COURSE: Final[Mapping[State, Row]] = MappingProxyType({
    # At rest. Another reason may be reported.
    IDLE: Row(_S.NONE, _BEGIN,
        restart=_R.IDLE, boot=_R.IDLE, cancel=_NONE),
    DEGRADED: Row(_S.NONE, _BEGIN,
        restart=_R.DEGRADED, boot=_R.DEGRADED, cancel=_NONE),

    # Prepare: nothing on the host was changed, so another desired config takes over.
    # Enough for an image over a slow link. Without progress, os.no_progress ends it much sooner.
    (Prepare, _P.STAGING): Row(_S.STAGE, (_P.LEASING,), deadline=3 * _HOUR,
        failure=_F.POSTPONE, restart=_R.START_OVER, boot=_R.START_OVER, cancel=_C.END),
    # The maintenance of another holder has no limit. The status names the holder.
    (Prepare, _P.LEASING): Row(_S.LEASE, (_P.DRAINING, (Apply, _P.WRITING)),
        failure=_F.POSTPONE, restart=_R.START_OVER, boot=_R.START_OVER, cancel=_C.END),
    # drain.timeout bounds it, also over restarts.
    (Prepare, _P.DRAINING): Row(_S.DRAIN, ((Apply, _P.WRITING),), lease=True,
        failure=_F.POSTPONE, restart=_R.DRAIN, boot=_R.START_OVER, cancel=_C.END),

    # Apply: the first byte written is the point of no return. The update is finished, or reverted.
    # For one file: five times the kernel's limit for a hung task, while an fsync takes seconds.
    (Apply, _P.WRITING): Row(_S.WRITE, (_P.ACTING,), lease=True, deadline=600.0, by_progress=True,
        failure=_F.REVERT, restart=_R.WRITE, boot=_R.WRITE, cancel=_C.REVERT),
    # Each action has its own, shorter deadline; this one bounds the sum. To the reboot of the fallback where the drain
    # was not complete, and to its verification where the host rebooted before that.
    (Apply, _P.ACTING): Row(_S.ACT, (_P.VERIFYING, _P.REBOOTING), lease=True, deadline=_HOUR,
        also=((Fallback, _P.DRAINING), (Fallback, _P.REBOOTING), (Fallback, _P.VERIFYING)),
        failure=_F.REBOOT, restart=_R.ACT, boot=_R.VERIFY, cancel=_C.REVERT),
    # reboot.inhibitor_wait bounds the inhibitors; then systemd owns the clock. To Staging where the staged deployment
    # was lost.
    (Apply, _P.REBOOTING): Row(_S.REBOOT, (_P.VERIFYING,), also=(_P.STAGING,), lease=True,
        failure=_F.REVERT, restart=_R.REBOOT_AGAIN, boot=_R.VERIFY, cancel=_C.REVERT),
    (Apply, _P.STAGING): Row(_S.STAGE_AGAIN, (_P.REBOOTING,), deadline=3 * _HOUR,
        failure=_F.REVERT, restart=_R.STAGE, boot=_R.STAGE, cancel=_C.REVERT),
    # For one part of it: verify.timeout and actions.settle are 1200 s together at most, with a full listing of the
    # kubelet. To Rebooting after a soft reboot that did not help, to Staging where the deployment was lost, and to
    # Writing where the merge of /etc took something of the config back.
    (Apply, _P.VERIFYING): Row(_S.VERIFY, (_P.RELEASING,), lease=True, deadline=1800.0, by_progress=True,
        also=(_P.REBOOTING, _P.STAGING, _P.WRITING, (Fallback, _P.DRAINING), (Fallback, _P.REBOOTING)),
        failure=_F.REBOOT, restart=_R.VERIFY, boot=_R.VERIFY, cancel=_C.REVERT),
    # A cluster that is down, or another holder of the node, has no limit. Each call is bounded.
    (Apply, _P.RELEASING): Row(_S.RELEASE, (IDLE,),
        failure=_F.REPORT_END, restart=_R.RELEASE, boot=_R.RELEASE, cancel=_LATE),

    # Fallback: at most one soft and one full reboot that were not planned.
    # A boot during the drain is what the node was drained for.
    (Fallback, _P.DRAINING): Row(_S.DRAIN_FOR_FALLBACK, (_P.REBOOTING,), also=(_P.VERIFYING,), lease=True,
        failure=_F.REVERT, restart=_R.DRAIN, boot=_R.VERIFY, cancel=_C.REVERT),
    (Fallback, _P.REBOOTING): Row(_S.REBOOT, (_P.VERIFYING,), lease=True,
        failure=_F.REVERT, restart=_R.REBOOT_AGAIN, boot=_R.VERIFY, cancel=_C.REVERT),
    # To Rebooting after a soft reboot that did not help: a full one follows, once.
    (Fallback, _P.VERIFYING): Row(_S.VERIFY, (_P.RELEASING,), lease=True, deadline=1800.0, by_progress=True,
        also=(_P.REBOOTING,),
        failure=_F.REBOOT, restart=_R.VERIFY, boot=_R.VERIFY, cancel=_C.REVERT),
    (Fallback, _P.RELEASING): Row(_S.RELEASE, (IDLE,),
        failure=_F.REPORT_END, restart=_R.RELEASE, boot=_R.RELEASE, cancel=_LATE),

    # Revert: everything is made as it was. A revert that fails has no way out but an operator.
    # For one file, or for all actions.
    REVERT: Row(_S.REVERT, (_P.REBOOTING, _P.VERIFYING), lease=True, deadline=_HOUR, by_progress=True,
        failure=_F.DEGRADE, restart=_R.REVERT, boot=_R.REVERT, cancel=_C.REVERTING),
    # Back to Reverting after the boot into the old deployment, whose files are still to be restored.
    (Revert, _P.REBOOTING): Row(_S.REBOOT, (_P.VERIFYING,), also=(_P.REVERTING,), lease=True,
        failure=_F.DEGRADE, restart=_R.REBOOT_AGAIN, boot=_R.VERIFY, cancel=_C.REVERTING),
    (Revert, _P.VERIFYING): Row(_S.VERIFY_REVERTED, (_P.RELEASING,), lease=True, deadline=1800.0, by_progress=True,
        failure=_F.DEGRADE, restart=_R.VERIFY, boot=_R.VERIFY, cancel=_C.REVERTING),
    # To Idle when an operator cancelled the update, or another config is desired.
    (Revert, _P.RELEASING): Row(_S.RELEASE, (IDLE, DEGRADED),
        failure=_F.REPORT_END, restart=_R.RELEASE, boot=_R.RELEASE, cancel=_NONE),

    # Abort: the update ends although nothing was written, and gives back what it took.
    ABORT: Row(_S.RELEASE, (IDLE, DEGRADED),
        failure=_F.REPORT_END, restart=_R.RELEASE, boot=_R.RELEASE, cancel=_C.END),

    # Unreleased: the end is reported, and what the update took could not be given back yet.
    UNRELEASED: Row(_S.NONE, (STILL_RELEASING,),
        restart=_R.DEGRADED, boot=_R.DEGRADED, cancel=_NONE),
    STILL_RELEASING: Row(_S.RELEASE, (IDLE, DEGRADED),
        failure=_F.REPORT_END, restart=_R.RELEASE, boot=_R.RELEASE, cancel=_NONE),
})
# fmt: on


def following(state: State) -> frozenset[State]:
    """Return the states that may follow ``state``."""
    row = COURSE[state]
    leads_to = {(state[0], to) if isinstance(to, Phase) else to for to in (*row.then, *row.also)}
    failed = _LEADS_TO[row.failure] if row.failure is not None else frozenset()
    return frozenset(leads_to | (failed - {state}))


# Phases in which the update must hold the node lease.
DISRUPTIVE: Final = frozenset(phase for (_, phase), row in COURSE.items() if row.lease)
