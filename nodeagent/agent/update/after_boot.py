"""Which deployment came up after the reboot, why, and what that means for the update.

Only one result is good. A failed finalization and a boot that was chosen differently are known reasons, and another try
would give the same. Whatever else kept the new deployment from booting is answered by another staging. How often
depends on how the last boot ended:

- In order: what removes the staged deployment will do so again. That counts as a lost staging, and few are enough.
- Otherwise (a power cut removes it, and so does a reboot that does not wait for ours): the host must get there when
  that is over. But our own work may bring the host down, so each new try waits for longer than the previous one whether
  this boot lasts, and their number is limited. A power cut during such a wait is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from nodeagent.agent.update.os_deployments import Os, Where, discard_ours, where
from nodeagent.agent.update.run import Ports, Run, Transition
from nodeagent.agent.update.verification import VerifyFailed, in_force
from nodeagent.core.plan.deployment import OsTarget, unmet
from nodeagent.core.plan.steps import step_from_pair, step_to_pair, write_steps
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.legs import Apply, Revert
from nodeagent.core.update.phase import Phase
from nodeagent.errors import Terminal
from nodeagent.reasons import Reason

__all__ = [
    "MAX_LOST_STAGINGS",
    "MAX_RESTAGINGS",
    "back_to_old",
    "before_staging_again",
    "check_booted",
    "record_clean_shutdown",
    "repair_etc_merge",
    "stage_again",
    "still_old",
]

MAX_LOST_STAGINGS = 2
"""How often a staged deployment may be lost for no known reason. A third time there is one that is not seen."""

MAX_RESTAGINGS = 8
"""How often an update is staged again after its first write. The pauses before are half an hour in total, so a series
of power cuts does not reach this, but a host that goes down under this very work."""

IMMEDIATE_RESTAGINGS = 2
PAUSE = 30.0
"""Seconds before the first staging that is not immediate, doubled each time."""


async def check_booted(run: Run, os: Os, target: OsTarget) -> Transition | None:
    """Return None when the booted deployment has what the update needs, or where to go.

    Raise ``VerifyFailed`` for what another try would not cure.
    """
    staged = run.record.os.staged
    booted = await os.booted_within(run.ports.clock, run.policy.verify_timeout)
    if not (wrong := unmet(target, booted)):
        return None
    if booted.id == staged:
        raise VerifyFailed(f"the new deployment {_described(wrong)}", reason=Reason.DEPLOYMENT_WRONG)
    if why := await os.finalize_failure():
        raise VerifyFailed(f"the new deployment was not finalized: {why}", reason=Reason.FINALIZE_FAILED)
    if any(d.id == staged and not d.staged for d in await os.list()):
        raise VerifyFailed(
            f"{staged} is in the boot order, but {booted.id} was booted", reason=Reason.OLD_DEPLOYMENT_BOOTED
        )
    return stage_again(run, f"{booted.id} booted, and the staged deployment is gone")


def _described(wrong: Mapping[str, str]) -> str:
    return "; ".join(f"{domain} {why}" for domain, why in sorted(wrong.items()))


def stage_again(run: Run, why: str) -> Transition:
    """Return to staging with the files in place.

    A staged deployment does not survive a boot that the agent did not request, or that did not follow an orderly
    shutdown: that is no lost staging. Raise ``VerifyFailed`` when there were too many of them.
    """
    os = run.record.os
    same_boot = os.staged_boot_id == run.ports.power.boot_id()
    if same_boot or os.clean_shutdown_boot_id == os.staged_boot_id:
        if os.lost_stagings >= MAX_LOST_STAGINGS:
            raise VerifyFailed(f"{why}; staged {os.lost_stagings + 1} times", reason=Reason.STAGED_LOST)
        run.update.change_os(lost_stagings=os.lost_stagings + 1)
    return Transition(Phase.STAGING, reason=Reason.STAGED_LOST, message=why)


async def before_staging_again(run: Run) -> None:
    """Wait whether this boot lasts. Raise ``Terminal`` (``StagedLost``) if the update was staged too often."""
    count = run.record.os.restage_count
    if count >= MAX_RESTAGINGS:
        raise Terminal(f"staged {count + 1} times, and the host went down each time", reason=Reason.STAGED_LOST)
    if count >= IMMEDIATE_RESTAGINGS:
        pause = PAUSE * 2 ** (count - IMMEDIATE_RESTAGINGS)
        why = f"staged {count + 1} times already; waiting {pause:g} s to see whether this boot lasts"
        run.narrate(EventKind.WAITING, why, reason=Reason.STAGED_LOST)
        await asyncio.sleep(pause)
    # Before the work, not after its failure: an attempt cut short by a power loss would not be counted.
    run.update.change_os(restage_count=count + 1)
    await run.ports.store.save(run.record)


async def record_clean_shutdown(ports: Ports) -> None:
    """To be called when this process is stopped after logind accepted our reboot: the shutdown is in order so far, and
    the finalization follows."""
    record = await ports.store.load()
    os = replace(record.os, clean_shutdown_boot_id=ports.power.boot_id())
    await ports.store.save(replace(record, os=os))


async def repair_etc_merge(run: Run) -> Transition | None:
    """Write what the merge of /etc took back, once.

    A file that is equal to the default of the old deployment counts as never changed there, and becomes the default of
    the new one: only then it is known that it has to be written. Services have started without it by now, hence
    another reboot.
    """
    update = run.update
    if not isinstance(run.record.leg, Apply) or run.record.leg.etc_merge_repaired:
        return None
    lost = write_steps(await in_force(run.ports, update.new, [update.new], update.new), update.new)
    if not lost:
        return None
    pairs = dict.fromkeys((*run.record.writes, *map(step_to_pair, lost)))
    update.record = replace(run.record, writes=tuple(pairs))
    update.change_leg(etc_merge_repaired=True)
    update.writes = tuple(step_from_pair(*pair) for pair in pairs)
    why = f"{len(lost)} entries came out of the merge of /etc as the OS ships them"
    return Transition(Phase.WRITING, reason=Reason.MERGED, message=why)


async def back_to_old(run: Run, os: Os) -> Transition | None:
    """Return None when the old deployment is booted and will boot again: the files that are to be restored are in its
    /etc, nowhere else. Otherwise a reboot into it; ``Terminal`` when that did not help."""
    record = run.record
    assert isinstance(record.leg, Revert)
    booted = await os.booted_within(run.ports.clock, run.policy.verify_timeout)
    match where(record, booted):
        case Where.OLD:
            await discard_ours(os, record)
            return None
        case Where.NEW if not record.leg.rolled_back:
            # rpm-ostree rolls nothing back while a deployment is staged.
            if gone := await discard_ours(os, record, in_the_way=True):
                run.narrate(EventKind.WARNING, f"discarded {gone}, which was staged for {record.to_name}")
            old = await os.rollback()
            run.update.change_leg(rolled_back=True)
            run.update.change_os(origin=old)
            return Transition(Phase.REBOOTING, reason=Reason.REVERTING, message=f"rebooting into {old}")
        case _:
            raise Terminal(f"{record.os.origin} should be booted, but {booted.id} is", reason=Reason.ROLLBACK_FAILED)


async def still_old(run: Run, os: Os) -> None:
    """Check the deployment after a revert. Raise ``Terminal`` (``RollbackFailed``) if it is not the old one."""
    booted = await os.booted_within(run.ports.clock, run.policy.verify_timeout)
    if where(run.record, booted) is not Where.OLD:
        raise Terminal(f"{run.record.os.origin} should be booted, but {booted.id} is", reason=Reason.ROLLBACK_FAILED)
