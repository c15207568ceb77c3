"""Drains the node, and decides what follows if it is not empty in time.

The deadline is in the record, so a restart does not extend it. After the deadline the settings decide: reboot with the
remaining pods, if etcd allows it, or end the update.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from nodeagent.agent.tasks import finished_before, running
from nodeagent.agent.update.admission import reboots
from nodeagent.agent.update.run import Run
from nodeagent.core.update.events import UpdateWaiting
from nodeagent.core.update.lasting import USED_UP
from nodeagent.core.update.ports.coordination import NodeDrainer
from nodeagent.errors import Refused
from nodeagent.reasons import Reason

# Seconds that a drain lasts at least, also if the deadline passed while the agent was down. Also the interval at which
# etcd is checked again after the deadline.
MIN_DRAIN: Final = 15.0


class Superseded(Exception):
    """Another config is desired by now, and nothing was written yet."""


async def drain_before_writing(run: Run) -> str:
    """Return "" when the node is empty, or what is left when it is to be rebooted with that.

    Raise ``Refused`` if it is not to be rebooted.
    """
    node, late = run.ports.node, ""
    while node is not None and (late := await _drain(run, node)):
        if not (reboots(run.update) or run.record.lasting.budget.left):
            raise Refused(f"{late}; {USED_UP}", reason=Reason.DRAIN_TIMED_OUT)
        try:
            await run.ports.coordination.check_quorum()
        except Refused as error:
            # The drain goes on while etcd does not allow the reboot, and its pods may still leave.
            run.narrate(UpdateWaiting, error.message, reason=error.reason)
        else:
            break
    return late


async def drain_before_fallback(run: Run) -> str:
    """Return "" when the node is empty, or what is left of it. Raise ``Refused`` if it is not to be rebooted."""
    if run.ports.node is None:
        return ""
    # A reboot that it does not allow is not worth a drain.
    await run.ports.coordination.check_quorum()
    return await _drain(run, run.ports.node)


async def _drain(run: Run, node: NodeDrainer) -> str:
    """Return "" when the node is empty, or what is left after the deadline if a reboot may follow that."""
    left = run.record.drain_until - run.ports.clock.monotonic()
    try:
        await node.drain(run.record.operation, max(left, MIN_DRAIN))
    except Refused as error:
        if error.reason != Reason.DRAIN_TIMED_OUT or not (run.policy.drain_or_reboot and run.may_reboot):
            raise
        return error.message
    return ""


async def unless_newer(run: Run, work: Awaitable[str]) -> str:
    """Return the result of ``work``. Raise ``Superseded`` when another config is desired; ``work`` is cancelled by
    then."""
    async with running(work) as task:
        while not await finished_before(task, run.wake):
            if await run.newer():
                raise Superseded
        return task.result()
