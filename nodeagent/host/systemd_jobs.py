# SPDX-License-Identifier: Apache-2.0
"""The names of systemd's manager on the bus, the signals of its jobs, and what their results mean.

``run_unit`` runs a command as a transient unit, for the few programs that need rights which nodeagent.service drops,
such as a writable /sysroot.

``Reload`` (daemon-reload) answers when it is finished. A manager that re-executes during it loses the answer, so the
``Reloading`` signals are used too. They also distinguish a slow reload from a manager that does not answer.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from nodeagent.core.plan.unit_relations import Relations
from nodeagent.errors import AgentError, ServiceUnavailable, Terminal
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import variant
from nodeagent.host.dbus.errors import LOST, BusFault, BusRetryable, service_name
from nodeagent.host.dbus.signals import Match, Signals
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason, reason_of

NAME: Final = "org.freedesktop.systemd1"
PATH: Final = "/org/freedesktop/systemd1"
MANAGER: Final = "org.freedesktop.systemd1.Manager"
SERVICE: Final = "org.freedesktop.systemd1.Service"
UNIT: Final = "org.freedesktop.systemd1.Unit"

# Properties of a unit with other units, by the attribute of ``Relations``.
RELATIONS: Final[Mapping[str, Sequence[str]]] = {
    "restarts": ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf"),
    "stops": ("PropagatesStopTo",),
    "conflicts": ("Conflicts", "ConflictedBy"),
    "triggers": ("Triggers",),
    "needs": ("Requires", "Requisite", "BindsTo"),
    "wanted_by": ("WantedBy", "RequiredBy", "UpheldBy"),
    "after": ("After",),
}
# UpheldBy and PropagatesStopTo are those of systemd 249.
_NO_PROPERTY: Final = "org.freedesktop.DBus.Error.UnknownProperty"

NO_JOB: Final = "org.freedesktop.systemd1.NoSuchJob"
# Each start of the boot ends in one of them, so every unit has them behind it.
BOOT_TARGETS: Final = frozenset({"multi-user.target", "graphical.target", "default.target", "boot-complete.target"})
# Units behind one job. The message names a few.
_MAX_BEHIND: Final = 50

UNIT_EXISTS: Final = "org.freedesktop.systemd1.UnitExists"

# Its start ends when the update of this boot is verified. What is ordered after boot-complete.target waits for it.
BOOT_COMPLETE: Final = "nodeagent-boot-complete.service"

# Why systemd rejected a job, by the name of the error on the bus.
REASONS: Final[Mapping[str, AnyReason]] = {
    "org.freedesktop.systemd1.NoSuchUnit": Reason.UNIT_NOT_FOUND,
    "org.freedesktop.DBus.Error.FileNotFound": Reason.UNIT_NOT_FOUND,
    "System.Error.ENOENT": Reason.UNIT_NOT_FOUND,
    "org.freedesktop.systemd1.UnitMasked": Reason.UNIT_MASKED,
    UNIT_EXISTS: Reason.UNIT_EXISTS,
    "org.freedesktop.systemd1.LoadFailed": Reason.UNIT_INVALID,
    "org.freedesktop.systemd1.BadUnitSetting": Reason.UNIT_INVALID,
    "org.freedesktop.systemd1.JobTypeNotApplicable": Reason.JOB_INVALID,
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

# Seconds that systemd needs to end the unit after its timeout.
_GRACE = 10.0
_MICROSECONDS = 1_000_000

# Attempts, if the bus or systemd restarts during one.
_RELOAD_ATTEMPTS: Final = 3
# Seconds for the answer after the signal that a daemon-reload has finished.
_RELOAD_GRACE: Final = 15.0

# CLD_KILLED and CLD_DUMPED, as ``ExecMainCode`` has them: the status is the number of a signal.
_KILLED = (2, 3)

# Results of a service that its program has caused, with the value of ``ExecMainCode``.
_ENDS: Final = {"exit-code": 1, "signal": 2, "core-dump": 3}


class UnitJobFailed(AgentError):
    """A job failed, or systemd rejected it.

    ``result`` is systemd's result of the job, "" if there was no job. The reason is ``Job`` and the result
    (``JobFailed``, ``JobTimeout``, ``JobDependency``, ...), or why systemd rejected the job.
    """

    default_reason = Reason.JOB_FAILED

    def __init__(self, unit: str, result: str, message: str, *, reason: AnyReason | None = None) -> None:
        super().__init__(message, reason=reason or reason_of(f"Job{result.capitalize()}"))
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


async def all_wait_for(bus: Bus, unit: str) -> bool:
    """Return whether the start of ``unit`` is the only job that runs; others may be queued."""
    (jobs,) = await bus.call(NAME, PATH, MANAGER, "ListJobs", "", ())
    return {name for _, name, _, state, *_ in jobs if state == "running"} == {unit}


async def start_jobs(bus: Bus) -> dict[str, tuple[str, ...]]:
    """Return the units that are being started, each with the units whose start waits for that. Targets that only group
    others are passed over: what waits for them waits for the unit, except for the targets of the boot itself."""
    (jobs,) = await bus.call(NAME, PATH, MANAGER, "ListJobs", "", ())
    running = [(number, name) for number, name, kind, state, *_ in jobs if kind == "start" and state == "running"]
    return {name: await _behind(bus, number) for number, name in running if name != BOOT_COMPLETE}


async def _behind(bus: Bus, number: int) -> tuple[str, ...]:
    units: set[str] = set()
    pending, seen = [number], {number}
    while pending and len(units) < _MAX_BEHIND:
        try:
            (jobs,) = await bus.call(NAME, PATH, MANAGER, "GetJobAfter", "u", (pending.pop(),))
        except BusFault as error:
            if error.bus_error != NO_JOB:
                raise
            continue
        for other, name, kind, *_ in jobs:
            if kind != "start" or other in seen or name == BOOT_COMPLETE:
                continue
            seen.add(other)
            if not name.endswith(".target"):
                units.add(name)
            elif name not in BOOT_TARGETS:
                pending.append(other)
    return tuple(sorted(units))


async def relations_of(bus: Bus, path: str) -> Relations:
    """Return the relations of the unit at the object ``path`` to other units."""

    async def names(member: str) -> frozenset[str]:
        try:
            return frozenset(await bus.get(NAME, path, UNIT, member))
        except BusFault as error:
            if error.bus_error != _NO_PROPERTY:
                raise
            return frozenset()

    members = sorted({member for several in RELATIONS.values() for member in several})
    related = dict(zip(members, await asyncio.gather(*map(names, members)), strict=True))
    return Relations(
        **{key: frozenset().union(*(related[member] for member in several)) for key, several in RELATIONS.items()}
    )


async def check_started(bus: Bus, unit: str, path: str, requested_at: float) -> None:
    """Raise ``UnitJobFailed`` if the unit has run since before ``requested_at``, seconds of CLOCK_MONOTONIC."""
    wanted = ("ActiveState", "InactiveExitTimestampMonotonic")
    active, began = await asyncio.gather(*(bus.get(NAME, path, UNIT, member) for member in wanted))
    if active in ("active", "activating", "reloading", "refreshing") and 0 < began < requested_at * 1e6:
        message = f"{unit}: the job is done, but the unit has not started again"
        raise UnitJobFailed(unit, "", message, reason=Reason.JOB_FAILED)


async def run_unit(
    bus: Bus,
    command: Sequence[str],
    description: str,
    deadline: float,
    *,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    name: str = "",
    more: Sequence[tuple[str, Any]] = (),
) -> None:
    """Run ``command`` (absolute path and arguments). systemd ends it after ``deadline`` seconds.

    ``before`` runs before it. ``after`` runs in any case, also if one of them fails or is late; its own result does
    not count. ``more`` are further properties, as name and variant. With a ``name``, the unit is the only one of that
    name: the error of the bus is ``UNIT_EXISTS`` while another one is loaded.

    Raises ``Terminal``: ``CommandFailed`` with the exit status or the signal if it fails, ``CommandTimedOut`` if it is
    late.
    """
    name = name or f"nodeagent-run-{secrets.token_hex(4)}.service"
    properties = [
        ["Description", variant("s", description)],
        ["Type", variant("s", "oneshot")],
        ["ExecStart", variant("a(sasb)", [[command[0], list(command), False]])],
        ["TimeoutStartUSec", variant("t", int(deadline * _MICROSECONDS))],
        *([key, value] for key, value in more),
    ]
    for setting, words, may_fail in (("ExecStartPre", before, False), ("ExecStopPost", after, True)):
        if words:
            properties.append([setting, variant("a(sasb)", [[words[0], list(words), may_fail]])])
    async with subscribed(bus, "JobRemoved") as removed:
        (job,) = await removed.call(
            NAME, PATH, MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", (name, "fail", properties, [])
        )
        result = await job_result(removed, str(job), deadline + _GRACE) or "timeout"
        if result != "done":
            raise await _failure(removed, name, command, result, deadline)


async def _failure(removed: Signals, name: str, command: Sequence[str], result: str, deadline: float) -> Terminal:
    how, late = result, result == "timeout"
    try:
        (path,) = await removed.call(NAME, PATH, MANAGER, "GetUnit", "s", (name,))

        async def get(member: str) -> Any:
            properties = "org.freedesktop.DBus.Properties"
            (value,) = await removed.call(NAME, path, properties, "Get", "ss", (SERVICE, member))
            return value

        # systemd ends a late command with a signal, whose number would look like an exit status.
        late = late or await get("Result") == "timeout"
        how += f", {_end(await get('ExecMainCode'), await get('ExecMainStatus'))}"
        await removed.call(NAME, PATH, MANAGER, "ResetFailedUnit", "s", (name,))
    except ServiceUnavailable:
        # systemd is unavailable, so the result is unknown.
        raise
    except BusFault:
        # The unit is unloaded already; the result must suffice.
        pass
    if late:
        how = f"it did not end within {deadline:g} s"
    message = f"{' '.join(command)}: {how}; see journalctl -u {name}"
    return Terminal(message, reason=Reason.COMMAND_TIMED_OUT if late else Reason.COMMAND_FAILED)


async def end_of(bus: Bus, path: str, result: str, *, again: bool) -> str:
    """Return the failure of the main program of the service at the object ``path``, "" if the failure was not its end.

    ``again``: systemd starts it again, so that the unit has left its failed state since.
    """
    if (expected := _ENDS.get(result)) is None:
        return ""
    wanted = ("ExecMainCode", "ExecMainStatus", "ExecMainExitTimestampMonotonic")
    code, status, ended = await asyncio.gather(*(bus.get(NAME, path, SERVICE, member) for member in wanted))
    # If a command before it fails, these values are those of an earlier run.
    started = await bus.get(NAME, path, UNIT, "InactiveExitTimestampMonotonic")
    return _end(code, status) if code == expected and status and (again or ended >= started) else ""


def _end(code: int, status: int) -> str:
    return f"ended by {_signal(status)}" if code in _KILLED else f"exit status {status}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def daemon_reload(bus: Bus, deadline: float) -> None:
    """Let systemd read its unit files again. Raises ``Terminal`` (``ActionLate``) and ``BusRetryable``."""
    # One deadline covers all attempts, so that a bus that restarts does not multiply it.
    until = now() + deadline
    for left in reversed(range(_RELOAD_ATTEMPTS)):
        try:
            # A second daemon-reload is harmless, so a lost connection needs no check of the state.
            await _reload(bus, until, deadline)
        except BusRetryable as error:
            if error.reason != LOST or not left:
                raise
        else:
            return


async def _reload(bus: Bus, until: float, deadline: float) -> None:
    # The subscription comes first. A reload of a small host may end before its answer is read.
    async with subscribed(bus, "Reloading") as reloading:
        answer = asyncio.create_task(
            reloading.call(NAME, PATH, MANAGER, "Reload", timeout=max(until - now(), 0)), name="daemon-reload"
        )
        began = asyncio.Event()
        seen = asyncio.create_task(_wait_for_reload(reloading, began), name="daemon-reload-signals")
        try:
            await asyncio.wait({answer, seen}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                # systemd answers after the reload, but it may have lost the connection during it. The signal then
                # is the only sign.
                await asyncio.wait({answer}, timeout=min(_RELOAD_GRACE, max(until - now(), 0)))
            if not answer.done() and seen.exception() is None:
                # The answer was lost, but the reload is done.
                return
            try:
                await answer
            except BusRetryable as error:
                if error.reason == Reason.BUS_TIMEOUT and began.is_set():
                    raise TimeoutError from error
                if error.reason != Reason.NO_REPLY:
                    raise
                # NoReply means that systemd left the bus before it answered. The signal still reports the end.
                async with asyncio.timeout_at(until):
                    await seen
        except TimeoutError:
            message = f"daemon-reload not finished after {deadline:g} s"
            # The manager works on it, so it is not unavailable.
            if began.is_set():
                raise Terminal(message, reason=Reason.ACTION_LATE) from None
            raise BusRetryable(message, reason=Reason.BUS_TIMEOUT, service=service_name(NAME)) from None
        finally:
            # Both tasks end here in every case, so that no late answer belongs to the next reload.
            answer.cancel()
            seen.cancel()
            await asyncio.gather(answer, seen, return_exceptions=True)


async def _wait_for_reload(reloading: Signals, began: asyncio.Event) -> None:
    """Wait for a whole daemon-reload. One that was under way before does not count."""
    await reloading.first(lambda body: body[0] is True)
    began.set()
    await reloading.first(lambda body: body[0] is False)


def now() -> float:
    return asyncio.get_running_loop().time()
