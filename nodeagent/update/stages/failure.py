# SPDX-License-Identifier: Apache-2.0
"""The ends of a failed update: reverted, aborted before the first write, put off, or degraded.

Each function returns the next transition. The record keeps the reason for the status and for the next start.
"""

from __future__ import annotations

from typing import Final

from nodeagent.errors import AgentError, Terminal
from nodeagent.kinds import Kind
from nodeagent.reasons import Reason, reason_of
from nodeagent.update.course import COURSE, Failure
from nodeagent.update.decide import after_failure
from nodeagent.update.history.ends import OUTCOMES
from nodeagent.update.history.lasting import USED_UP, left_by
from nodeagent.update.history.outcome import UpdateOutcome
from nodeagent.update.ports.host import Reporter
from nodeagent.update.record import Record
from nodeagent.update.run import Run, Takeover
from nodeagent.update.stages.coordination import LOST
from nodeagent.update.stages.fallback import begin_fallback
from nodeagent.update.states import (
    INTERRUPTED,
    OTHER_FIRST,
    Abort,
    Apply,
    Fallback,
    HowEnded,
    Phase,
    Rest,
    Revert,
    Transition,
    Unreleased,
    revert_of,
)

# Reasons with which an operator stopped the update. It is not tried again without a request.
CANCELED: Final = frozenset({Reason.DRAIN_CANCELED, Reason.SLOT_LOST})


async def failed(run: Run, message: str, reason: str, *, curable: bool) -> Transition:
    """Return the transition after a failure. ``curable`` as in ``update.decide``."""
    if COURSE[run.record.state].failure is Failure.POSTPONE:
        return await _failed_before_writing(run, message, reason)
    # The right to disrupt the node was taken away, so neither a reboot nor a revert may follow.
    if reason in LOST:
        return degraded(run, message, reason)
    # The rest of the config may wait for exactly that reboot.
    may_reboot = run.may_reboot and not run.record.safe_for
    response = _response(run, curable=curable, may_reboot=may_reboot)
    if response is Failure.REBOOT and not run.record.lasting.budget.left:
        # Without a boot of the kernel in the plan and none so far, a revert needs no reboot either.
        response, reason = _response(run, curable=curable, may_reboot=False), Reason.REBOOT_BUDGET_SPENT
        message = f"{message}; {USED_UP}"
    if response is Failure.REVERT and run.record.reboot is not None and run.record.written.boots:
        # It changed nothing that could be taken back.
        response = Failure.DEGRADE
    match response:
        case Failure.REBOOT:
            # Before the full reboot that follows a soft one, the node is drained already.
            drained = run.ports.node is None or run.update.plan.drain or isinstance(run.record.leg, Fallback)
            leg = await begin_fallback(run, message, reason)
            return Transition(Phase.REBOOTING if drained else Phase.DRAINING, leg, reason, message)
        case Failure.REVERT:
            back = _revert(run.record, reason)
            return Transition(Phase.REVERTING, back, reason, message, rejects=message)
        case _:
            return degraded(run, message, reason)


async def _failed_before_writing(run: Run, message: str, reason: str) -> Transition:
    if _is_final(reason):
        return abort(reason, f"{message}; {_left(run.record)}", rejects=message)
    if run.record.phase is Phase.STAGING:
        # The slot may still be held: the staging was cancelled, or the API server is away. Releasing waits for it.
        return abort(reason, message)
    canceled = reason in CANCELED
    # An operator who deletes the lease stops the update. A lease that has another holder was taken over, and the update
    # waits for its turn.
    if reason == Reason.LEASE_LOST:
        canceled = not await run.ports.coordination.lease_was_stolen(run.record.operation)
    # Without the rejection, the next turn would begin the update again that an operator has just stopped.
    return abort(reason, message, rejects=message if canceled else "")


def _is_final(reason: str) -> bool:
    """Return whether a repetition would have the same result."""
    # The reason of a feature that was removed is of another kind. Its update is then tried once more.
    return reason_of(reason).kind is Kind.REJECTED


