# SPDX-License-Identifier: Apache-2.0
"""Acquire the right to disrupt this node, and give it back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

from nodeagent.core.plan.steps import DaemonReload
from nodeagent.errors import AgentError, Refused, Unreachable
from nodeagent.kinds import Kind
from nodeagent.reasons import Reason
from nodeagent.tasks import finished_before, running
from nodeagent.update.ports.coordination import NodeReadiness
from nodeagent.update.run import Run
from nodeagent.update.stages.admission import check_start, checked, operation_now, operation_of
from nodeagent.update.stages.failure import safe_parts_first
from nodeagent.update.states import Apply, Phase, Superseded, Transition
from nodeagent.update.steps.units_before import units_before
from nodeagent.update.wait import NotNow, retry_on_refusal


async def do(run: Run) -> Transition:
    # The staging took minutes or hours. Another config may be desired by now.
    if await run.newer():
        raise Superseded
    if (blocked := await _blocked_reboot(run)) is not None and await run.safe_first(run.update, blocked):
        return safe_parts_first(blocked)
    await _fetch(run)
    await _acquire_all(run)
    for guard in run.ports.guards:
        await guard.before_disruption(run)
    if run.update.plan.drain and run.ports.node is not None:
        return Transition(Phase.DRAINING)
    return await begin_writing(run)


async def _fetch(run: Run) -> None:
    """Let the guards bring what the config names. Raises ``Superseded`` as soon as another one is desired."""
    for guard in run.ports.guards:
        if not guard.fetches():
            continue
        async with running(guard.fetch(run)) as work:
            while not await finished_before(work, run.wake, timeout=run.policy.lease_retry):
                if await run.newer():
                    raise Superseded
            try:
                work.result()
            except (Unreachable, Refused) as error:
                if error.reason.kind is Kind.REJECTED:
                    raise
                raise NotNow(error.message, reason=error.reason, subject="") from error


async def undo(run: Run) -> None:
    """Release everything, in reverse; releasing it again is harmless. Raises ``NotNow`` until all of it is done.

    A node that is still half-way keeps its cordon, the lease and the slot.
    """
    ports, record, operation = run.ports, run.record, operation_of(run.update)
    if ports.node is None and ports.coordination.slot is None and not record.repairs_nothing:
        # Without other hosts, an error is not a refusal.
        await ports.coordination.release(operation)
        return
    with retry_on_refusal():
        if not record.repairs_nothing:
            # The cordon may be that of an earlier update, which ended half-way and which this one repairs.
            cordons = (record.cordon, record.operation) if record.cordon else ()
            await ports.coordination.release(operation, cordons)
        await ports.coordination.release_staging_slot(record.operation)


async def _acquire_all(run: Run) -> None:
    """Acquire the right to disrupt this node. Raises ``NotNow``, and ``Refused`` (``LOST``)."""
    await check_start(run)
    with retry_on_refusal():
        operation = await operation_now(run.ports, run.update)
    # A guard may take minutes. While it runs, or refuses, other nodes can have the slot.
    permit = partial(_permit, run) if operation.stops_node and run.ports.guards else None
    with retry_on_refusal():
        await run.ports.coordination.acquire(operation, permit)
    checked(run)


async def _permit(run: Run) -> None:
    """Call the guards before the node is disrupted. Raises ``Refused`` and ``Unreachable``."""
    for guard in run.ports.guards:
        await guard.permit(run)


async def _blocked_reboot(run: Run) -> AgentError | None:
    """Return why the reboot of this update would wait, maybe for hours, after all files are written."""
    if not (run.ports.offer.is_on and run.update.reboots):
        return None
    # Without logind no program reports inhibitors, and the reboot has its own way.
    with suppress(AgentError):
        for by in await run.ports.power.blockers():
            return Refused(f"{by.who} ({by.process}) blocks the reboot: {by.why}", reason=Reason.REBOOT_BLOCKED)
    return None


async def begin_writing(run: Run, *, reboot_instead: str = "") -> Transition:
    """Return the transition to the first write, with what the verification compares with later."""
    # The states before the first write decide later whether a unit that does not run counts as a failure.
    readiness = run.ports.readiness
    # Files alone do not make a node unready, and a kubelet takes some seconds to report that it is.
    acts = any(not isinstance(step, DaemonReload) for step in run.update.acts)
    ready = acts and readiness is not None and await _was_ready(readiness)
    before = await units_before(run.ports, run.update)
    run.update.mark(units_before=replace(before, node_ready=ready))
    return Transition(
        Phase.WRITING, Apply(first_write_boot_id=run.ports.power.boot_id(), reboot_instead=reboot_instead)
    )


async def _was_ready(readiness: NodeReadiness) -> bool:
    """Return whether the node is ready now. What cannot be read is not waited for later."""
    with suppress(AgentError):
        return not await readiness.unready()
    return False
