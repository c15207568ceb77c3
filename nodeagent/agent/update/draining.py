"""Drains the node, and decides what follows if it is not empty in time.

The deadline is in the record, so a restart does not extend it. After the deadline the settings decide: reboot with the
remaining pods, if etcd allows it, or end the update.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from nodeagent.agent.tasks import finished_before, running
from nodeagent.agent.update.admission import reboots
from nodeagent.agent.update.run import Limits, Ports, Update, narrate
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.reboot_budget import USED_UP
from nodeagent.errors import Refused

__all__ = ["MIN_DRAIN", "Superseded", "drain", "unless_newer"]

MIN_DRAIN: Final = 15.0
"""Seconds that a drain lasts at least, also if the deadline passed while the agent was down. Also the interval at which
etcd is checked again after the deadline."""


class Superseded(Exception):
    """Another config is desired, and nothing was written yet."""


async def drain(ports: Ports, limits: Limits, update: Update) -> str:
    """Drain the node. Return "" if it is empty, else the message about pods that a reboot will stop.

    Raises ``Refused`` if the drain failed and no reboot may follow.
    """
    node, coordination, record = ports.node, ports.coordination, update.record
    if node is None:
        return ""
    if record.acted:
        await coordination.check_quorum()  # without it there is no reboot, and no reason to drain
    while True:
        left = record.drain_until - ports.clock.monotonic()
        try:
            await node.drain(record.operation, max(left, MIN_DRAIN))
        except Refused as error:
            if error.reason != "DrainTimedOut" or not (limits.drain_or_reboot and limits.may_reboot):
                raise
            if not (record.acted or reboots(update) or record.budget.left):
                raise Refused(f"{error.message}; {USED_UP}", reason=error.reason) from error
            late = error
        else:
            return ""
        if record.acted:
            return late.message  # the reboot checks the lease and etcd again
        try:
            await coordination.check_quorum()
        except Refused as error:
            narrate(ports, update, EventKind.WAITING, error.message, reason=error.reason)
        else:
            return late.message


async def unless_newer(work: Awaitable[str], look: asyncio.Event, newer: Callable[[], Awaitable[bool]]) -> str:
    """Return the result of ``work``. Raises ``Superseded`` if a newer config is desired; ``work`` is cancelled then."""
    async with running(work) as task:
        while not await finished_before(task, look):
            if await newer():
                raise Superseded
        return task.result()
