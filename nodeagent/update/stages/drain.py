# SPDX-License-Identifier: Apache-2.0
"""Drain the node, and decide what follows if it is not empty in time.

The deadline is in the record, so a restart does not extend it. After the deadline the settings decide: reboot with the
remaining pods, if etcd allows it, or end the update.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from nodeagent.errors import Refused
from nodeagent.reasons import Reason
from nodeagent.tasks import finished_before, running
from nodeagent.update.history.lasting import USED_UP
from nodeagent.update.ports.coordination import NodeDrainer
from nodeagent.update.ports.events import FallbackChosen, UpdateWaiting
from nodeagent.update.run import Run
from nodeagent.update.stages import lease
from nodeagent.update.stages.admission import recheck_before_write
from nodeagent.update.states import Phase, Superseded, Transition
from nodeagent.update.wait import retry_on_outage

# Seconds that a drain lasts at least, also if the deadline passed while the agent was down. Also the interval at which
# etcd is checked again after the deadline.
MIN_DRAIN: Final = 15.0


async def do(run: Run) -> Transition:
    with retry_on_outage():
        late = await _unless_newer(run, _drain_before_writing(run))
    # The drain took time as well, and other actors may have come to the node.
    await recheck_before_write(run)
    if late:
        run.narrate(FallbackChosen, late, reason=Reason.DRAIN_TIMED_OUT)
    # Pods that could not be evicted are stopped by a reboot, not by the restart of a service.
    return await lease.begin_writing(run, reboot_instead="" if run.update.reboots else late)


async def do_for_fallback(run: Run) -> Transition:
    record = run.record
    # A refusal leads back to the previous config, as that of etcd does: the host is half-way and cannot wait.
    for guard in run.ports.guards:
        await guard.permit_fallback(run)
    left = await _drain_before_fallback(run)
    return Transition(Phase.REBOOTING, reason=record.reason, message=left or record.message)


async def _drain_before_writing(run: Run) -> str:
    """Return "" when the node is empty, or what is left when it is to be rebooted with that.

    Raise ``Refused`` if it is not to be rebooted.
    """
    node, late = run.ports.node, ""
    while node is not None and (late := await _drain(run, node)):
        if not (run.update.reboots or run.record.lasting.budget.left):
            raise Refused(f"{late}; {USED_UP}", reason=Reason.DRAIN_TIMED_OUT)
        try:
            await run.ports.coordination.permit_stop()
        except Refused as error:
            # The drain goes on while etcd does not allow the reboot, and its pods may still leave.
            run.narrate(UpdateWaiting, error.message, reason=error.reason)
        else:
            break
    return late


async def _drain_before_fallback(run: Run) -> str:
    """Return "" when the node is empty, or what is left of it. Raise ``Refused`` if it is not to be rebooted."""
    if run.ports.node is None:
        return ""
    # A reboot that it does not allow is not worth a drain.
    await run.ports.coordination.permit_stop()
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


async def _unless_newer(run: Run, work: Awaitable[str]) -> str:
    """Return the result of ``work``. Raise ``Superseded`` when another config is desired; ``work`` is cancelled by
    then."""
    async with running(work) as task:
        while not await finished_before(task, run.wake):
            if await run.newer():
                raise Superseded
        return task.result()
