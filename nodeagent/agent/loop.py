"""The loop: level-triggered. It compares the desired config with the current one, does what is needed, and sleeps until
something changes. What an update depends on is in the store; the loop itself remembers what was reported.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from nodeagent.agent.update import idle
from nodeagent.agent.update.after_boot import record_clean_shutdown
from nodeagent.agent.update.begin import begin_update, lasting_of
from nodeagent.agent.update.bugs import bug
from nodeagent.agent.update.desired import DesiredReader
from nodeagent.agent.update.executor import Executor, RunResult
from nodeagent.agent.update.finishing import finish
from nodeagent.agent.update.outages import Outage
from nodeagent.agent.update.outcomes import abort
from nodeagent.agent.update.preflight import Desired, Preflight
from nodeagent.agent.update.run import Ports, Transition, Update, UpdatePolicy, narrate
from nodeagent.agent.update.takeover import close_interrupted, takeover_by, unusable
from nodeagent.agent.update.unreadable import is_unreadable, load_or_half_way, rebuild
from nodeagent.core.backoff import delays, jittered
from nodeagent.core.boot import kernel_boot
from nodeagent.core.plan.steps import ActStep
from nodeagent.core.report.history import entry_of_request
from nodeagent.core.update import resume as resuming
from nodeagent.core.update.apply_request import ApplyRequest
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.legs import INTERRUPTED, Unreleased
from nodeagent.core.update.outcome import UpdateOutcome
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.record import (
    IllegalTransition,
    Record,
    after_boot,
    at_rest,
    degraded_record,
    half_way,
    interrupted,
)
from nodeagent.core.update.rejections import matching
from nodeagent.core.update.resume import Decision
from nodeagent.errors import (
    AgentError,
    InvalidInput,
    Retryable,
    ServiceUnavailable,
    Unreconcilable,
    full_text,
)

__all__ = ["Loop"]

RETRY_FIRST = 30.0
RETRY_CAP = 3600.0
"""Seconds between two attempts to apply a config that was refused, or not staged, for a reason that may pass."""
AGAIN, AGAIN_AFTER = 2, 2.0
"""How often a passing fault is not reported as a refusal yet, and the seconds between the attempts."""

STUCK_FIRST, STUCK_CAP = 2.0, 60.0
"""Seconds until a store that failed is tried again, doubled each time."""

_AFTER_BOOT = {
    Decision.VERIFY: Phase.VERIFYING,
    Decision.REVERT: Phase.REVERTING,
    Decision.STAGE: Phase.STAGING,
}


class Loop:
    """``desired`` reads the desired config (None: there is none yet); ``parse`` turns stored text into a config."""

    def __init__(
        self,
        ports: Ports,
        policy: UpdatePolicy,
        preflight: Preflight,
        *,
        desired: Callable[[], Awaitable[Desired | None]],
        load: Callable[[str], Awaitable[Desired]],
        adopted: Callable[[], Awaitable[Desired | None]],
        chance: Callable[[], float],
        renew: Callable[[ActStep], Awaitable[None]],
    ) -> None:
        self.ports = ports
        self._renew = renew
        self._update_wake = asyncio.Event()  # the desired config may have changed during an update
        self.desired = DesiredReader(ports, desired)
        self.executor = Executor(ports, policy, self.desired.superseded, self._update_wake, chance)
        self._preflight = preflight
        self._load = load
        self._adopted = adopted
        self._chance = chance
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()  # the desired config may have changed while an update is under way
        self._refused, self._stuck_since = "", ""
        self._wanted: Desired | None = None  # the config that was looked at last
        self._delays = delays(RETRY_FIRST, RETRY_CAP)
        self._stuck_delays = delays(STUCK_FIRST, STUCK_CAP)
        self._passing = 0  # looks in a row that met something which may pass
        self._outage = Outage(ports, policy, None, chance)

    @property
    def policy(self) -> UpdatePolicy:
        return self.executor.policy

    def reload(self, policy: UpdatePolicy, preflight: Preflight) -> None:
        """Use these from the next step on."""
        self.executor.policy = policy
        self._preflight = preflight

    async def stopping(self) -> None:
        """To be called when this process is about to end."""
        if self.executor.reboot_accepted:
            await record_clean_shutdown(self.ports)

    def look_again(self) -> None:
        """The desired config may have changed."""
        self._delays = delays(RETRY_FIRST, RETRY_CAP)
        self._update_wake.set()
        self._changed.set()
        self._wake.set()

    @contextlib.asynccontextmanager
    async def recorded(self, request: ApplyRequest, desired: Desired | None = None) -> AsyncIterator[None]:
        """Inside, the desired config is made the one of ``request``, which is in the store by then. Given ``desired``,
        the end of what was requested is reported."""
        async with self.desired.recorded(request, desired):
            yield
        self.look_again()

    async def run(self) -> None:
        """Never return. A fault of the store, or a bug outside of a phase, is reported and retried from the record, as
        after a restart."""
        resumed = stuck = False
        while True:
            self._wake.clear()
            try:
                if not resumed:
                    await self.resume()
                    resumed = True
                delay = await self.turn()
                if stuck:
                    await self._show()
                stuck = False
                self._stuck_delays = delays(STUCK_FIRST, STUCK_CAP)
            except AgentError as error:
                delay, stuck, resumed = self._stuck(error), True, False
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not become a loop of restarts
                delay, stuck, resumed = self._stuck(bug(error, "the main loop")), True, False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()

    def _stuck(self, error: AgentError) -> float:
        text = full_text(error, 5)
        again = f"{error.reason} {text}" == self._refused
        if not again:
            self._refused, self._stuck_since = f"{error.reason} {text}", self.ports.clock.now()
        # Each time: what was resumed in between has set the status.
        record = degraded_record(since=self._stuck_since)
        narrate(self.ports, None, EventKind.REFUSED, text, reason=error.reason, record=record, often=again)
        return jittered(next(self._stuck_delays), self._chance())

    async def _show(self) -> None:
        record = await self.ports.store.load()
        narrate(self.ports, None, EventKind.PHASE, record.message, reason=record.reason, record=record)

    # After a crash or a reboot.

    async def resume(self) -> None:
        """Raises for a record that is not understood, before an operator asks for an update."""
        try:
            await self._resume()
        except AgentError as error:
            if not (self.desired.requested and is_unreadable(error)):
                raise
            self.desired.requested = False
            record = await self.ports.store.set_record_aside(error.reason, str(error))
            text = f"set the record of {record.update_id} aside: {error}"
            narrate(self.ports, None, EventKind.WARNING, text, reason=error.reason, record=record)

    async def _resume(self) -> None:
        record = await idle.with_meanings(self.ports, self._load, await self.ports.store.load())
        decision = resuming.resume(record, self.ports.power.boot_id())
        if decision in (Decision.IDLE, Decision.DEGRADED):
            return
        with contextlib.suppress(AgentError):  # for the status; what is wrong with it is found when it is its turn
            self.desired.report(await self.desired.read())
        update = await rebuild(record, self._load)
        boot_id = self.ports.power.boot_id()
        rebooted = record.boot_id != boot_id
        softly = rebooted and kernel_boot(record.boot_id) == kernel_boot(boot_id)
        how = f"{decision.value}, after a soft reboot" if softly else decision.value
        narrate(self.ports, update, EventKind.RESUMED, how)
        match decision:
            case Decision.START_OVER:
                message = "interrupted before any change; restarting"
                await self.executor.enter(update, abort(INTERRUPTED, message))
            case Decision.VERIFY | Decision.REVERT | Decision.STAGE if rebooted:
                await self._enter_after_boot(update, _AFTER_BOOT[decision])
            case _:
                pass  # the executor goes on from the phase that is in the record
        await self._run(update)

    async def _enter_after_boot(self, update: Update, phase: Phase) -> None:
        now, boot_id = self.ports.clock.now(), self.ports.power.boot_id()
        try:
            update.record = after_boot(update.record, phase, now=now, boot_id=boot_id)
        except IllegalTransition as error:
            await self.executor.stop(update, error)
            return
        await self.ports.store.save(update.record)
        narrate(self.ports, update, EventKind.PHASE)

    # One look.

    async def turn(self) -> float | None:
        """Seconds after which to look again; None: only when something changes."""
        record = self._outage.record = await self.ports.store.load()
        if isinstance(record.leg, Unreleased):
            return await self._release(record)
        self._outage.begin()
        try:
            update = await self._next_update(record)
        except AgentError as error:
            if isinstance(error, InvalidInput | Unreconcilable):
                await self._refuse(record, error)
                return None  # the same input gives the same answer
            if isinstance(error, ServiceUnavailable) and not self._outage.overdue:
                return self._outage.report(error)
            if isinstance(error, Retryable) and self._passing < AGAIN:
                self._passing += 1
                text = f"{error}; looking again"
                narrate(self.ports, None, EventKind.WARNING, text, reason=error.reason, record=record)
                return jittered(AGAIN_AFTER, self._chance())
            await self._refuse(record, error)
            return self._delay()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not become a loop of restarts
            await self._refuse(record, bug(error, "the preparation of an update"))
            return self._delay()
        self._refused, self._passing = "", 0
        self._outage.end()
        if update is None:
            return None
        outcome = await self._run(update)
        if outcome is RunResult.PUT_OFF:
            # The watch reports a file that was written again with the same config: no reason to retry at once.
            if await self.ports.store.request() is None and not await self.desired.superseded(update):
                self._wake.clear()
            return self._delay()
        return 0.0 if outcome is RunResult.ENDED else None

    async def _release(self, record: Record) -> float:
        """Retry to give back what an update holds that has ended. Nothing else begins before that."""
        update = await rebuild(record, self._load)
        await self.executor.enter(update, Transition(Phase.RELEASING, None, record.reason, record.message))
        await self._run(update)
        return self._delay() if update.ended else 0.0

    def _delay(self) -> float:
        return jittered(next(self._delays), self._chance())

    async def _next_update(self, record: Record) -> Update | None:
        self._update_wake.clear()
        self._wanted = None
        desired, request = await self.desired.with_request()
        self._wanted = desired
        current = await self.ports.store.current()
        if interrupted(record) and not (desired and desired.source.digest == record.to_digest != current):
            record = await close_interrupted(self.ports, record, await takeover_by(self.ports, desired))
        unfinished = half_way(record)
        if desired is None:
            if not unfinished:  # where an update stopped half-way, an operator decides what becomes of it
                await idle.discard_unwanted(self.ports, record)
            self.desired.report(None)
            return None
        other = "" if desired.source.digest == current else desired.meaning  # what failed was not this text, then
        if (failed := matching(record.lasting.rejections, desired.source.digest, other)) and request is None:
            idle.check_not_rejected(record, desired, failed)
            self.desired.report(desired)
            return None
        if desired.source.digest == current and not unfinished:
            record = await idle.discard_unwanted(self.ports, record)
            if record.phase is Phase.DEGRADED:  # the refused config is not desired any more
                await idle.rest(self.ports, replace(at_rest(record), to_name=desired.config.name))
            elif record.reason:  # why something else waited or ended says nothing about a host that is as desired
                await idle.rest(self.ports, record)
            if request is not None:
                await self.ports.store.drop_request(request.digest)
            self.desired.report(desired)
            self.desired.requests.unchanged(desired)
            return None
        lasting = lasting_of(record, desired, request)
        try:
            update = await self._prepare(record, desired, current, dirty=unfinished)
        except (InvalidInput, Unreconcilable):
            await self.ports.store.drop_request(desired.source.digest)
            raise
        await self.ports.store.put_config(desired.source)
        await begin_update(self.ports, record, update, lasting)
        self.desired.report(desired)
        for note in update.record.notes:
            narrate(self.ports, update, EventKind.WARNING, note)
        return update

    async def check(self, desired: Desired) -> None:
        """Raises what an update to this config would be refused with. Changes nothing on the host."""
        record = await load_or_half_way(self.ports)
        await self._prepare(record, desired, await self.ports.store.current(), dirty=half_way(record))

    async def _prepare(self, record: Record, desired: Desired, current: str, *, dirty: bool) -> Update:
        digests = (current, record.to_digest, *record.unfinished.split()) if dirty else (current,)
        found = {digest: await idle.load_known(self.ports, self._load, digest) for digest in digests if digest}
        known = [config for config in found.values() if config is not None]
        first = found.get(current) is None
        if not current and (adopted := await self._adopted()) is not None:
            known, first = [adopted, *known], False
            await self.ports.store.put_config(adopted.source)
        return await self._preflight.prepare(desired, known, dirty=dirty, first=first)

    async def _run(self, update: Update) -> RunResult:
        digest = update.digest
        # The end of an update that is already reported is no answer to a newer request for the same config.
        self.desired.requests.running = "" if update.ended else digest
        following = asyncio.create_task(self._follow())
        try:
            while True:
                outcome = await self.executor.run(update)
                if outcome is RunResult.ENDED and update.own is not None and await self.ports.store.current() == digest:
                    await self._renew(update.own)
                if outcome is not RunResult.REBOOTING:
                    return outcome
                # logind said yes; the host goes down under us. If it does not, the executor asks again, a few times.
                await asyncio.sleep(self.policy.reboot_grace)
        finally:
            self.desired.requests.forget(self.desired.requests.running)
            self.desired.requests.running = ""
            self.desired.report_again()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self) -> None:
        """Keeps the status true about what is desired while an update to something else is under way."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            with contextlib.suppress(AgentError):
                self.desired.report(await self.desired.read())

    async def _refuse(self, record: Record, error: AgentError) -> None:
        """The host is as it was, but it is not what is desired: that is Degraded, with the reason."""
        text = full_text(error, 5)
        wanted = self._wanted
        name, digest = (wanted.config.name, wanted.source.digest) if wanted else ("", "")
        if interrupted(record) and digest != record.to_digest:
            record = await close_interrupted(self.ports, record, unusable(error))
        if self._refused != (words := f"{error.reason} {text}"):
            record = await idle.degrade(self.ports, replace(record, to_name=name), error.reason, text)
            self._refused = words  # not before: where the store takes nothing, nothing was reported yet
            if wanted is not None:
                self.desired.report(wanted)
        elif digest not in self.desired.requests:
            return
        if digest:
            self.desired.requests.forget(digest)
            entry = entry_of_request(name, digest, self.ports.clock.now(), UpdateOutcome.REFUSED, error.reason, text)
            code = error.exit_code if error.exit_code in (2, 3, 4) else 1
            finish(self.ports, entry, record.phase, code=code)
