"""The ``Deployments`` port over rpm-ostreed, as it is on hosts from 2022 to 2026.

What a call achieved is read from the deployments: a transaction may succeed without having staged anything, and may
have staged before it failed. What a failed transaction left, and what one left whose end was not seen, is discarded
before anything else is asked, because the daemon checks a deployment only after it has staged it. It is never accepted
as the result of a later request, and never unlocked (``mark``).

``FinalizeDeployment`` is not used anywhere, because it reboots the host; see ``finalization``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from nodeagent.core.config.packages import NOT_IN_EACH_IMAGE
from nodeagent.core.plan.deployment import Deployment, OsTarget, StageProgress, unmet
from nodeagent.errors import AgentError, Refused, Retryable, ServiceUnavailable, Terminal
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.errors import BusUnreachable
from nodeagent.host.rpmostree.boot_entries import BootEntries
from nodeagent.host.rpmostree.credentials import Credentials
from nodeagent.host.rpmostree.failures import SAME_REFS, absent_package, failure, one_line
from nodeagent.host.rpmostree.finalization import Finalization
from nodeagent.host.rpmostree.grub import has_superusers
from nodeagent.host.rpmostree.guards import Guards, Services, native_bootc
from nodeagent.host.rpmostree.ownership import Mark, Own
from nodeagent.host.rpmostree.request import CLEANUP, ROLLBACK, Request, next_request, redeploy_command
from nodeagent.host.rpmostree.session import SERVICE, Local, Session, State, visit
from nodeagent.host.rpmostree.soft_reboot import SoftReboot
from nodeagent.host.rpmostree.staged import StagedState
from nodeagent.host.rpmostree.start import Patience, begin
from nodeagent.host.rpmostree.timing import Timing
from nodeagent.host.rpmostree.transaction import End, Outcome, follow
from nodeagent.host.transient import run_unit

__all__ = ["MIN_FREE", "RpmOstree", "detect"]

MIN_FREE = 2 << 30
"""Bytes in /sysroot below which nothing is staged. An image of RHCOS with its layers shared is about this much new."""

_REQUESTS = 5  # for one target: clean up, image, kernel arguments, and two that a race may cost
_LOST = 2  # transactions that a daemon may take with it when it dies, before that is the answer


async def detect(
    services: Services,
    *,
    make_bus: Callable[[], Bus] = Bus,
    root: Path = Path("/"),
    min_free: int = MIN_FREE,
    timing: Timing | None = None,
) -> RpmOstree | None:
    """None on a host that was not booted from an image. Removes what a killed agent left in /run."""
    ostree = await asyncio.to_thread((root / "run/ostree-booted").exists)
    if not ostree and not await asyncio.to_thread(native_bootc, root):
        return None
    driver = RpmOstree(services, make_bus=make_bus, root=root, min_free=min_free, timing=timing)
    await driver.sweep()
    return driver


class RpmOstree:
    """``services`` is systemd; ``make_bus`` makes connections to the system bus, one for each visit. ``root`` is for
    tests. ``min_free``: bytes that have to be free in /sysroot before anything is staged."""

    def __init__(
        self,
        services: Services,
        *,
        make_bus: Callable[[], Bus] = Bus,
        root: Path = Path("/"),
        min_free: int = MIN_FREE,
        timing: Timing | None = None,
    ) -> None:
        self._services = services
        self._make_bus = make_bus
        self._timing = timing or Timing()
        self._staged = StagedState(root)
        self._entries = BootEntries(root)
        self._credentials = Credentials(root)
        self._mark = Mark(root)
        self._root = root
        self._guards = Guards(services, root, min_free)
        self._soft_reboot = SoftReboot(self._staged, make_bus, root, self._timing)
        self._finalization = Finalization(services, self._staged, make_bus, root, self._timing)

    async def sweep(self) -> None:
        """A leftover that cannot be removed is met again, with its reason, where credentials are provided."""
        with suppress(AgentError):
            await asyncio.to_thread(self._credentials.sweep)

    async def list(self) -> Sequence[Deployment]:
        async with self._visit() as session:
            return (await session.read()).deployments

    async def guard(self, target: OsTarget) -> None:
        async with self._visit() as session:
            await self._guards.check(session, target)

    async def stage(
        self, target: OsTarget, *, credentials: bytes | None, replace: str, tell: Callable[[StageProgress], None]
    ) -> Deployment:
        good = await asyncio.to_thread(self._mark.good)
        own = Own(set(good), set(good))
        async with self._credentials.provided(credentials):
            try:
                staged = await self._stage(target, own, replace, tell)
            except (Terminal, Refused):
                await asyncio.to_thread(self._mark.close, own)
                raise
            # What is left, as a daemon that died, leaves it open: what came of the transaction is not known yet.
        await asyncio.to_thread(self._mark.close, own)
        return staged

    async def unlock(self, deployment: str) -> None:
        if deployment not in await asyncio.to_thread(self._mark.good):
            message = f"{deployment} is not known as the result of a successful transaction of ours"
            raise Refused(message, reason="StagedLost")
        await self._finalization.unlock(deployment)

    async def discard(self) -> None:
        done = await self._until(CLEANUP, lambda state: state.first.booted)
        if not done.first.booted:
            raise Terminal(f"cannot {CLEANUP.doing}: {done.first.id} is still there", reason="DiscardFailed")
        await asyncio.to_thread(self._mark.close, Own())  # the same id may come again, and be somebody else's

    async def rollback(self) -> str:
        """A staged deployment stands in the way and is nobody's to remove but its owner's: ``Refused``
        (``StagedByOther``); ``discard`` first if it is ours."""
        async with self._visit() as session:
            state = await session.read()
        _refuse_staged(state)
        chosen = _previous(state) if state.first.booted else state.first
        if chosen is not None and await self._asks_password(state, chosen):
            return await self._redeploy(chosen)
        done = await self._until(ROLLBACK, _rolled_back)
        if done.first.booted:
            raise Terminal("cannot roll back: the same deployment would boot again", reason="NoRollback")
        return done.first.id

    async def unmerged_soft_reboot(self) -> str:
        return await self._soft_reboot.unmerged()

    async def reset_soft_reboot(self) -> None:
        await self._soft_reboot.reset()

    async def finalize_failure(self) -> str:
        return await self._finalization.failure()

    # -- the way back without a prompt ----------------------------------------------------------------------------

    async def _asks_password(self, state: State, deployment: Deployment) -> bool:
        entry = state.entries.get(deployment.id)
        return entry is not None and entry.restricted and await asyncio.to_thread(has_superusers, self._root)

    async def _redeploy(self, old: Deployment) -> str:
        """Deploys the tree of ``old`` once more, which is in the repository, with its origin and kernel arguments. The
        entry of a new deployment has no list of users. Raises ``Terminal`` (``RollbackAsksPassword``)."""
        why = ""
        try:
            async with self._make_bus() as bus:
                await run_unit(bus, redeploy_command(old), "Deploy the old tree for nodeagent", self._timing.redeploy)
        except AgentError as error:
            why = f": {error.message}"
        async with self._visit() as session:
            state = await session.read()
        first = state.first
        if first.checksum != old.checksum or first.booted or await self._asks_password(state, first):
            message = f"GRUB asks for a password before it boots {old.id}, and it cannot be deployed again{why}"
            raise Terminal(message, reason="RollbackAsksPassword")
        return first.id

    # -- parts ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _visit(self) -> AsyncIterator[Session]:
        await self._guards.refuse_bootc()
        try:
            async with visit(self._make_bus, self._timing, self._local, self._start) as session:
                yield session
        except BusUnreachable as error:
            # The bus says the same of a daemon that is not installed and of one that does not start.
            if error.reason == "ServiceUnknown" and (absent := await self._guards.absent()):
                raise absent from error
            raise

    def _local(self) -> Local:
        return Local(self._entries.read(), self._staged.lock())

    async def _start(self) -> None:
        # Of a daemon that is not there, or does not come up, the call that follows brings the reason.
        with suppress(AgentError):
            await self._services.start(SERVICE, self._timing.call)

    async def _stage(
        self, target: OsTarget, own: Own, replace: str, tell: Callable[[StageProgress], None]
    ) -> Deployment:
        """One request after the other, until there is nothing left to ask for. ``own`` gets the ids of what comes."""
        patience = Patience(self._timing, tell)
        last: Request | None = None
        absent: set[str] = set()
        asked = lost = 0
        while asked < _REQUESTS + len(absent):
            async with self._visit() as session:
                state = await session.read()
                await self._refuse_foreign(state, own, replace)
                if (staged := state.staged) and staged.id not in own.good:
                    await self._drop(session, state, staged, own, patience)
                    asked += 1
                    continue
                if staged and not unmet(target, staged):
                    return await self._locked(session, staged)
                request = next_request(target, state.booted, state.first, absent)
                if request is None or request == last:
                    raise _incomplete(target, state)
                others = {d.id for d in state.deployments} - own.ours
                await asyncio.to_thread(self._mark.open, target, state.booted, others, own)
                outcome = await self._run(session, state, request, patience, tell)
                if outcome is None:
                    continue
                asked += 1
                if outcome.end is End.FINISHED:
                    await self._settle(session, state, own, good=outcome.success)
                if outcome.end is End.LOST:
                    lost += 1
                    if lost > _LOST:
                        message = f"rpm-ostree ended in the middle, {lost} times: cannot {request.doing}"
                        raise Retryable(message, reason="TransactionLost")
                elif outcome.success:
                    last = request
                elif (package := absent_package(outcome.text)) in NOT_IN_EACH_IMAGE - absent:
                    absent.add(package)
                elif SAME_REFS not in outcome.text:
                    raise await self._rejected(session, failure(outcome.text, request.doing), own, patience)
        raise Terminal(f"no end in sight after {_REQUESTS} transactions: cannot stage", reason="StageIncomplete")

    async def _refuse_foreign(self, state: State, own: Own, replace: str) -> None:
        """The daemon would make the new deployment from it, and throw it away. What is staged was staged in this boot,
        so the note knows; what was finalized may be older than the note."""
        first = state.first
        if first.booted or (first.id == replace and not first.staged):
            return
        if first.staged and await asyncio.to_thread(self._mark.owns, first):
            own.ours.add(first.id)
            return
        what = first.version or first.digest or first.checksum
        message = f"{first.id} ({what}) is {'staged' if first.staged else 'what boots next'}, and not by us"
        raise Refused(message, reason="StagedByOther", hint="find out whose it is, or remove it: rpm-ostree cleanup -p")

    async def _settle(self, session: Session, before: State, own: Own, *, good: bool) -> None:
        """After the end of a transaction: notes what came of it. Where that cannot be read, the note stays open, and
        what is staged counts as the result of a transaction whose end was not seen."""
        after = await session.read()
        for deployment in after.deployments:
            new = deployment.id not in {d.id for d in before.deployments}
            if new and deployment.staged and await asyncio.to_thread(self._mark.owns, deployment):
                own.ours.add(deployment.id)
                if good:
                    own.good.add(deployment.id)
        for gone in own.ours - {d.id for d in after.deployments}:
            own.forget(gone)
        await asyncio.to_thread(self._mark.close, own)

    async def _rejected(self, session: Session, error: AgentError, own: Own, patience: Patience) -> AgentError:
        """``error``, after what the failed transaction left was discarded; it says so where that failed too."""
        try:
            state = await session.read()
            if (staged := state.staged) and staged.id in own.ours - own.good:
                await self._drop(session, state, staged, own, patience)
        except AgentError as problem:
            message = f"{error.message}; what it left is still there, locked: {problem.message}"
            return type(error)(message, reason=error.reason)
        return error

    async def _drop(self, session: Session, state: State, staged: Deployment, own: Own, patience: Patience) -> None:
        """Discards a staged deployment of ours that must not boot. Raises ``Retryable`` (``DiscardFailed``) if it is
        still there. Another transaction in the way was waited for when it returns."""
        if staged.locked is not True:
            await asyncio.to_thread(self._staged.set_legacy)
        outcome = await self._run(session, state, CLEANUP, patience, lambda _progress: None)
        if outcome is None:
            return
        if any(d.id == staged.id for d in (await session.read()).deployments):
            why = one_line(outcome.text) or "rpm-ostree did not say why"
            raise Retryable(f"cannot {CLEANUP.doing}, {staged.id}: {why}", reason="DiscardFailed")
        own.forget(staged.id)
        await asyncio.to_thread(self._mark.close, own)

    async def _locked(self, session: Session, staged: Deployment) -> Deployment:
        if staged.locked is not False:
            return staged
        await asyncio.to_thread(self._staged.set_legacy)
        return next((d for d in (await session.read()).deployments if d.id == staged.id), staged)

    async def _until(self, request: Request, done: Callable[[State], bool]) -> State:
        """Asks once, if it is not so already. The state afterwards: it decides, also if the daemon was lost. Raises
        ``ServiceUnavailable`` if a daemon that was lost did not do it."""
        patience = Patience(self._timing, lambda _progress: None)
        async with self._visit() as session:
            while not done(state := await session.read()):
                outcome = await self._run(session, state, request, patience, lambda _progress: None)
                if outcome is None:
                    continue
                if outcome.end is End.FINISHED and not outcome.success:
                    raise failure(outcome.text, request.doing)
                state = await session.read()
                if outcome.end is End.LOST and not done(state):
                    message = f"rpm-ostree ended in the middle: cannot {request.doing}"
                    raise ServiceUnavailable(message, reason="TransactionLost", service="rpm-ostreed")
                return state
            return state

    async def _run(
        self,
        session: Session,
        state: State,
        request: Request,
        patience: Patience,
        tell: Callable[[StageProgress], None],
    ) -> Outcome | None:
        """None if somebody else's transaction was in the way, and we waited."""
        if not (address := await begin(session, state.os_path, request, patience)):
            return None
        outcome = await follow(address, self._timing, tell)
        if not outcome.stalled or outcome.success:
            return outcome
        message = f"rpm-ostree gave no sign for {self._timing.stall:g} s: cannot {request.doing}"
        if outcome.end is End.STUCK:
            message += "; it did not answer to being cancelled, so it was restarted"
            try:
                await self._services.restart(SERVICE, self._timing.restart)
            except AgentError as error:
                message += f", which failed: {error.message}"
        raise Retryable(message, reason="TransactionStuck")


def _refuse_staged(state: State) -> None:
    if state.staged is not None:
        message = f"cannot roll back while {state.staged.id} is staged"
        raise Refused(message, reason="StagedByOther", hint="remove it first: rpm-ostree cleanup -p")


def _rolled_back(state: State) -> bool:
    _refuse_staged(state)
    return not state.first.booted


def _previous(state: State) -> Deployment | None:
    """The one that the daemon's Rollback puts first: of the same OS, the next after the booted one."""
    after = state.deployments[state.deployments.index(state.booted) + 1 :]
    return next((d for d in after if d.osname == state.booted.osname), None)


def _incomplete(target: OsTarget, state: State) -> Terminal:
    wrong = ", ".join(f"{domain} {what}" for domain, what in unmet(target, state.first).items())
    message = f"rpm-ostree says that it is done, and yet of what boots next: {wrong or 'nothing is staged'}"
    return Terminal(message, reason="StageIncomplete")
