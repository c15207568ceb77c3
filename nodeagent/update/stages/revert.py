# SPDX-License-Identifier: Apache-2.0
"""Undo what an update did, in reverse: the reboot, the writes, the actions."""

from __future__ import annotations

from nodeagent.update.ports.events import RevertStarted
from nodeagent.update.run import Run
from nodeagent.update.stages import act, reboot, write
from nodeagent.update.stages.verify import why_reverted
from nodeagent.update.states import Revert, Transition


async def do(run: Run) -> Transition:
    leg = run.record.leg
    assert isinstance(leg, Revert)
    run.narrate(RevertStarted, why_reverted(run, leg), reason=leg.reason)
    if (reboot_first := await reboot.undo(run)) is not None:
        return reboot_first
    await write.undo(run)
    # After a kill, a restored host is not restored again: an operator may have changed a file since.
    run.update.change_leg(restored=True)
    return await act.undo(run)
