"""Which deployment came up after the reboot, why, and what that means for the update.

Only one answer is good. Of the others, a failed finalization and a boot that somebody chose differently are known
reasons, and trying again would give the same; whatever else kept the new deployment from booting is answered by
staging again. How often depends on how the last boot ended
- In order: whatever takes away what is staged will do so again. A miss, and few of those are enough.
- Anyhow (a power cut takes the staged state with it, and so does a reboot by somebody who did not wait): when that is
  over, the host shall get there. But it may be our work that brings the host down, so each new try waits for longer
  than the one before whether this boot lasts, and not for ever. A cut while we wait counts for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from nodeagent.agent.update.os_deployments import Os, Where, discard_ours, where
from nodeagent.agent.update.run import Limits, Next, Ports, Update, narrate
from nodeagent.agent.update.verification import VerifyFailed, in_force
from nodeagent.core.plan.deployment import OsTarget, unmet
from nodeagent.core.plan.steps import step_from_pair, step_to_pair, write_steps
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.phase import Phase
from nodeagent.errors import Terminal

__all__ = [
    "MAX_AGAIN",
    "MAX_MISSES",
    "after_boot",
    "after_merge",
    "back_to_old",
    "before_staging_again",
    "left",
    "stage_again",
    "still_old",
]

MAX_MISSES = 2
"""How often what we staged may be lost without a reason that we know. A third time there is one that we do not see."""

MAX_AGAIN = 8
"""How often an update is staged once more after its files were written, whyever. The pauses before are half an hour
altogether, so what ends it is no run of power cuts, but a host that goes down under this very work."""

AT_ONCE = 2  # of those, the ones without a pause before
PAUSE = 30.0
"""Seconds before the next one, doubled each time after."""


async def after_boot(ports: Ports, limits: Limits, update: Update, os: Os, target: OsTarget) -> Next | None:
    """None when the booted deployment is what was asked for. Raises ``VerifyFailed`` for what another try would not
    cure."""
    booted = await os.booted_within(ports.clock, limits.verify_timeout)
    if not (wrong := unmet(target, booted)):
        return None
    if booted.id == update.record.staged:
        raise VerifyFailed(f"the new deployment {_said(wrong)}", reason="DeploymentWrong")
    if why := await os.finalize_failure():
        raise VerifyFailed(f"the new deployment was not finalized: {why}", reason="FinalizeFailed")
    if any(d.id == update.record.staged and not d.staged for d in await os.list()):
        raise VerifyFailed(
            f"{update.record.staged} is in the boot order, but {booted.id} was booted", reason="OldDeploymentBooted"
        )
    return stage_again(ports, update, f"{booted.id} booted, and the staged deployment is gone")


def stage_again(ports: Ports, update: Update, why: str) -> Next:
    """Back to staging with the files in place. A staged deployment does not survive a boot that we did not ask for, or
    that did not come by an orderly shutdown: that is no miss. Raises ``VerifyFailed`` when it is enough."""
    record = update.record
    same_boot = record.staged_boot == ports.power.boot_id()
    if same_boot or record.left_boot == record.staged_boot:
        if record.misses >= MAX_MISSES:
            raise VerifyFailed(f"{why}; staged {record.misses + 1} times", reason="StagedLost")
        update.record = replace(record, misses=record.misses + 1)
    return Next(Phase.STAGING, "StagedLost", why)


async def before_staging_again(ports: Ports, update: Update) -> None:
    """Where the files are written. Raises ``Terminal`` (``StagedLost``) when that was tried often enough."""
    again = update.record.again
    if again >= MAX_AGAIN:
        raise Terminal(f"staged {again + 1} times, and the host went down each time", reason="StagedLost")
    if again >= AT_ONCE:
        pause = PAUSE * 2 ** (again - AT_ONCE)
        why = f"staged {again + 1} times already; waiting {pause:g} s to see whether this boot lasts"
        narrate(ports, update, EventKind.WAITING, why, reason="StagedLost")
        await asyncio.sleep(pause)
    # Before the work, not after its failure: who is cut off counts nothing.
    update.record = replace(update.record, again=again + 1)
    await ports.store.save(update.record)


async def left(ports: Ports) -> None:
    """When this process is told to end after logind accepted our reboot: that has come in order so far, and the
    finalization is what comes next."""
    await ports.store.save(replace(await ports.store.load(), left_boot=ports.power.boot_id()))


def _said(wrong: Mapping[str, str]) -> str:
    return "; ".join(f"{domain} {why}" for domain, why in sorted(wrong.items()))


async def after_merge(ports: Ports, update: Update) -> Next | None:
    """What the merge of /etc took back, once. A file that is equal to the default of the old deployment counts as
    never changed there, and becomes the default of the new one: only then can anybody see that it has to be written.
    Services have started without it by now, hence another reboot."""
    if update.record.merged:
        return None
    lost = write_steps(await in_force(ports, update.new, [update.new], update.new), update.new)
    if not lost:
        return None
    pairs = dict.fromkeys((*update.record.writes, *map(step_to_pair, lost)))
    update.record = replace(update.record, merged=True, writes=tuple(pairs))
    update.writes = tuple(step_from_pair(*pair) for pair in pairs)
    return Next(Phase.WRITING, "Merged", f"{len(lost)} entries came out of the merge of /etc as the OS ships them")


async def back_to_old(ports: Ports, limits: Limits, update: Update, os: Os) -> Next | None:
    """None when the old deployment is booted and will boot again: the files that are to be restored are in its /etc,
    nowhere else. Otherwise a reboot into it; ``Terminal`` when that did not help."""
    record = update.record
    booted = await os.booted_within(ports.clock, limits.verify_timeout)
    match where(record, booted):
        case Where.OLD:
            await discard_ours(os, record)
            return None
        case Where.NEW if not record.rolled_back:
            # rpm-ostree rolls nothing back while a deployment is staged.
            if gone := await discard_ours(os, record, in_the_way=True):
                narrate(ports, update, EventKind.WARNING, f"discarded {gone}, which was staged for {record.to_name}")
            old = await os.rollback()
            update.record = replace(record, rolled_back=True, os_from=old)
            return Next(Phase.REBOOTING, "Reverting", f"rebooting into {old}")
        case _:
            raise Terminal(f"{record.os_from} should be booted, but {booted.id} is", reason="RollbackFailed")


async def still_old(ports: Ports, limits: Limits, update: Update, os: Os) -> None:
    """After a revert. Raises ``Terminal`` with reason ``RollbackFailed``."""
    booted = await os.booted_within(ports.clock, limits.verify_timeout)
    if where(update.record, booted) is not Where.OLD:
        raise Terminal(f"{update.record.os_from} should be booted, but {booted.id} is", reason="RollbackFailed")
