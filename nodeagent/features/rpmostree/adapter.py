# SPDX-License-Identifier: Apache-2.0
"""The ``Deployments`` port over rpm-ostreed, for the versions on hosts from 2022 to 2026.

The deployments show the result of a call: a transaction may succeed without staging anything, and may stage before it
fails. The result of a failed or unobserved transaction is discarded before the next request, because the daemon checks
a deployment only after staging it. It is never accepted as the result of a later request, and never unlocked
(``host.ostree.staged``). ``FinalizeDeployment`` is never used, because it reboots the host; see
``host.ostree.finalization``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.packages import NOT_IN_EACH_IMAGE
from nodeagent.core.plan.deployment import Deployment, OsTarget, StageProgress, unmet
from nodeagent.core.plan.os_changes import OsChanges
from nodeagent.errors import AgentError, Refused, Retryable, ServiceUnavailable, Terminal
from nodeagent.features.rpmostree import client, extensions
from nodeagent.features.rpmostree.client import SERVICE, BusyWait, Local, Session, SysrootState, start_transaction
from nodeagent.features.rpmostree.extensions import ExtensionsRepository
from nodeagent.features.rpmostree.failures import SAME_REFS, absent_package, failure, incomplete, unknown_packages
from nodeagent.features.rpmostree.guards import Guards
from nodeagent.features.rpmostree.reasons import RpmOstreeReason
from nodeagent.features.rpmostree.request import CLEANUP, ROLLBACK, Request, next_request
from nodeagent.features.rpmostree.transaction import End, Timing, TransactionResult, follow
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.errors import BusUnreachable
from nodeagent.host.ostree.back_end import LibostreeBackEnd
from nodeagent.host.ostree.failures import one_line
from nodeagent.host.ostree.programs import Services
from nodeagent.host.ostree.staged import OwnDeployments
from nodeagent.reasons import Reason
from nodeagent.update.ports.system import Preparation, StagingUnit

# Requests for one target: cleanup, image, kernel arguments, and two for races.
_REQUESTS = 5
# Transactions that may be lost because the daemon ended.
_LOST = 2


class RpmOstree(LibostreeBackEnd):
    """Deployments through rpm-ostreed.

    ``services`` is systemd. ``make_bus`` makes a connection to the system bus for each session. ``root`` is for tests.
    ``min_free`` is how many bytes must be free in /sysroot before staging.
    """

    removal = "rpm-ostree cleanup -p"

    def __init__(
        self,
        services: Services,
        *,
        make_bus: Callable[[], Bus] = Bus,
        root: Path = Path("/"),
        min_free: int,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing()
        super().__init__(services, make_bus, root, self._timing)
        self._extensions = ExtensionsRepository(services, root)
        self._guards = Guards(services, root, min_free)

    @property
    def staging_unit(self) -> StagingUnit:
        return StagingUnit(SERVICE, partial(client.works_for_another, self._make_bus))

    def use(self, *, min_free: int) -> None:
        self._guards.space.min_free = min_free

    async def list(self) -> Sequence[Deployment]:
        deployments = (await self._state()).deployments
        if await self._soft_reboot.is_outdated(deployments):
            await self._services.restart(SERVICE, self._timing.restart)
            return (await self._state()).deployments
        return deployments

    async def _state(self) -> SysrootState:
        async with self._session() as session:
            return await session.read()

    async def check_stageable(self, target: OsTarget) -> None:
        async with self._session() as session:
            await self._guards.check(session, target)

    async def preparation(self, target: OsTarget) -> Preparation | None:
        image = target.extensions_image
        if image is None or not await self._needs_packages(target):
            return None
        fetch = partial(self._extensions.fetch, image)
        return Preparation("Fetching the extensions image", StagingUnit(extensions.UNIT), fetch)

    async def _needs_packages(self, target: OsTarget) -> bool:
        state = await self._state()
        first = state.first if not state.first.booted and await self._is_good(state.first.id) else state.booted
        request = next_request(target, state.booted, first)
        # A change of kernel arguments alone keeps the packages as they are.
        return request is not None and request.member == "UpdateDeployment"

    async def stage(
        self, target: OsTarget, *, credentials: bytes | None, replace: str, on_progress: Callable[[StageProgress], None]
    ) -> Deployment:
        # Only results of successful transactions count as owned. A killed agent knows them from its record.
        good = await asyncio.to_thread(self._ownership.good)
        own = OwnDeployments(set(good), set(good))
        packages = self._extensions.repository(target.extensions_image)
        async with self._credentials.provided(credentials), packages:
            try:
                staged = await self._stage(target, own, replace, on_progress)
                await self._check_staged(staged, own, on_progress)
            except (Terminal, Refused):
                # The result is final, so the record can be closed.
                await asyncio.to_thread(self._ownership.close, own)
                raise
            # Other errors, such as a daemon that ended, leave the record open: the result is not known yet.
        await asyncio.to_thread(self._ownership.close, own)
        # What is left is removed at the next start.
        with suppress(AgentError):
            await asyncio.to_thread(self._extensions.sweep)
        return staged

    async def _check_staged(
        self, staged: Deployment, own: OwnDeployments, on_progress: Callable[[StageProgress], None]
    ) -> None:
        try:
            await self._refuse_unserved(staged.id)
            await self._guards.check_staged(staged.id)
        except Terminal as error:
            own.good.discard(staged.id)
            async with self._session() as session:
                raise await self._rejected(session, error, own, BusyWait(self._timing, on_progress)) from None

    async def discard(self) -> None:
        done = await self._until(CLEANUP, lambda state: state.first.booted)
        if not done.first.booted:
            raise Terminal(f"cannot {CLEANUP.doing}: {done.first.id} still exists", reason=Reason.DISCARD_FAILED)
        # A deployment of another client may get the same id.
        await asyncio.to_thread(self._ownership.close, OwnDeployments())

    async def rollback(self) -> str:
        """Make the previous deployment the default and return its id.

        Raises ``Refused`` (``StagedByOther``) if a deployment is staged. The caller discards an owned one first.
        """
        state = await self._state()
        state.refuse_staged()
        # The order may be swapped already, by an attempt before a restart.
        chosen = state.previous if state.first.booted else state.first
        if chosen is not None and await self._redeployment.needed(state, chosen):
            return await self._redeployment.deploy(chosen, self._state)
        done = await self._until(ROLLBACK, SysrootState.rolled_back)
        if done.first.booted:
            raise Terminal("cannot roll back: the same deployment would boot again", reason=Reason.NO_ROLLBACK)
        return done.first.id

    async def changes(self, staged: str, managed: Mapping[str, FileTreeEntry] | None) -> OsChanges:
        async with self._session() as session:
            return await session.compare(self._root, staged, managed)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        await self._soft_reboot.completed()
        try:
            async with self._make_bus() as bus:
                yield Session(bus, self._timing, self._local, self._start)
        except BusUnreachable as error:
            # The bus reports the same error for a daemon that is not installed and for one that does not start.
            if error.reason == Reason.SERVICE_UNKNOWN and (absent := await self._guards.absent()):
                raise absent from error
            raise

    def _local(self) -> Local:
        return Local(self._entries.read(), self._staged.lock())

    async def _start(self) -> None:
        # If the daemon does not start, the next call returns the reason.
        with suppress(AgentError):
            await self._services.start(SERVICE, self._timing.call)

    async def _stage(
        self, target: OsTarget, own: OwnDeployments, replace: str, on_progress: Callable[[StageProgress], None]
    ) -> Deployment:
        """Send requests until the target is staged. ``own`` collects the ids of the new deployments."""
        busy = BusyWait(self._timing, on_progress)
        last: Request | None = None
        absent: set[str] = set()
        sent = lost = 0
        # Each round reads the state again, because other clients may have changed it.
        while sent < _REQUESTS + len(absent):
            async with self._session() as session:
                state = await session.read()
                # rpm-ostree replaces a staged deployment without a question, so the owner is checked before each
                # request.
                await self._refuse_foreign(state.first, own, replace)
                if (staged := state.staged) and staged.id not in own.good:
                    await self._drop(session, state, staged, own, busy)
                    sent += 1
                    continue
                if staged and not unmet(target, staged):
                    return await self._locked(session, staged)
                request = next_request(target, state.booted, state.first, absent)
                # The same request again would have the same result.
                if request is None or request == last:
                    raise incomplete(target, state.first)
                # The record is opened before the request. After a kill, it identifies the new deployment.
                others = {d.id for d in state.deployments} - own.ours
                await asyncio.to_thread(self._ownership.open, target, state.booted, others, own)
                outcome = await self._run(session, state, request, busy, on_progress)
                if outcome is None:
                    continue
                sent += 1
                if outcome.end is End.FINISHED:
                    await self._settle(session, state, own, good=outcome.success)
                if outcome.end is End.LOST:
                    lost += 1
                    # A daemon that ends each time has a permanent fault.
                    if lost > _LOST:
                        message = f"rpm-ostree ended during the transaction, {lost} times: cannot {request.doing}"
                        raise Retryable(message, reason=RpmOstreeReason.TRANSACTION_LOST)
                elif outcome.success:
                    last = request
                elif (package := absent_package(outcome.text)) in NOT_IN_EACH_IMAGE - absent:
                    # A package that the new image does not have need not be removed from it.
                    absent.add(package)
                elif missing := unknown_packages(outcome.text) & target.optional_packages - absent:
                    absent |= missing
                elif SAME_REFS not in outcome.text:
                    raise await self._rejected(session, failure(outcome.text, request.doing), own, busy)
        raise Terminal(f"cannot stage: not complete after {_REQUESTS} transactions", reason=Reason.STAGE_INCOMPLETE)

    async def _settle(self, session: Session, before: SysrootState, own: OwnDeployments, *, good: bool) -> None:
        """Record the result of an ended transaction. If it cannot be read, the record stays open."""
        after = await session.read()
        for deployment in after.deployments:
            new = deployment.id not in {d.id for d in before.deployments}
            if new and deployment.staged and await asyncio.to_thread(self._ownership.owns, deployment):
                own.ours.add(deployment.id)
                if good:
                    own.good.add(deployment.id)
        for gone in own.ours - {d.id for d in after.deployments}:
            own.forget(gone)
        await asyncio.to_thread(self._ownership.close, own)

    async def _rejected(self, session: Session, error: AgentError, own: OwnDeployments, busy: BusyWait) -> AgentError:
        """Discard the result of a failed transaction and return ``error``, extended if that failed too."""
        try:
            state = await session.read()
            if (staged := state.staged) and staged.id in own.ours - own.good:
                await self._drop(session, state, staged, own, busy)
        except AgentError as problem:
            message = f"{error.message}; its locked result was not removed: {problem.message}"
            return type(error)(message, reason=error.reason)
        return error

    async def _drop(
        self, session: Session, state: SysrootState, staged: Deployment, own: OwnDeployments, busy: BusyWait
    ) -> None:
        """Discard an owned staged deployment that must not boot.

        Raises ``Retryable`` (``DiscardFailed``) if it remains. May return after only waiting for another transaction.
        """
        # An old rpm-ostree stages without a lock. The lock file of ostree keeps the result from being finalized.
        if staged.locked is not True:
            await asyncio.to_thread(self._staged.set_legacy)
        outcome = await self._run(session, state, CLEANUP, busy, lambda _progress: None)
        if outcome is None:
            return
        if any(d.id == staged.id for d in (await session.read()).deployments):
            cause = one_line(outcome.text) or "rpm-ostree gave no reason"
            raise Retryable(f"cannot {CLEANUP.doing}, {staged.id}: {cause}", reason=Reason.DISCARD_FAILED)
        own.forget(staged.id)
        await asyncio.to_thread(self._ownership.close, own)

    async def _locked(self, session: Session, staged: Deployment) -> Deployment:
        if staged.locked is not False:
            return staged
        await asyncio.to_thread(self._staged.set_legacy)
        return next((d for d in (await session.read()).deployments if d.id == staged.id), staged)

    async def _until(self, request: Request, done: Callable[[SysrootState], bool]) -> SysrootState:
        """Send a request once, unless ``done`` already holds, and return the state afterwards.

        Raises ``ServiceUnavailable`` if the daemon ended before it was done.
        """
        busy = BusyWait(self._timing, lambda _progress: None)
        async with self._session() as session:
            while not done(state := await session.read()):
                outcome = await self._run(session, state, request, busy, lambda _progress: None)
                if outcome is None:
                    continue
                if outcome.end is End.FINISHED and not outcome.success:
                    raise failure(outcome.text, request.doing)
                state = await session.read()
                if outcome.end is End.LOST and not done(state):
                    message = f"rpm-ostree ended during the transaction: cannot {request.doing}"
                    raise ServiceUnavailable(message, reason=RpmOstreeReason.TRANSACTION_LOST, service="rpm-ostreed")
                return state
            return state

    async def _run(
        self,
        session: Session,
        state: SysrootState,
        request: Request,
        busy: BusyWait,
        on_progress: Callable[[StageProgress], None],
    ) -> TransactionResult | None:
        """Run one transaction. Returns None after waiting for the transaction of another client."""
        if not (address := await start_transaction(session, state.os_path, request, busy)):
            return None
        outcome = await follow(address, self._timing, on_progress)
        # A transaction that was successful after all needs no restart of the daemon.
        if not outcome.stalled or outcome.success:
            return outcome
        message = f"no signal from rpm-ostree for {self._timing.stall:g} s: cannot {request.doing}"
        if outcome.end is End.STUCK:
            message += "; it could not be cancelled, so it was restarted"
            try:
                await self._services.restart(SERVICE, self._timing.restart)
            except AgentError as error:
                message += f", which failed: {error.message}"
        raise Retryable(message, reason=RpmOstreeReason.TRANSACTION_STUCK)
