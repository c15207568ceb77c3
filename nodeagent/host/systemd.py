# SPDX-License-Identifier: Apache-2.0
"""The manager of systemd over D-Bus: the ``Units`` port.

Facts (systemd's ``org.freedesktop.systemd1(5)`` and ``src/core``):
- A method that queues a job returns the path of the job, and the job may end before that answer arrives. Therefore
  ``JobRemoved`` is subscribed to first. Signals are sent only to clients that called ``Subscribe``.
- With mode ``replace``, systemd may merge the job into a queued one of the same unit. The answer then has the path of
  the remaining job, so waiting for that path is right in both cases.
- A unit gets a new invocation ID with each start, so the ID shows whether a restart happened although its result was
  lost.
- A unit that was started too often refuses each start until its interval is over or ``ResetFailedUnit`` clears the
  count, which also resets ``NRestarts``. A planned restart is no crash loop, so the count is cleared first.
- A restart is one transaction with the restarts of all active units that require the unit, and so on
  (``core.plan.unit_relations``). A job for one of them is merged into it or waits for it.
- A start whose ``Condition...=`` is not met ends as "done" and starts nothing; one whose ``Assert...=`` is not met ends
  as "assert". An inactive unit without references is unloaded together with the result of its last start. Therefore a
  reference (``RefUnit``) is held until the result has been read. A reference ends with the connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from nodeagent.core.config.unit_names import is_template
from nodeagent.core.plan.unit_abilities import UnitAbilities
from nodeagent.core.plan.unit_origin import names_no_instance
from nodeagent.core.plan.unit_relations import NO_RELATIONS, Relations
from nodeagent.errors import AgentError
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.errors import LOST, BusFault, BusRetryable, service_name
from nodeagent.host.dbus.signals import CALL_TIMEOUT, Signals
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.systemd_jobs import (
    BOOT_COMPLETE,
    JOB_RESULTS,
    MANAGER,
    NAME,
    NO_JOB,
    PATH,
    REASONS,
    SERVICE,
    UNIT,
    UnitJobFailed,
    all_wait_for,
    check_started,
    daemon_reload,
    end_of,
    job_result,
    now,
    relations_of,
    start_jobs,
    subscribed,
)
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import UnitState

_SERVICE_NAME = service_name(NAME)

# Attempts for one job, if the bus or systemd restarts during it.
_ATTEMPTS = 3
# Seconds between checks whether the job still exists, in case its signal was lost.
_POLL = 10.0
# Seconds for a signal that was sent but not received yet.
_GRACE = 1.0
# Bytes of a unit file that is read here.
_MAX_UNIT_FILE = 1 << 20


class Systemd:
    """The manager. All methods raise ``AgentError`` only; deadlines are seconds from the call."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    # -- state ----------------------------------------------------------------------------------------------------

    async def state(self, unit: str) -> UnitState:
        # The state of the unit file comes first, because GetUnitFileState also answers for a unit that cannot be
        # loaded.
        file = await self._file_state(unit)
        # A template only has a file; its instances have a state.
        if is_template(unit):
            return UnitState(unit, "loaded" if file else "not-found", "inactive", "dead", "", "", "", 0, file)
        # LoadUnit also returns the path of a unit that does not exist, whose LoadState is then not-found. GetUnit would
        # fail for every unit that is not in memory.
        (path,) = await self._manager_call("LoadUnit", unit, "s", (unit,))
        # A few small calls. GetAll would make systemd read the cgroup of the unit for 300 properties.
        wanted = ("LoadState", "ActiveState", "SubState", "InvocationID", "TriggeredBy")
        load, active, sub, invocation, triggered_by = await asyncio.gather(
            *(self._bus.get(NAME, path, UNIT, p) for p in wanted)
        )
        kind, result, restarts, bus_name, end = "", "", 0, "", ""
        if unit.endswith(".service"):
            kind, result, restarts, bus_name = await asyncio.gather(
                *(self._bus.get(NAME, path, SERVICE, p) for p in ("Type", "Result", "NRestarts", "BusName"))
            )
            end = await end_of(self._bus, path, result, again="auto-restart" in sub)
        # Conditions count only for an inactive unit. A running unit keeps the result of its last start.
        condition = await self._unmet(path) if active == "inactive" and load == "loaded" else ""
        # ExecCondition= is the command of a service, not a condition of the unit, so its result is that of the service.
        if not condition and result == "exec-condition":
            condition = "ExecCondition"
        return UnitState(
            unit, load, active, sub, kind, result, invocation.hex(), restarts, file, condition,
            tuple(triggered_by), bus_name, end,
        )  # fmt: skip

    async def abilities(self, unit: str) -> UnitAbilities:
        if is_template(unit):
            return UnitAbilities(unit, can_enable=await self._starts(unit))
        (path,) = await self._manager_call("LoadUnit", unit, "s", (unit,))
        wanted = ("Id", "CanStart", "CanStop", "CanReload")
        return UnitAbilities(*await asyncio.gather(*(self._bus.get(NAME, path, UNIT, p) for p in wanted)))

    async def _starts(self, template: str) -> bool:
        """Return whether the file of a template names an instance, or wants none."""
        (unit_files,) = await self._manager_call("ListUnitFilesByPatterns", template, "asas", ([], [template]))
        for path, _ in unit_files:
            with suppress(OSError):
                text = await asyncio.to_thread(read_regular, path, _MAX_UNIT_FILE)
                return not names_no_instance(template, (text.decode(errors="replace"),))
        return True

    async def _unmet(self, path: str) -> str:
        """Return the condition that prevented the last start, "" if all were met or no start was requested."""
        tested, met, conditions = await asyncio.gather(
            *(
                self._bus.get(NAME, path, UNIT, p)
                for p in ("ConditionTimestampMonotonic", "ConditionResult", "Conditions")
            )
        )
        # A timestamp of zero means that no start was requested since the unit was loaded.
        if not tested or met:
            return ""
        for kind, _trigger, negated, parameter, state in conditions:
            # The state is negative for an unmet condition, 0 for an untested one and positive for a met one.
            if state < 0:
                return f"{kind}={'!' if negated else ''}{parameter}"
        # A group of triggering conditions, of which one must be met, has no single cause.
        return "Condition"

    def outages(self) -> int:
        return self._bus.losses

    async def boot_finished(self) -> bool:
        # "degraded" also means that the boot has finished: a unit failed, which the checks of units report.
        state = await self._bus.get(NAME, PATH, MANAGER, "SystemState")
        return state not in ("initializing", "starting") or (
            state == "starting" and await all_wait_for(self._bus, BOOT_COMPLETE)
        )

    async def start_jobs(self) -> Mapping[str, Sequence[str]]:
        return await start_jobs(self._bus)

    async def _file_state(self, unit: str) -> str:
        try:
            return str((await self._manager_call("GetUnitFileState", unit, "s", (unit,)))[0])
        except UnitJobFailed as error:
            if error.reason == Reason.UNIT_NOT_FOUND:
                return ""
            raise

    # -- jobs -----------------------------------------------------------------------------------------------------

    async def reload(self, unit: str, deadline: float) -> None:
        await self._run("ReloadUnit", unit, deadline)

    async def start(self, unit: str, deadline: float) -> None:
        """Start a unit. Returns at once if it is active."""
        await self._run("StartUnit", unit, deadline)

    async def restart(self, unit: str, deadline: float, *, since: str | None = None) -> str:
        # The clock of systemd's timestamps.
        requested_at = time.monotonic()
        unmet = await self._run("RestartUnit", unit, deadline, since=since)
        if since is None and not unmet:
            (path,) = await self._manager_call("LoadUnit", unit, "s", (unit,))
            await check_started(self._bus, unit, path, requested_at)
        return unmet

    async def relations(self, unit: str) -> Relations:
        if is_template(unit):
            return NO_RELATIONS
        (path,) = await self._manager_call("LoadUnit", unit, "s", (unit,))
        return await relations_of(self._bus, path)

    async def instances(self, template: str) -> Collection[str]:
        return await self._instances(template, ())

    async def stop(self, unit: str, deadline: float) -> None:
        """Stop a unit, or all instances of a template. Returns at once if it is inactive."""
        for name in await self._instances(unit, ()):
            await self._run("StopUnit", name, deadline)

    async def reset_failed(self, unit: str) -> None:
        for name in await self._instances(unit, ("failed",)):
            # systemd may have forgotten it already.
            with suppress(UnitJobFailed):
                await self._manager_call("ResetFailedUnit", name, "s", (name,))

    async def _instances(self, unit: str, states: Sequence[str]) -> list[str]:
        """Return the unit, or the instances of a template in these states (none: in any)."""
        if not is_template(unit):
            return [unit]
        pattern = unit.replace("@.", "@*.")
        (rows,) = await self._manager_call("ListUnitsByPatterns", unit, "asas", ([*states], [pattern]))
        return [row[0] for row in rows]

    async def files(self) -> frozenset[str]:
        # A path per unit file; the name is the same in all unit directories.
        (unit_files,) = await self._manager_call("ListUnitFiles", "unit files", "", ())
        return frozenset(path.rpartition("/")[2] for path, _ in unit_files)

    async def daemon_reload(self, deadline: float) -> None:
        await daemon_reload(self._bus, deadline)

    async def _run(self, verb: str, unit: str, deadline: float, *, since: str | None = None) -> str:
        """Run one job to its end. Returns the start condition that was not met, "" if there is none.

        After a lost connection, or with ``since``, the state of the unit and its pending job are read before another
        job is requested.
        """
        until = now() + deadline
        # The invocation id identifies one run of the unit. If it differs after a lost connection, the restart took
        # place.
        before = await self._invocation(unit) if since is None else since
        for attempt in range(_ATTEMPTS):
            repeated = attempt > 0 or since is not None
            try:
                # The subscription and the reference share the connection of the call, because systemd removes them with
                # the connection.
                async with subscribed(self._bus, "JobRemoved") as removed, self._referenced(unit, removed):
                    job = await self._pending_job(removed, unit) if repeated else ""
                    if job and verb == "RestartUnit":
                        # Perhaps the start that was under way before the first attempt, with the previous files.
                        await self._wait(removed, unit, job, until, deadline)
                        job = ""
                    if repeated and not job and verb == "RestartUnit" and await self._was_restarted(unit, before):
                        return ""
                    # A restart limit that an earlier config reached must not prevent the start. The job will report
                    # the fault of the unit.
                    if not job and verb in ("StartUnit", "RestartUnit"):
                        with suppress(UnitJobFailed):
                            await self._manager_call("ResetFailedUnit", unit, "s", (unit,), removed)
                    if not job:
                        # The mode "replace" lets the job replace a pending one of the same unit.
                        (job,) = await self._manager_call(
                            verb, unit, "ss", (unit, "replace"), removed, max(until - now(), 0)
                        )
                    await self._wait(removed, unit, job, until, deadline)
                    return "" if verb in ("ReloadUnit", "StopUnit") else (await self.state(unit)).condition
            except BusRetryable as error:
                # Other faults, and the last attempt, are for the caller.
                if error.reason not in (LOST, Reason.NO_REPLY) or attempt == _ATTEMPTS - 1 or now() >= until:
                    raise
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def _referenced(self, unit: str, removed: Signals) -> AsyncIterator[None]:
        """Hold a reference, so that systemd keeps the state of ``unit`` loaded inside the context."""
        try:
            await self._manager_call("RefUnit", unit, "s", (unit,), removed)
        except UnitJobFailed:
            # The job will report the fault of the unit.
            yield
            return
        try:
            yield
        finally:
            # A reference ends with its connection at the latest.
            with suppress(AgentError):
                await self._manager_call("UnrefUnit", unit, "s", (unit,), removed, 2 * _GRACE)

    async def _wait(self, removed: Signals, unit: str, job: str, until: float, deadline: float) -> None:
        # A job has a path that ends with its number.
        number = int(job.rpartition("/")[2])
        result = None
        while result is None:
            # The wait is cut into pieces, because a signal may be lost with a connection.
            result = await job_result(removed, job, min(_POLL, until - now()))
            if result is None and now() >= until:
                if (result := await self._cancel(removed, job, number)) != "done":
                    message = f"{unit}: the job was not finished after {deadline:g} s and was canceled"
                    raise UnitJobFailed(unit, "timeout", message)
            elif result is None and not await self._exists(removed, number):
                # The job does not exist any more, so its signal is on the way or was lost.
                result = await job_result(removed, job, _GRACE)
                if result is None:
                    raise BusRetryable(f"{unit}: the job ended without a result", reason=LOST, service=_SERVICE_NAME)
        if result != "done":
            raise UnitJobFailed(unit, result, f"{unit}: the job ended as {result!r}{JOB_RESULTS.get(result, '')}")

    async def _cancel(self, removed: Signals, job: str, number: int) -> str | None:
        """Cancel a job after its deadline. Returns its result if it ended in the meantime."""
        try:
            await removed.call(NAME, PATH, MANAGER, "CancelJob", "u", (number,), timeout=2 * _GRACE)
        except BusFault as error:
            if error.bus_error != NO_JOB:
                # The caller reports the deadline.
                return None
        return await job_result(removed, job, _GRACE)

    async def _exists(self, removed: Signals, number: int) -> bool:
        try:
            await removed.call(NAME, PATH, MANAGER, "GetJob", "u", (number,))
        except BusFault as error:
            if error.bus_error != NO_JOB:
                raise
            return False
        return True

    async def _pending_job(self, removed: Signals, unit: str) -> str:
        (path,) = await self._manager_call("LoadUnit", unit, "s", (unit,), removed)
        number, job = await self._bus.get(NAME, path, UNIT, "Job")
        return str(job) if number else ""

    async def _invocation(self, unit: str) -> str:
        (path,) = await self._manager_call("LoadUnit", unit, "s", (unit,))
        return bytes(await self._bus.get(NAME, path, UNIT, "InvocationID")).hex()

    async def _was_restarted(self, unit: str, before: str) -> bool:
        state = await self.state(unit)
        finished = state.type == "oneshot" and state.active == "inactive" and state.result == "success"
        return (state.active == "active" or finished) and state.invocation_id not in ("", before)

    # -- calls to the manager ------------------------------------------------------------------------------------

    async def _manager_call(
        self,
        member: str,
        unit: str,
        signature: str,
        body: Sequence[Any],
        signals: Signals | None = None,
        timeout: float = CALL_TIMEOUT,
    ) -> list[Any]:
        try:
            return await (signals or self._bus).call(NAME, PATH, MANAGER, member, signature, body, timeout=timeout)
        except BusFault as error:
            if (reason := REASONS.get(error.bus_error)) is None:
                raise
            raise UnitJobFailed(unit, "", f"{unit}: {error.bus_message or error.bus_error}", reason=reason) from error
