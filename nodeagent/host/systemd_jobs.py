"""The names of systemd's manager on the bus, the signals of its jobs, and what their results mean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from nodeagent.errors import AgentError
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.errors import BusFault
from nodeagent.host.dbus.signals import Match, Signals
from nodeagent.reasons import Reason

__all__ = [
    "JOB_RESULTS",
    "MANAGER",
    "NAME",
    "PATH",
    "REASONS",
    "SERVICE",
    "UnitJobFailed",
    "job_result",
    "subscribed",
]

NAME: Final = "org.freedesktop.systemd1"
PATH: Final = "/org/freedesktop/systemd1"
MANAGER: Final = "org.freedesktop.systemd1.Manager"
SERVICE: Final = "org.freedesktop.systemd1.Service"

# Why systemd rejected a job, by the name of the error on the bus.
REASONS: Final[Mapping[str, Reason]] = {
    "org.freedesktop.systemd1.NoSuchUnit": Reason.UNIT_NOT_FOUND,
    "org.freedesktop.DBus.Error.FileNotFound": Reason.UNIT_NOT_FOUND,
    "System.Error.ENOENT": Reason.UNIT_NOT_FOUND,
    "org.freedesktop.systemd1.UnitMasked": Reason.UNIT_MASKED,
    "org.freedesktop.systemd1.UnitExists": Reason.UNIT_EXISTS,
    "org.freedesktop.systemd1.LoadFailed": Reason.UNIT_INVALID,
    "org.freedesktop.systemd1.BadUnitSetting": Reason.UNIT_INVALID,
    "org.freedesktop.systemd1.JobTypeNotApplicable": Reason.JOB_NOT_APPLICABLE,
    "org.freedesktop.systemd1.OnlyByDependency": Reason.JOB_NOT_APPLICABLE,
    "org.freedesktop.systemd1.TransactionIsDestructive": Reason.JOB_CONFLICT,
    "org.freedesktop.systemd1.TransactionJobsConflicting": Reason.JOB_CONFLICT,
    "org.freedesktop.systemd1.TransactionOrderIsCyclic": Reason.JOB_CONFLICT,
    "org.freedesktop.systemd1.ShuttingDown": Reason.SHUTTING_DOWN,
}


# The end of the message about a job with this result.
JOB_RESULTS: Final[Mapping[str, str]] = {
    "dependency": ": a required unit did not start",
    "timeout": ": the start or stop timeout of the unit expired",
    "assert": ": an Assert setting of the unit is not met",
    "canceled": ": another job replaced it",
    "invalid": ": the unit is not active, or does not support the action",
}


class UnitJobFailed(AgentError):
    """A job failed, or systemd rejected it.

    ``result`` is systemd's result of the job, "" if there was no job. The reason is ``Job`` and the result
    (``JobFailed``, ``JobTimeout``, ``JobDependency``, ...), or why systemd rejected the job.
    """

    default_reason = Reason.JOB_FAILED

    def __init__(self, unit: str, result: str, message: str, *, reason: Reason | None = None) -> None:
        super().__init__(message, reason=reason or Reason(f"Job{result.capitalize()}"))
        self.unit = unit
        self.result = result


@asynccontextmanager
async def subscribed(bus: Bus, member: str) -> AsyncIterator[Signals]:
    """The signals ``member`` of the manager."""
    async with bus.signals(Match(MANAGER, member, sender=NAME, path=PATH)) as signals:
        try:
            # Subscribe each time: a restarted manager has lost its subscribers without notice.
            await signals.call(NAME, PATH, MANAGER, "Subscribe")
        except BusFault as error:
            if error.bus_error != "org.freedesktop.systemd1.AlreadySubscribed":
                raise
        yield signals


async def job_result(removed: Signals, job: str, timeout: float) -> str | None:
    """Return the result of ``job``, None if it did not end within ``timeout`` seconds."""
    try:
        async with asyncio.timeout(max(timeout, 0)):
            return str((await removed.first(lambda body: body[1] == job))[3])
    except TimeoutError:
        return None
