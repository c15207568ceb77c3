"""Waits until the cluster sees the node ready again, before the lease and the slot of an update are released.

The next node of a pool must not be disrupted while pods cannot run on this one. A node that was not ready before the
update is not waited for: the update may be what repairs it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from nodeagent import domains
from nodeagent.agent.update.actions import keys_of
from nodeagent.agent.update.run import Progress, Run
from nodeagent.agent.update.verification import RestartedUnits, VerifyFailed
from nodeagent.core.plan.domain import NODE, UnitFailure
from nodeagent.core.update.events import Warned
from nodeagent.core.update.ports.coordination import NodeReadiness
from nodeagent.errors import AgentError, Refused, Retryable, Unreachable
from nodeagent.reasons import Reason

# Seconds between two reads of the Node: a kubelet reports every ten.
PERIOD: Final = 2.0


async def was_ready(readiness: NodeReadiness) -> bool:
    """Return whether the node is ready now. What cannot be read is not waited for later."""
    with suppress(AgentError):
        return not await readiness.unready()
    return False


async def wait(run: Run, readiness: NodeReadiness, progress: Progress) -> None:
    """Return when the node is ready by a report from after the last action.

    Raises ``VerifyFailed`` after the time for verification. If the API server does not answer by then, the update
    continues: that is no fault of the config, and nothing can be released without an answer either.
    """
    keys = keys_of(run.update)
    outdated = domains.outdated(keys, reverted=run.record.reverting)
    kept_back = await run.ports.health.kept_back(keys)
    up = await RestartedUnits.of(run)
    clock, timeout = run.ports.clock.monotonic, run.policy.verify_timeout
    deadline = clock() + timeout
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
        if clock() >= deadline:
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
