# SPDX-License-Identifier: Apache-2.0
"""The kind of a reboot, as it was chosen, and a full one where a soft one did not help.

The order is the same for each update: at most one soft reboot, then at most one full one, then the revert. A soft
reboot that is not possible becomes a full one, and that is reported with its reason. A planned soft reboot leads into
the deployment of the update, a fallback into the one that runs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.reboot_kind import ChosenKind
from nodeagent.errors import AgentError
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import FallbackChosen, Warned
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.states import Apply, Fallback, Phase, Transition, fallback_of


async def kind_of_planned(ports: Ports, update: Update, staged: str) -> ChosenKind:
    """Return the kind of the planned reboot on this host, as ``RebootChoice.for_planned``."""
    # The estimate is reported even where the reboot is a full one: it shows what the setting or the obstacle costs.
    saves = await ports.power.kernel_start_seconds() if update.target is not None else None
    return replace(await ports.reboots.for_planned(ports, update, staged), saves=saves)


async def begin_planned(run: Run) -> Transition:
    """Return the transition to the planned reboot of an update, with its kind."""
    leg, name = run.record.leg, run.record.to_name
    assert isinstance(leg, Apply)
    chosen = ChosenKind(RebootKind.FULL)
    if (requested := run.record.reboot) is not None:
        return Transition(Phase.REBOOTING, replace(leg, kind=RebootKind.FULL), Reason.PLANNED, requested.words)
    message = f"rebooting into {name}"
    # A reboot that repeats another one, or that follows a merge of /etc, is a full one.
    if run.ports.reboots.allows_soft(planned=True) and not (leg.soft_failed or leg.etc_merge_repaired):
        chosen = await kind_of_planned(run.ports, run.update, run.record.os.staged)
        words = _words(chosen)
        message = f"{message}: {words}"
        run.update.add_notes(words)
    elif not run.ports.reboots.allows_soft(planned=True) and run.update.target is not None:
        saves = await run.ports.power.kernel_start_seconds()
        run.update.add_notes(*([f"a full reboot{_of_which(saves)}"] if saves is not None else []))
    # A kind that could not be decided is no permission for a soft reboot.
    leg = replace(leg, kind=chosen.kind or RebootKind.FULL)
    return Transition(Phase.REBOOTING, leg, Reason.PLANNED, message)


def _words(chosen: ChosenKind) -> str:
    if chosen.kind is not RebootKind.SOFT:
        return _full_because(": ".join(filter(None, (chosen.reason, chosen.why)))) + _of_which(chosen.saves)
    saves = f" and saves about {chosen.saves:.0f} s of firmware and kernel" if chosen.saves is not None else ""
    return f"a soft reboot, which keeps the boot ID{saves}"


def _of_which(seconds: float | None) -> str:
    """Return what a soft reboot does not take, as the end of a phrase about a full one; "" if it is not known."""
    return "" if seconds is None else f", of which firmware and kernel take about {seconds:.0f} s"


async def begin_fallback(run: Run, message: str, reason: str) -> Apply | Fallback:
    """Return the leg of the next fallback reboot, and report it. ``message`` and ``reason`` are of the failure."""
    record = run.record
    leg = record.leg
    # The update has used its soft reboot. The leg stays, so that the loop breaker still counts one fallback.
    if isinstance(leg, Fallback) or (isinstance(leg, Apply) and leg.kind is RebootKind.SOFT):
        run.narrate(FallbackChosen, f"after the soft reboot: {message}", reason, RebootKind.FULL)
        if isinstance(leg, Apply):
            run.update.add_notes(f"a full reboot followed, because {message}")
        return replace(leg, kind=RebootKind.FULL, soft_failed=message)
    chosen = await run.ports.reboots.for_fallback(run.ports, run.update.plan)
    kind = chosen.kind or RebootKind.FULL
    run.narrate(FallbackChosen, message, reason, kind)
    if chosen.reason:
        run.narrate(Warned, f"the fallback is {_full_because(chosen.why)}", chosen.reason)
    return fallback_of(record.written, message, kind)


def wants_soft(run: Run) -> bool:
    """Return whether the reboot of this phase is a soft one. The setting may have changed since it was chosen."""
    match run.record.leg:
        case Fallback(kind=RebootKind.SOFT):
            return run.ports.reboots.allows_soft(planned=False)
        case Apply(kind=RebootKind.SOFT):
            return run.ports.reboots.allows_soft(planned=True)
        case _:
            return False


async def make_full(run: Run, cause: str, reason: AnyReason) -> None:
    """Make the reboot of this phase a full one, in the record as well."""
    planned = isinstance(run.record.leg, Apply)
    run.update.change_leg(kind=RebootKind.FULL)
    if planned:
        run.update.add_notes(_full_because(f"{reason}: {cause}"))
    run.narrate(Warned, f"the {'reboot' if planned else 'fallback'} is {_full_because(cause)}", reason)
    if planned and reason == Reason.SOFT_REBOOT_FAILED and run.ports.os is not None:
        # What is prepared would make a reboot by another program a soft one. The full reboot does not need this.
        with suppress(AgentError):
            await run.ports.os.port.reset_soft_reboot()
    # A restart between here and the request must not find the soft kind again, and try what was just ruled out.
    await run.save()


def _full_because(cause: str) -> str:
    return f"a full reboot, not a soft one: {cause}"
