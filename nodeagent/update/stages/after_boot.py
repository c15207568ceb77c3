# SPDX-License-Identifier: Apache-2.0
"""Compare the booted deployment with the target after a reboot, and decide how the update continues.

A failed finalization, or another choice at the boot menu, fails the update: a repetition would give the same result. If
the new deployment was not booted for any other reason, it is staged again. The number of attempts depends on how the
previous boot ended:

- After an orderly shutdown, the cause is likely to remove the staged deployment again. This counts as a lost staging,
  of which few are allowed.
- After a power cut, or a reboot that did not wait for the finalization, the update must succeed once that is over. The
  update itself may bring the host down, so each attempt first waits longer whether the boot lasts, and the number of
  attempts is limited. A power cut during such a wait is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.deployment import Deployment, OsTarget, unmet
from nodeagent.core.plan.steps import WritePath, step_from_pair, step_id, step_to_pair, write_steps
from nodeagent.errors import Retryable, ServiceUnavailable, Terminal, Unreachable
from nodeagent.reasons import Reason
from nodeagent.update import keeper
from nodeagent.update.history.trail_fold import leaving
from nodeagent.update.ports.events import UpdateWaiting, Warned
from nodeagent.update.run import Ports, Run, moment
from nodeagent.update.stages.compare import VerifyFailed, in_force
from nodeagent.update.stages.os_deployments import ASK_AGAIN, BootedSide, HostDeployments, booted_side, discard_own
from nodeagent.update.states import Apply, Phase, Revert, Transition
from nodeagent.update.steps.unit_links import follow_install

# Stagings that may be lost for an unknown reason. After a third one, there is a permanent cause.
MAX_LOST_STAGINGS = 2

# Stagings of one update after its first write. The pauses before them are half an hour in total, so a series of power
# cuts does not reach this limit, but a host that the staging itself brings down does.
MAX_RESTAGINGS = 8

IMMEDIATE_RESTAGINGS = 2

# Seconds before the first staging that is not immediate, doubled each time.
PAUSE = 30.0


async def check_booted(run: Run, os: HostDeployments, target: OsTarget) -> Transition | None:
    """Return None if the booted deployment meets the target, or the next transition.

    Raise ``VerifyFailed`` if another attempt would have the same result.
    """
    staged, leg = run.record.os.staged, run.record.leg
    soft = isinstance(leg, Apply) and leg.kind is RebootKind.SOFT
    booted = await (_booted_softly(run, os) if soft else os.booted_within(run.ports.clock, run.policy.verify_timeout))
    if not (wrong := unmet(target, booted)):
        return None
    if booted.id == staged:
        described = "; ".join(f"{domain} {cause}" for domain, cause in sorted(wrong.items()))
        raise VerifyFailed(f"the new deployment {described}", reason=Reason.DEPLOYMENT_WRONG)
    if soft:
        cause = f"the soft reboot started {booted.id} again"
        # A full reboot finalizes what is still staged, and starts what is finalized.
        if any(d.id == staged for d in await os.list()):
            raise VerifyFailed(cause, reason=Reason.SOFT_REBOOT_FAILED, curable=True)
        run.update.change_leg(kind=RebootKind.FULL, soft_failed=cause)
    order = [d.id for d in await os.list() if not d.staged]
    if staged not in order:
        # The boots of a deployment that does not exist would be counted for another one.
        await os.end_new_os()
    if not soft and (cause := await os.port.finalize_failure()):
        raise VerifyFailed(f"the new deployment was not finalized: {cause}", reason=Reason.FINALIZE_FAILED)
    if staged in order:
        if cause := await _why_other_boot(run, order, staged, booted.id):
            raise VerifyFailed(f"{staged} did not start, so {booted.id} was booted: {cause}", reason=Reason.BOOT_FAILED)
        raise VerifyFailed(
            f"{staged} is in the boot order, but {booted.id} was booted", reason=Reason.OLD_DEPLOYMENT_BOOTED
        )
    return stage_again(run, f"{booted.id} booted, and the staged deployment is gone")


async def _why_other_boot(run: Run, order: Sequence[str], staged: str, booted: str) -> str:
    for guard in run.ports.guards:
        if cause := await guard.why_other_boot(run, order, staged, booted):
            return cause
    return ""


async def _booted_softly(run: Run, os: HostDeployments) -> Deployment:
    """Return the deployment that a soft reboot started.

    Raise ``VerifyFailed`` if libostree does not work: a deployment whose finalization failed runs without a boot entry,
    and with an /etc that is not merged, until the next full reboot.
    """
    until = run.ports.clock.monotonic() + run.policy.verify_timeout
    while True:
        try:
            return await os.booted_within(run.ports.clock, until - run.ports.clock.monotonic())
        except (Retryable, Unreachable, ServiceUnavailable) as error:
            if run.ports.clock.monotonic() >= until:
                message = f"the deployments cannot be read after the soft reboot: {error.message}"
                raise VerifyFailed(message, reason=Reason.SOFT_REBOOT_FAILED, curable=True) from error
        await asyncio.sleep(ASK_AGAIN)


def stage_again(run: Run, cause: str) -> Transition:
    """Return to staging with the files in place.

    A staged deployment does not survive a boot that the agent did not request, or that did not follow an orderly
    shutdown: that is no lost staging. Raise ``VerifyFailed`` when there were too many of them.
    """
    os = run.record.os
    same_boot = os.staged_boot_id == run.ports.power.boot_id()
    if same_boot or os.clean_shutdown_boot_id == os.staged_boot_id:
        if os.lost_stagings >= MAX_LOST_STAGINGS:
            raise VerifyFailed(f"{cause}; staged {os.lost_stagings + 1} times", reason=Reason.STAGED_LOST)
        run.update.change_os(lost_stagings=os.lost_stagings + 1)
    return Transition(Phase.STAGING, reason=Reason.STAGED_LOST, message=cause)


async def before_staging_again(run: Run) -> None:
    """Wait whether this boot lasts. Raise ``VerifyFailed`` (``StagedLost``) if it was staged too often."""
    count = run.record.os.restage_count
    if count >= MAX_RESTAGINGS:
        raise VerifyFailed(f"staged {count + 1} times, and the host went down each time", reason=Reason.STAGED_LOST)
    if count >= IMMEDIATE_RESTAGINGS:
        pause = PAUSE * 2 ** (count - IMMEDIATE_RESTAGINGS)
        message = f"staged {count + 1} times already; waiting {pause:g} s to see whether this boot lasts"
        run.narrate(UpdateWaiting, message, reason=Reason.STAGED_LOST)
        await asyncio.sleep(pause)
    # The attempt is counted before the work, because a power cut leaves no time to count it afterwards.
    run.update.change_os(restage_count=count + 1)
    await run.save()


async def record_clean_shutdown(ports: Ports) -> None:
    """Record that this boot ends in order: the process is stopped after logind accepted the reboot, or before logind
    has answered."""
    record = await ports.store.load()
    os = replace(record.os, clean_shutdown_boot_id=ports.power.boot_id())
    trail = (
        record.trail if record.trail.boots and record.trail.boots[-1].accepted else leaving(record.trail, moment(ports))
    )
    await keeper.save(ports, replace(record, os=os, trail=trail))


async def repair_etc_merge(run: Run) -> Transition | None:
    """Write the entries again that the merge of /etc replaced by defaults of the new OS, once per update."""
    # ostree takes a file that equals the default of the old deployment for an unchanged one, and installs the default
    # of the new deployment. This is visible only after the boot, when services have started without the file, so
    # another reboot follows.
    update = run.update
    if not isinstance(run.record.leg, Apply) or run.record.leg.etc_merge_repaired:
        return None
    drifted = run.record.drifted
    await follow_install(run.ports, update.new, drifted)
    lost = write_steps(await in_force(run.ports, update.new, [update.new], update.new, left_alone=drifted), update.new)
    if not lost:
        return None
    record = run.record
    pairs = dict.fromkeys((*record.writes, *map(step_to_pair, lost)))
    update.mark(writes=tuple(pairs))
    again = {step_id(step) for step in update.static_pods if WritePath(step.path) in lost}
    update.change_leg(etc_merge_repaired=True, done=record.written.done - again)
    update.writes = tuple(step_from_pair(*pair) for pair in pairs)
    message = f"{len(lost)} entries came out of the merge of /etc as the OS ships them"
    return Transition(Phase.WRITING, reason=Reason.MERGED, message=message)


async def back_to_old(run: Run, os: HostDeployments) -> Transition | None:
    """Return None if the old deployment is booted and will boot again, otherwise a reboot into it.

    Raises ``Terminal`` (``RollbackFailed``) if another deployment is booted after that reboot.
    """
    # Each deployment has its own /etc. The files to restore belong to that of the old one.
    record = run.record
    assert isinstance(record.leg, Revert)
    booted = await os.booted_within(run.ports.clock, run.policy.verify_timeout)
    match booted_side(record, booted):
        case BootedSide.OLD:
            await discard_own(os, record)
            await os.end_new_os()
            return None
        case BootedSide.NEW if not record.leg.rolled_back:
            # The boot order cannot be changed while a deployment is staged.
            if gone := await discard_own(os, record, in_the_way=True):
                run.narrate(Warned, f"discarded {gone}, which was staged for {record.to_name}")
            old = await os.rollback()
            run.update.change_leg(rolled_back=True)
            run.update.change_os(origin=old)
            return Transition(Phase.REBOOTING, reason=Reason.REVERTING, message=f"rebooting into {old}")
        case _:
            raise Terminal(f"{record.os.origin} should be booted, but {booted.id} is", reason=Reason.ROLLBACK_FAILED)


async def still_old(run: Run, os: HostDeployments) -> None:
    """Check the deployment after a revert. Raise ``Terminal`` (``RollbackFailed``) if it is not the old one."""
    booted = await os.booted_within(run.ports.clock, run.policy.verify_timeout)
    if booted_side(run.record, booted) is not BootedSide.OLD:
        raise Terminal(f"{run.record.os.origin} should be booted, but {booted.id} is", reason=Reason.ROLLBACK_FAILED)
