"""Resume after a start: decide from the record how its update continues (``core.update.resume``)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

from nodeagent.agent.update import idle
from nodeagent.agent.update.desired import DesiredReader
from nodeagent.agent.update.executor import Executor
from nodeagent.agent.update.idle import Load
from nodeagent.agent.update.outcomes import abort
from nodeagent.agent.update.run import Ports, Update, context_of
from nodeagent.agent.update.unreadable import rebuild
from nodeagent.core.boot import kernel_boot
from nodeagent.core.update.events import PhaseEntered, UpdateResumed
from nodeagent.core.update.legs import INTERRUPTED
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.record import IllegalTransition, after_boot
from nodeagent.core.update.resume import Decision, resume
from nodeagent.errors import AgentError

_AFTER_BOOT: Final[Mapping[Decision, Phase]] = {
    Decision.VERIFY: Phase.VERIFYING,
    Decision.REVERT: Phase.REVERTING,
    Decision.STAGE: Phase.STAGING,
}


async def resumed(ports: Ports, load: Load, desired: DesiredReader, executor: Executor) -> Update | None:
    """Return the update of the record, in the phase from which the executor continues; None at rest.

    Raises ``AgentError`` for a record that cannot be read.
    """
    record = await idle.with_meanings(ports, load, await ports.store.load())
    decision = resume(record, ports.power.boot_id())
    if decision in (Decision.IDLE, Decision.DEGRADED):
        return None
    # This is for the status only. The problems of the config are found at its turn.
    with contextlib.suppress(AgentError):
        desired.report(await desired.read())
    update = await rebuild(record, load)
    boot_id = ports.power.boot_id()
    rebooted = record.boot_id != boot_id
    # A soft reboot keeps the boot id of the kernel and starts all services again.
    softly = rebooted and kernel_boot(record.boot_id) == kernel_boot(boot_id)
    how = f"{decision.value}, after a soft reboot" if softly else decision.value
    update.narrate(ports, UpdateResumed, how)
    match decision:
        case Decision.START_OVER:
            message = "interrupted before any change; restarting"
            await executor.enter(update, abort(INTERRUPTED, message))
        case Decision.VERIFY | Decision.REVERT | Decision.STAGE if rebooted:
            await _enter_after_boot(ports, executor, update, _AFTER_BOOT[decision])
        case _:
            # The executor continues from the phase of the record.
            pass
    return update


async def _enter_after_boot(ports: Ports, executor: Executor, update: Update, phase: Phase) -> None:
    now, boot_id = ports.clock.now(), ports.power.boot_id()
    try:
        update.record = after_boot(update.record, phase, now=now, boot_id=boot_id)
    except IllegalTransition as error:
        await executor.stop(update, error)
        return
    entered = PhaseEntered(context_of(ports, update.record, phase))
    update.note(ports, entered)
    # The new boot id is saved before the phase runs. A second crash in this boot then counts as one in this boot.
    await ports.store.save(update.record)
    ports.reporter.emit(entered)
