# SPDX-License-Identifier: Apache-2.0
"""Decide when an update may disrupt this node, and how long it waits for that.

A refusal becomes ``NotNow``: the machine waits and tries again. A lease or a slot that was taken away (``LOST``) ends
the update instead.

Before the first write, every peer must answer. Afterwards the update continues without an answer while its lease lasts,
because a node that is half-way between two configs is worse; only a reboot waits. A revert waits for no peer that does
not answer.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Final

from nodeagent.core.plan.change import ETCD_UNIT
from nodeagent.errors import AgentError, Refused, Retryable, Unreachable
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import Warned
from nodeagent.update.record import Record, is_booted_since
from nodeagent.update.run import HOLDER, Ports, Run, Update
from nodeagent.update.stages.coordination import EXPIRED, Operation
from nodeagent.update.wait import NotNow, retry_on_outage, retry_on_refusal

# Seconds that a lease must last before a step that is not interrupted.
NEED: Final = 120.0

# Seconds for which a check counts within a phase. The longer one follows an attempt without an answer.
RECENT: Final = 5.0
UNREACHED: Final = 60.0

# Active states of a unit whose program does not work yet, or not any more.
STARTING: Final = frozenset({"inactive", "failed", "activating"})


def operation_of(update: Update) -> Operation:
    record, plan = update.record, update.plan
    options = record.hold.options if record.hold is not None else {}
    if record.reboot is not None:
        words = record.reboot.words
        return Operation(record.operation, HOLDER, words, stops_node=True, stops_pods=True, options=options)
    if record.safe_for:
        # It disrupts nothing, so it only needs that no other holder works on the node.
        return Operation(record.operation, HOLDER, f"safe parts of {record.to_name}", queued=False)
    return Operation(
        record.operation,
        HOLDER,
        f"update to {record.to_name}",
        stops_node=plan.drain or plan.reboot or plan.stops_static_pods or plan.stops_etcd,
        stops_pods=plan.drain or plan.reboot,
        keeps=bool(record.unfinished),
        options=options,
    )


async def acquire_staging_slot(run: Run) -> None:
    with retry_on_refusal():
        await run.ports.coordination.acquire_staging_slot(operation_of(run.update))


async def release_staging_slot(run: Run) -> None:
    """A slot that cannot be released now is released at the end of the update."""
    try:
        await run.ports.coordination.release_staging_slot(run.record.operation)
    except AgentError as error:
        run.narrate(Warned, error.message, error.reason)


async def check_free(run: Run) -> None:
    """Raise ``NotNow`` if another holder has the lease. A holder that cannot be read is none: a staging disturbs no
    other holder, and cancelling it would waste the download."""
    try:
        await run.ports.coordination.check_free(run.record.operation)
    except (Unreachable, Retryable):
        pass
    except Refused as error:
        raise NotNow(error.message, reason=error.reason) from error


async def check_start(run: Run) -> None:
    """Raise ``NotNow`` while the update may not begin: an operator delays it, it would boot what another program has
    prepared, or it is not the time for updates."""
    for guard in run.ports.guards:
        await guard.check_request(run)
    if run.hold is not None and run.hold.no_reboot and run.update.reboots:
        message = f"this host must be rebooted for {run.record.to_name}; {run.hold.requester} holds the reboot back"
        raise NotNow(message, reason=Reason.REBOOT_REQUIRED, whole=True)
    if run.update.reboots:
        await check_next_boot(run)
    with retry_on_refusal():
        for guard in run.ports.guards if not _passes(run) else ():
            await guard.may_begin(run)


def _passes(run: Run) -> bool:
    """Return whether the times of updates do not hold for this one."""
    # Safe parts disrupt nothing.
    return bool(run.record.safe_for) or (run.record.reboot is not None and run.record.reboot.at_once)


def is_withdrawn(ports: Ports, record: Record) -> bool:
    """Return whether this update is a requested reboot whose request was cancelled. A boot answers the request."""
    if record.reboot is None or is_booted_since(record, ports.power.boot_id()):
        return False
    pending = ports.reboot_requests.pending()
    return pending is None or pending.id != record.reboot.id


async def check_next_boot(run: Run) -> None:
    """Raise ``NotNow`` (``StagedByOther``) if a reboot would boot an OS that another program has prepared.

    An update of the OS replaces or refuses such a deployment when it stages its own.
    """
    if run.hold is not None and run.hold.boot_staged:
        return
    if run.ports.os is None or run.update.target is not None:
        return
    if other := await run.ports.os.boots_of_other(run.record):
        raise NotNow(other_boots(other), reason=Reason.STAGED_BY_OTHER)


def other_boots(deployment: str) -> str:
    return f"a reboot would boot {deployment}, which another program has prepared"


async def check_target(ports: Ports, update: Update, *, staged: bool) -> None:
    """Let the guards check the new OS, and keep their notes for a plan. Raises as ``Guard.check_target``."""
    if ports.os is None or (target := update.target) is None:
        return
    notes: list[str] = []
    for guard in ports.guards:
        notes += await guard.check_target(update, ports.os, target, staged=staged)
    update.target_notes = tuple(notes)


async def recheck_before_write(run: Run) -> None:
    """Check everything again before the first byte is written, because the drain took time.

    Raises ``Refused`` for an actor that came in between, and ``NotNow`` if a peer does not answer.
    """
    with retry_on_outage():
        await run.ports.coordination.recheck(await operation_now(run.ports, run.update), need=NEED)
    checked(run)


async def check_still_held(run: Run, *, need: float = 0.0) -> None:
    """Check the lease before a step after the first write. Raises ``Refused`` (``LOST``)."""
    # A config of a thousand files would otherwise read the lease a thousand times.
    if run.ports.clock.monotonic() < run.update.lease_checked_at + RECENT:
        return
    await _tolerate_outage(run, run.ports.coordination.lease.check(run.record.operation, need=need, offline=True))


async def stops_etcd(ports: Ports) -> bool:
    """Return whether a restart or a stop of etcd's unit may take a member away. The start of a unit does not.

    A unit that does not run yet, has failed, or is still starting, is no member that the others count on: the change
    may be what it needs. But another etcd of the host, such as a static pod, may lose its ports to it.
    """
    if (await ports.units.state(ETCD_UNIT)).active not in STARTING:
        return True
    return ports.static_pods is not None and await ports.static_pods.has_member()


async def operation_now(ports: Ports, update: Update) -> Operation:
    """As ``operation_of``, with the state that the unit of etcd has now."""
    operation, plan = operation_of(update), update.plan
    if operation.stops_node and not (plan.drain or plan.reboot or plan.stops_static_pods):
        return replace(operation, stops_node=await stops_etcd(ports))
    return operation


async def check_before_etcd_stops(run: Run) -> None:
    """Call the guards before a member of etcd stops. Raises ``NotNow``.

    A revert goes on anyway: the member that it stops is the one that does not work.
    """
    if not run.record.reverting:
        with retry_on_refusal():
            await run.ports.coordination.before_stop()


async def recheck_before_reboot(run: Run) -> None:
    """Check everything before the host goes down, and make the lease cover the boot.

    A revert continues without an answer, and so does an update whose lease lasts. Otherwise raises ``NotNow``, and
    ``Refused`` (``LOST``).
    """
    coordination, operation = run.ports.coordination, run.record.operation
    lease = coordination.lease.check(operation, need=NEED, offline=True)
    if run.record.reverting:
        await _tolerate_outage(run, lease)
    else:
        with retry_on_refusal():
            await lease
    await _tolerate_outage(run, coordination.check_slot(operation))
    await _tolerate_outage(run, coordination.cover_reboot(operation, run.policy.boot_cover))
    # What the guards hand over moves last. Until then the reboot may still wait, and it is better left where it was.
    with retry_on_refusal():
        await coordination.before_stop()


async def _tolerate_outage(run: Run, check: Awaitable[object]) -> None:
    try:
        await check
    except (Refused, Unreachable, Retryable) as error:
        if isinstance(error, Refused) and error.reason != EXPIRED:
            raise
        run.narrate(Warned, f"continuing: {error.message}", error.reason)
        checked(run, later=UNREACHED)
    else:
        checked(run)


def checked(run: Run, *, later: float = 0.0) -> None:
    """Record that everything was checked just now."""
    run.update.lease_checked_at = run.ports.clock.monotonic() + later
