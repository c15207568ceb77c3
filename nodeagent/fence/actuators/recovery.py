"""Restore what a killed agent left, and run several restores although some of them fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.errors import AgentError
from nodeagent.fence.actuators import block_queue, cgroup, object_fsync
from nodeagent.fence.actuators.object_fsync import ObjectFsync
from nodeagent.fence.actuators.priorities import IoPriority, Priorities
from nodeagent.fence.restore_log import RestoreLog
from nodeagent.host.dbus.client import Bus


@dataclass(frozen=True, slots=True)
class SystemPaths:
    """Tests pass other places than those of the kernel."""

    cgroups: Path = Path("/sys/fs/cgroup")
    disks: Path = Path("/sys/dev/block")
    priorities: IoPriority | None = None
    proc: Path = Path("/proc")
    objects: Callable[[Bus, RestoreLog, str], ObjectFsync] = ObjectFsync


DEFAULT: Final = SystemPaths()


async def recover(bus: Bus, restore_log: RestoreLog, system: SystemPaths = DEFAULT) -> tuple[bool, list[str]]:
    """Restore what a killed agent left. Called first at the start.

    Return whether there was anything, and a message for each failure. Raises nothing that the host can cause.
    """
    try:
        left = bool(await restore_log.load())
    except AgentError as error:
        return True, [error.message]
    if not left:
        return False, []

    async def units() -> None:
        await cgroup.recover(bus, restore_log, system.cgroups)

    async def queues() -> None:
        await block_queue.recover(restore_log, system.disks)

    async def objects() -> None:
        for unit in await object_fsync.units_left(restore_log):
            await system.objects(bus, restore_log, unit).end()

    priorities = Priorities(restore_log, system.priorities, system.proc)
    return True, await run_all(queues, units, priorities.restore, objects)


async def run_all(*steps: Callable[[], Awaitable[None]]) -> list[str]:
    """Run all steps; return a message for each that failed."""
    failed = []
    for step in steps:
        try:
            await step()
        except AgentError as error:
            failed.append(error.message)
        except Exception as error:  # noqa: BLE001 - otherwise the steps after it would be skipped
            failed.append(f"{type(error).__name__}: {error}")
    return failed
