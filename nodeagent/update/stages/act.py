# SPDX-License-Identifier: Apache-2.0
"""Do the actions of the plan, or those before its reboot."""

from __future__ import annotations

from nodeagent.reasons import Reason
from nodeagent.update.record import is_booted_since
from nodeagent.update.run import Run, progress_of
from nodeagent.update.stages.fallback import begin_planned
from nodeagent.update.states import Apply, Phase, Revert, Transition, fallback_of
from nodeagent.update.steps import static_pod, units_before
from nodeagent.update.steps.act import act, unit_steps


async def do(run: Run) -> Transition:
    update, leg = run.update, run.record.leg
    update.index = len(update.writes)
    if isinstance(leg, Apply) and leg.reboot_instead:
        fallback = fallback_of(leg, leg.reboot_instead)
        return Transition(Phase.REBOOTING, fallback, Reason.DRAIN_TIMED_OUT, leg.reboot_instead)
    if run.record.reboot is not None and is_booted_since(run.record, run.ports.power.boot_id()):
        # A power cut, or another program, was as good.
        update.change_leg(boots=run.record.written.boots + 1)
        return Transition(Phase.VERIFYING)
    if update.reboots:
        if update.static_pods:
            await act(run, update.static_pods)
            # A member of etcd that does not work with its new manifest shows before the node goes away.
            await static_pod.watch(run, progress_of(run.ports, update))
        return await begin_planned(run)
    return await _act_on_units(run)


async def undo(run: Run) -> Transition:
    """Do the actions again, with the previous config."""
    update, leg = run.update, run.record.leg
    assert isinstance(leg, Revert)
    if leg.undo_actions and update.reboots:
        await act(run, update.static_pods)
    if update.target is not None:
        # Services that started in this boot may have read the files before they were restored.
        stale = bool(run.record.writes) and leg.first_write_boot_id != run.ports.power.boot_id()
        return Transition(Phase.REBOOTING, reason=Reason.REVERTING) if stale else Transition(Phase.VERIFYING)
    # No action ran with the new files, so none has to run with the old ones.
    if not leg.undo_actions:
        return Transition(Phase.VERIFYING)
    if update.reboots:
        # If the new config took effect by a reboot, the old one needs a reboot to take effect again.
        return Transition(Phase.REBOOTING, reason=Reason.REVERTING) if leg.boots else Transition(Phase.VERIFYING)
    return await _act_on_units(run)


async def _act_on_units(run: Run) -> Transition:
    run.update.index = len(run.update.writes)
    await act(run, unit_steps(run.update))
    await units_before.start_again(run)
    return Transition(Phase.VERIFYING)
