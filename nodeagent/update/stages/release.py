# SPDX-License-Identifier: Apache-2.0
"""Give back what the update took, and end it."""

from __future__ import annotations

from nodeagent.reasons import Reason
from nodeagent.update.history.ends import OUTCOMES
from nodeagent.update.run import Run
from nodeagent.update.stages import lease
from nodeagent.update.stages.failure import aborted_end
from nodeagent.update.states import INTERRUPTED, OTHER_FIRST, Abort, Phase, Rest, Revert, Transition, Written
from nodeagent.update.steps.originals import forget_originals


async def do(run: Run) -> Transition:
    # Originals are deleted only after the end: until then a revert may need them.
    if isinstance(run.record.last_leg, Written):
        await forget_originals(run.ports, run.update)
    await lease.undo(run)
    aborted = run.record.aborted
    takeovers = (Reason.SUPERSEDED, Reason.WITHDRAWN)
    if aborted and aborted.reason in takeovers and not run.update.ended and not await run.superseded(run.update):
        # Its config is desired again: the update begins again, and a client that waits for it gets that end.
        run.update.change_leg(reason=INTERRUPTED, successor="")
    return _at_end(run)


def _at_end(run: Run) -> Transition:
    """Return the end of an update that has given everything back."""
    record = run.record
    match record.last_leg:
        case Abort(reason=reason) if reason in (INTERRUPTED, OTHER_FIRST):
            return Transition(Phase.IDLE, Rest())
        case Abort(reason=reason) if reason in OUTCOMES:
            return Transition(Phase.IDLE, Rest(), end=aborted_end(record))
        case Abort(reason=reason, message=message):
            return Transition(Phase.DEGRADED, Rest(), reason, message, aborted_end(record))
        # The way back was requested, so the host is where it should be.
        case Revert(reason=reason) if reason in OUTCOMES:
            return Transition(Phase.IDLE, Rest())
        case Revert():
            # Not that it is well: what changed since, such as drift, is in lines of its own.
            before = f"runs {record.from_name}" if record.from_name else "is in its previous state"
            why = f"the host {before} again; {record.to_name} was taken back because of: "
            why += record.lasting.failed_why
            return Transition(Phase.DEGRADED, Rest(), Reason.REVERTED, why)
        case _:
            return Transition(Phase.IDLE, Rest())
