# SPDX-License-Identifier: Apache-2.0
"""Take the host down: wait for block inhibitors, warn the users, check the lease again, and call logind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from nodeagent.core.once import Once
from nodeagent.core.plan.deployment import OsTarget, unmet
from nodeagent.errors import AgentError, NoSoftReboot, Refused, ServiceUnavailable
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason, reason_of
from nodeagent.update.decide import MAX_REBOOT_TRIES
from nodeagent.update.history.trail_fold import leaving
from nodeagent.update.ports.events import UpdateWaiting, Warned
from nodeagent.update.ports.system import ShutdownKind
from nodeagent.update.record import Record
from nodeagent.update.run import Ports, Run, UpdatePolicy, moment, time_of
from nodeagent.update.stages.admission import check_next_boot, is_withdrawn, recheck_before_reboot
from nodeagent.update.stages.after_boot import back_to_old, stage_again
from nodeagent.update.stages.compare import VerifyFailed
from nodeagent.update.stages.coordination import LOST, Coordination
from nodeagent.update.stages.failure import degraded, failed
from nodeagent.update.stages.fallback import make_full, wants_soft
from nodeagent.update.stages.os_deployments import HostDeployments
from nodeagent.update.states import Apply, Fallback, Transition
from nodeagent.update.steps.act import clear_before_reboot
from nodeagent.update.wait import NotNow, retry_on_refusal

# Seconds for which a check before a reboot counts. Users who are warned have longer, so it is repeated then.
STILL_VALID: Final = 1.0

# Seconds between two checks, each of which is one request to the API server.
PERIOD: Final = 10.0


@dataclass(frozen=True, slots=True)
class Shutdown:
    """A reboot or a power-off of ``operation``.

    ``permit`` runs before users are warned, ``confirm`` right before logind is called. After ``confirm``, a lost lease
    stops nothing; ``finish`` runs then.
    """

    kind: ShutdownKind
    operation: str
    permit: Callable[[], Awaitable[None]]
    confirm: Callable[[], Awaitable[None]]
    finish: Callable[[], Awaitable[None]] | None = None


async def go_down(
    ports: Ports,
    policy: UpdatePolicy,
    shutdown: Shutdown,
    purpose: str,
    *,
    report: Callable[[type[Warned | UpdateWaiting], str, AnyReason], None],
    direct: bool,
) -> None:
    """Return when logind accepted the shutdown; with ``direct``, when systemd did, because logind does not answer.

    Raises ``Refused``: ``kind.blocked`` if an inhibitor blocks it for longer than the settings allow, ``LeaseLost`` as
    soon as the lease is lost; and what ``permit`` and ``confirm`` raise.
    """
    committed = asyncio.Event()

    async def confirm() -> None:
        await shutdown.confirm()
        # From here on the reboot is certain, so a lost lease does not stop it any more.
        committed.set()
        if shutdown.finish is not None:
            await shutdown.finish()

    # A lease that is lost during the wait ends it: another holder may rely on the running node.
    async with while_held(ports.coordination, shutdown.operation, committed):
        # Without logind no program reports inhibitors.
        force = direct or await _wait_for_inhibitors(ports, policy, shutdown, report)
        # The checks are made before users are warned, and again before the call, because the warning takes minutes.
        await shutdown.permit()
        warn = policy.warn_users

        def warned() -> None:
            at = time_of(ports, ports.clock.monotonic() + warn)
            report(
                UpdateWaiting, f"logged-in users are warned; the {shutdown.kind} follows at {at}", Reason.USERS_WARNED
            )

        await ports.power.shut_down(
            shutdown.kind,
            f"nodeagent: {purpose}",
            warn=warn,
            force=force,
            confirm=confirm,
            warned=warned,
            direct=direct,
        )


async def do(run: Run) -> Transition | None:
    """Do the work of the phase Rebooting: return None when the host is going down, or where to go.

    Raise ``NotNow`` and ``ServiceUnavailable`` where the same is to be tried later. The boot id was saved on entering
    the phase, so the next start knows whether the host rebooted.
    """
    # Without a limit, a host that cannot reboot would request reboots without end.
    if run.record.reboot_requests >= MAX_REBOOT_TRIES:
        return degraded(run, f"requested {MAX_REBOOT_TRIES} reboots without effect", Reason.REBOOT_FAILED)
    # The agent may have been killed while an inhibitor delays the reboot that logind accepted. ``overdue`` means that
    # logind does not answer.
    if run.record.reboot_requests and not run.overdue and await run.ports.power.going_down():
        await _accepted(run)
        return None
    if wants_soft(run) and run.record.reboot_requests:
        # It was accepted once, and the services still run.
        await make_full(run, "it was accepted, and did not take place", Reason.SOFT_REBOOT_FAILED)
    run.update.reboot_accepted = run.update.committed = False
    # The marks belong to an earlier request. They must not describe the boot that ends now.
    if run.record.os.clean_shutdown_boot_id or run.record.reboot_called:
        run.update.change_os(clean_shutdown_boot_id="")
        run.update.mark(reboot_called=False)
        await run.save()
    try:
        await _reboot_of_its_kind(run)
    except NotNow as error:
        if isinstance(run.record.leg, Fallback) and run.update.cancelled is None:
            # A revert needs no reboot, so there is no reason to stay half-way.
            return await failed(run, error.message, error.reason, curable=False)
        raise
    except ServiceUnavailable:
        raise
    except AgentError as error:
        # Only a lost staging has a way forward here: the deployment is staged again.
        if error.reason != Reason.STAGED_LOST or not isinstance(run.record.leg, Apply):
            return degraded(run, str(error), error.reason)
        try:
            return stage_again(run, str(error))
        except VerifyFailed as lost:
            return await failed(run, str(lost), lost.reason, curable=False)
    await _accepted(run)
    return None


async def undo(run: Run) -> Transition | None:
    """Return None if the deployment from before the update is booted, otherwise a reboot into it.

    Each deployment has its own /etc, so the old one must be booted before its files are restored.
    """
    if run.ports.os is None or run.update.target is None:
        return None
    return await back_to_old(run, run.ports.os)


async def _accepted(run: Run) -> None:
    """The host goes down."""
    run.update.reboot_accepted = run.update.committed = True
    # Only a reboot that was accepted counts: a logind that does not answer is no host that cannot reboot.
    trail = leaving(run.record.trail, moment(run.ports))
    run.update.mark(reboot_requests=run.record.reboot_requests + 1, trail=trail)
    # A store that takes nothing is no reason to revert.
    with suppress(AgentError):
        await run.save()


async def _reboot_of_its_kind(run: Run) -> None:
    """Reboot the host; fully if a soft reboot is not possible."""
    soft = wants_soft(run)
    try:
        await _reboot(run, direct=run.overdue, soft=soft)
    # Found right before the request, or while it is prepared: users were warned, and the reboot is still due.
    except NoSoftReboot as error:
        await make_full(run, error.message, run.ports.reboots.reason(error))
        await _reboot(run, direct=run.overdue, soft=False)


async def _reboot(run: Run, *, direct: bool, soft: bool) -> None:
    """Reboot the host, as ``go_down``.

    Raises also ``StagedLost`` if the staged deployment is gone, ``NoSoftReboot`` for a soft one, and
    ``LockedSoftReboot`` if a soft reboot into a locked deployment is prepared and cannot be cleared.
    """
    ports, update = run.ports, run.update
    allowed, prepared = float("-inf"), False

    def report(kind: type[Warned | UpdateWaiting], message: str, reason: AnyReason) -> None:
        run.narrate(kind, message, reason=reason)

    async def permit() -> None:
        nonlocal allowed
        # The check costs several requests, and permit runs twice in quick succession without a warning.
        if ports.clock.monotonic() > allowed + STILL_VALID:
            # The guards come first: they may take minutes, and the lease must last from now.
            with retry_on_refusal():
                for guard in ports.guards:
                    await guard.permit_reboot(run)
            await check_next_boot(run)
            await recheck_before_reboot(run)
            allowed = ports.clock.monotonic()

    async def confirm() -> None:
        await permit()
        # A soft reboot would start the locked deployment without the merge of /etc.
        if ports.os is not None and (deployment := await ports.os.port.unmerged_soft_reboot()):
            message = f"{deployment} is locked and prepared for a soft reboot, which is cleared before the reboot"
            run.narrate(Warned, message, reason=Reason.LOCKED_SOFT_REBOOT)
            await ports.os.port.reset_soft_reboot()
        if soft:
            # It may have become impossible while users were warned, and it may start what another program prepared.
            await ports.reboots.check(run)
        # The one place that decides between a cancellation and the reboot. There is no other task in between.
        if is_withdrawn(ports, run.record):
            raise NotNow("the request for the reboot was cancelled", reason=Reason.CANCELLED)
        if update.cancelled is not None and not run.record.reverting:
            raise NotNow(update.cancelled.message, reason=reason_of(update.cancelled.reason))
        update.committed = True

    async def finish() -> None:
        """Stop the units whose state is removed, and unlock the staged deployment, as late as possible: no other reboot
        finalizes unverified files."""
        nonlocal prepared
        # An inhibitor may block for an hour, and the kubelet must not be down for that time.
        if not soft:
            await clear_before_reboot(run)
        target, os = update.target, ports.os
        if os is not None and target is not None and not run.record.reverting:
            await _unlock_for(run, os, soft=soft, due=await _is_due(run, os, target))
        if soft:
            # A preparation that fails leads to a full reboot, which may wait for inhibitors again.
            await clear_before_reboot(run)
        # Saved before the call, whose answer may be lost. For the history only, so a reboot does not depend on it.
        update.mark(reboot_called=True)
        with suppress(AgentError):
            await run.save()
        prepared = True

    operation, purpose = run.record.operation, _purpose(run.record)
    kind = ShutdownKind.SOFT_REBOOT if soft else ShutdownKind.REBOOT
    shutdown = Shutdown(kind, operation, permit, confirm, finish)
    try:
        await go_down(ports, run.policy, shutdown, purpose, report=report, direct=direct)
    except asyncio.CancelledError:
        # The process is stopped while it waits for the answer: systemd often stops it before logind has answered.
        update.reboot_accepted = update.committed = prepared
        raise
    except BaseException:
        update.committed = False
        raise


def _purpose(record: Record) -> str:
    if record.reboot is not None:
        return record.reboot.words
    return record.fallback or f"applying {record.to_name}"


async def _is_due(run: Run, os: HostDeployments, target: OsTarget) -> bool:
    """Return whether the staged deployment is to be unlocked."""
    try:
        return bool(unmet(target, await os.booted()))
    except AgentError:
        # No ostree command works after a soft reboot into a deployment that was not finalized, until a full reboot.
        if isinstance(run.record.leg, Apply) and run.record.leg.soft_failed:
            return False
        raise


async def _unlock_for(run: Run, os: HostDeployments, *, soft: bool, due: bool) -> None:
    """Unlock the staged deployment if that is ``due``, and prepare what a reboot of this kind needs besides."""
    if not soft:
        for guard in run.ports.guards:
            await guard.before_new_os(run)
    if not due:
        return
    try:
        await _unlock(os, run.record.os.staged)
    except AgentError:
        # It does not boot, and nothing may be done for the boot of another one.
        with suppress(AgentError):
            await os.end_new_os()
        raise
    if soft:
        # A locked deployment would start unmerged, so it is unlocked first.
        await os.port.prepare_soft_reboot(run.record.os.staged)


async def _unlock(os: HostDeployments, deployment: str) -> None:
    """Unlock a deployment, unless it boots next without that: a soft reboot finalizes it as any shutdown does."""
    try:
        await os.unlock(deployment)
    except Refused as error:
        # The deployment may be unlocked already, by an attempt that a kill interrupted.
        first = next(iter(await os.list()), None)
        if error.reason != Reason.STAGED_LOST or first is None or first.id != deployment or first.staged:
            raise


async def _wait_for_inhibitors(
    ports: Ports,
    policy: UpdatePolicy,
    shutdown: Shutdown,
    report: Callable[[type[Warned | UpdateWaiting], str, AnyReason], None],
) -> bool:
    """Return True if inhibitors are left that the settings override. Raises ``Refused`` if they do not."""
    started = ports.clock.monotonic()
    reported = Once[str]()
    while blockers := await ports.power.blockers():
        who = "; ".join(f"{b.who} ({b.process}): {b.why}" for b in blockers)
        waited = ports.clock.monotonic() - started
        # A zero wait overrides at once, which the settings allow.
        if waited >= policy.inhibitor_wait:
            if not policy.inhibitor_override:
                raise Refused(f"the {shutdown.kind} is blocked by {who}", reason=shutdown.kind.blocked)
            report(Warned, f"overriding for the {shutdown.kind}: {who}", shutdown.kind.blocked)
            return True
        # Each change of the blockers is reported once, not each poll.
        if reported.is_new(who):
            until = time_of(ports, started + policy.inhibitor_wait)
            then = "it is overridden" if policy.inhibitor_override else f"the {shutdown.kind} is given up"
            report(
                UpdateWaiting, f"the {shutdown.kind} waits until {until} for {who}; then {then}", shutdown.kind.blocked
            )
        await asyncio.sleep(min(policy.inhibitor_retry, max(0.05, policy.inhibitor_wait - waited)))
    return False


@asynccontextmanager
async def while_held(coordination: Coordination, operation: str, committed: asyncio.Event) -> AsyncIterator[None]:
    """Cancels the block if the lease is lost before ``committed`` is set, and raises ``Refused`` (``LeaseLost``) then.

    A lease that cannot be checked is not lost: the block checks it before it commits itself.
    """
    lost: AgentError | None = None
    block = asyncio.current_task()
    assert block is not None

    async def watch() -> None:
        nonlocal lost
        while not committed.is_set():
            await asyncio.sleep(PERIOD)
            try:
                await coordination.lease.check(operation, offline=True)
            except AgentError as error:
                if error.reason in LOST and not committed.is_set():
                    lost = error
                    block.cancel()
                    return

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        # A caller cancelled the task as well.
        if lost is None or block.uncancel() > 0:
            raise
        raise lost from None
    finally:
        watcher.cancel()
