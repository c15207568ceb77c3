# SPDX-License-Identifier: Apache-2.0
"""greenboot after a boot: wait for its verdict.

greenboot, where it is installed, runs its health check at each boot. If it fails, greenboot reboots the host while
boots are left, and rolls back when they are used up. nodeagent does not roll back at the same time: two programs that
swap the boot order undo each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from nodeagent.errors import AgentError
from nodeagent.features.boot_counting.reasons import BootCountingReason
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import UnitState
from nodeagent.update.run import Progress, Run
from nodeagent.update.stages.compare import VerifyFailed

# Seconds between two checks.
PERIOD = 2.0

HEALTH_CHECK: Final = "greenboot-healthcheck.service"

# Seconds for greenboot to take the host down after its check has failed. It requests that before the unit has failed,
# so afterwards it does not want to.
GOING_DOWN: Final = 60.0


async def watch_greenboot(run: Run, progress: Progress) -> None:
    """Wait for greenboot's health check of this boot.

    Raise ``VerifyFailed`` (``GreenbootFailed``) if it fails, and greenboot leaves the host as it is, or if it does not
    end in time.
    """
    clock = run.ports.clock.monotonic
    deadline = clock() + run.policy.verify_timeout
    while (state := await _greenboot(run)) is not None and state.active == "activating":
        if clock() >= deadline:
            raise _greenboot_failed(f"{HEALTH_CHECK} did not end within {run.policy.verify_timeout:g} s")
        progress(f"{HEALTH_CHECK} runs; waiting for it", deadline)
        await asyncio.sleep(PERIOD)
    if state is None or state.active != "failed":
        return
    progress(f"{HEALTH_CHECK} failed; greenboot may reboot the host", clock() + GOING_DOWN)
    await asyncio.sleep(GOING_DOWN)
    raise _greenboot_failed(f"{HEALTH_CHECK} failed ({state.how})")


async def greenboot_rolled_back(run: Run, order: Sequence[str], staged: str, booted: str) -> str:
    """Return that greenboot put ``booted`` before ``staged`` in the boot order, "" if it did not."""
    # greenboot changes the boot order, which a choice at the boot menu leaves as it is.
    if await _greenboot(run) is None or booted not in order or order.index(booted) > order.index(staged):
        return ""
    return "greenboot rolled back"


def _greenboot_failed(message: str) -> VerifyFailed:
    return VerifyFailed(message, reason=BootCountingReason.GREENBOOT_FAILED, unit=HEALTH_CHECK)


async def _greenboot(run: Run) -> UnitState | None:
    """Return the state of the health check; None without greenboot."""
    try:
        state = await run.ports.units.state(HEALTH_CHECK)
    except AgentError as error:
        if error.reason in (Reason.UNIT_NOT_FOUND, Reason.UNIT_MASKED, Reason.UNIT_INVALID):
            return None
        raise
    return state if state.load == "loaded" else None