def _response(run: Run, *, curable: bool, may_reboot: bool) -> Failure:
    return after_failure(
        run.record,
        curable=curable,
        planned_reboot=run.update.reboots,
        may_reboot=may_reboot,
        revert=run.policy.revert,
    )


def _revert(record: Record, reason: str) -> Revert:
    # No action ran before the end of the first writing.
    repaired = isinstance(record.leg, Apply) and record.leg.etc_merge_repaired
    undo_actions = record.phase is not Phase.WRITING or repaired
    return revert_of(record.written, reason, undo_actions=undo_actions, fallback=record.fallback)


def abort(reason: str, message: str, successor: str = "", *, rejects: str = "") -> Transition:
    """Return the transition that ends an update before its first write: everything is released first."""
    return Transition(Phase.RELEASING, Abort(reason, message, successor), reason, message, rejects=rejects)


def abandon(run: Run, takeover: Takeover) -> Transition:
    """Return the transition for an update whose config is not desired any more, or that an operator cancelled."""
    rejects = takeover.message if takeover.reason == Reason.CANCELLED else ""
    message = f"{takeover.message}; {_left(run.record)}"
    return abort(takeover.reason, message, takeover.successor, rejects=rejects)


def _left(record: Record) -> str:
    return left_by(record.lasting.partial, record.to_digest, record.safe_for)


def take_back(run: Run, takeover: Takeover) -> Transition:
    """Return the transition that restores what an update wrote, because it is not wanted any more."""
    back = _revert(run.record, takeover.reason)
    rejects = takeover.message if takeover.reason == Reason.CANCELLED else ""
    cause = f"{takeover.successor} is desired instead" if takeover.successor else "another config is desired"
    what = "nothing was changed" if run.record.reboot is not None else "the previous files are restored"
    message = f"{rejects or cause}; {what}"
    return Transition(Phase.REVERTING, back, takeover.reason, message, rejects=rejects)


def safe_parts_first(error: AgentError) -> Transition:
    """Return the transition for an update that ``error`` blocks, and that begins again after its safe parts."""
    return gives_way(error.reason, f"{error.message}; the parts that need no disruption are applied first")


def gives_way(reason: str, message: str) -> Transition:
    """Return the transition for an update that wrote nothing, and that begins again after another one."""
    return Transition(Phase.RELEASING, Abort(OTHER_FIRST, message), reason, message)


def degraded(run: Run, message: str, reason: str) -> Transition:
    """Stop half-way, and keep the cordon, the lease and the slot until a later config is applied completely.

    No other holder disrupts a node in this state, and the rollout does not continue on the next node.
    """
    if run.record.phase is Phase.RELEASING:
        return unreleased(run, Phase.DEGRADED, message, reason)
    return Transition(
        Phase.DEGRADED, Rest(), reason, message, HowEnded(UpdateOutcome.DEGRADED, reason, message), message
    )


def unreleased(run: Run, phase: Phase, message: str, reason: str) -> Transition:
    """Report the end of an update that could not release everything. ``Loop.turn`` retries the release.

    ``phase`` is Degraded after an error, and Releasing if the release only waits.
    """
    leg = run.record.last_leg
    assert isinstance(leg, Abort | Apply | Fallback | Revert)
    end = aborted_end(run.record)
    # This update has an end now, so the next attempt is another update.
    if isinstance(leg, Abort) and leg.reason in (INTERRUPTED, OTHER_FIRST):
        leg = Abort(reason, message)
    return Transition(phase, Unreleased(leg), reason, message, end)


def aborted_end(record: Record) -> HowEnded | None:
    """Return the end of an update that was superseded, withdrawn or refused; None for any other."""
    aborted = record.aborted
    if aborted is None or not (aborted.reason in OUTCOMES or _is_final(aborted.reason)):
        return None
    return HowEnded(OUTCOMES.get(aborted.reason, UpdateOutcome.REFUSED), aborted.reason, aborted.message)


def bug(reporter: Reporter, error: Exception, where: str) -> Terminal:
    """Report an unexpected exception. The message has no word of it, which may quote a config."""
    words = f"a bug in nodeagent: {type(error).__name__} in {where}"
    reporter.bug(words, error)
    return Terminal(words, reason=Reason.INTERNAL_ERROR)
