"""Drains the node, decides what follows if it is not empty in time, and waits until it is ready again.

The deadline is in the record, so a restart does not extend it. After the deadline the settings decide: reboot with the
remaining pods, if etcd allows it, or end the update.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from nodeagent import domains
from nodeagent.core.plan.domain import NODE, UnitFailure
from nodeagent.errors import AgentError, Refused, Retryable, Unreachable
from nodeagent.reasons import Reason
from nodeagent.tasks import finished_before, running
from nodeagent.update.events import UpdateWaiting, Warned
from nodeagent.update.lasting import USED_UP
from nodeagent.update.ports.coordination import NodeDrainer, NodeReadiness
from nodeagent.update.run import Progress, Run
from nodeagent.update.stages.admission import reboots
from nodeagent.update.stages.verification import VerifyFailed
from nodeagent.update.steps.step import keys_of
from nodeagent.update.steps.unit_watch import RestartedUnits

# Seconds that a drain lasts at least, also if the deadline passed while the agent was down. Also the interval at which
# etcd is checked again after the deadline.
MIN_DRAIN: Final = 15.0

# Seconds between two reads of the Node: a kubelet reports every ten.
PERIOD: Final = 2.0


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


async def was_ready(readiness: NodeReadiness) -> bool:
    """Return whether the node is ready now. What cannot be read is not waited for later."""
    with suppress(AgentError):
        return not await readiness.unready()
    return False


async def wait_until_ready(run: Run, readiness: NodeReadiness, progress: Progress) -> None:
    """Return when the cluster sees the node ready again, by a report from after the last action.

    The next node of a pool must not be disrupted while pods cannot run on this one. A node that was not ready before
    the update is not waited for: the update may be what repairs it.

    Raises ``VerifyFailed`` after the time for verification. If the API server does not answer by then, the update
    continues: that is no fault of the config, and nothing can be released without an answer either.
    """
    keys = keys_of(run.update)
    outdated = domains.outdated(keys, reverted=run.record.reverting)
    kept_back = await run.ports.health.kept_back(keys)
    up = await RestartedUnits.of(run)
    clock, timeout = run.ports.clock.monotonic, run.policy.verify_timeout
    deadline = clock() + timeout
    # Since when the API server does not answer. That time does not count against the node.
    gone: float | None = None
    while True:
        away: AgentError | None = None
        try:
            # A heartbeat from before this phase is one of the kubelet before its restart.
            why = await readiness.unready(run.record.since, outdated, kept_back)
        except (Unreachable, Retryable) as error:
            away, why = error, error.message
        except Refused as error:
            # The Node was deleted, which no config does.
            away, deadline, why = error, clock(), error.message
        if not why:
            return
        if isinstance(away, Unreachable | Retryable):
            gone = clock() if gone is None else gone
        elif gone is not None:
            deadline, gone = deadline + clock() - gone, None
            run.update.progressed()
        if clock() >= (deadline if gone is None else gone + timeout):
            break
        progress(f"the node is not ready: {why}; waiting for it", deadline)
        await asyncio.sleep(PERIOD)
        # A kubelet may end later than within the settle time, and is restarted by systemd without end.
        await up.check()
    if away is None:
        message = f"the node is not ready after {timeout:.0f} s: {why}"
        helps = domains.curable(UnitFailure(NODE, "", keys))
        raise VerifyFailed(message, reason=Reason.NODE_NOT_READY, curable=helps)
    run.narrate(Warned, f"continuing: {why}", reason=away.reason)
