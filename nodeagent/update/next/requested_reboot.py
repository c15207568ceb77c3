# SPDX-License-Identifier: Apache-2.0
"""Begin a reboot that is requested without a change of the config: as an update from the config in effect to itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nodeagent.core.plan.change import Action, ActionType, Plan
from nodeagent.core.plan.plan_json import plan_to_dict
from nodeagent.errors import AgentError, Refused
from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import RequestedReboot
from nodeagent.update.next.idle import Load
from nodeagent.update.next.next_update import begin_update
from nodeagent.update.record import Record, half_way, in_effect, interrupted
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.stages.admission import check_start
from nodeagent.update.stages.compare import mismatches


async def begin_reboot(
    ports: Ports, load: Load, record: Record, requested: RequestedReboot, attempt: Callable[[Update], Run]
) -> Update | None:
    """Begin the update that reboots the host. Return None if it may not begin now, which the request gets to know.

    ``attempt`` returns a run of the update, to check that. Raises what the store raises.
    """
    # An update that was interrupted begins again first, under its id.
    if interrupted(record):
        return None
    try:
        update = await _reboot_of(ports, load, record, requested)
        run = attempt(update)
        if not run.may_reboot:
            raise Refused("the settings allow no reboot (reboot.allow)", reason=Reason.REBOOT_NOT_ALLOWED)
        # Here, because an update that waits for a window would keep the drift of the host from being watched.
        await check_start(run)
    except AgentError as error:
        ports.reboot_requests.waits(error.cause)
        return None
    await begin_update(ports, record, update, record.lasting)
    return update


async def _reboot_of(ports: Ports, load: Load, record: Record, requested: RequestedReboot) -> Update:
    digest = in_effect(record, await ports.store.current())
    if not digest:
        raise Refused("no config was applied to this host yet", reason=Reason.NO_CURRENT_CONFIG)
    if half_way(record):
        raise Refused("an update ended half-way, which is repaired first", reason=Reason.UPDATE_UNDER_WAY)
    desired = await load(digest)
    name = desired.config.name
    # Without changes: nothing is written, and nothing can be reverted.
    plan = Plan(name, name, (), (Action(ActionType.DRAIN), Action(ActionType.REBOOT)))
    made = Record(
        update_id=requested.id,
        started=ports.clock.now(),
        from_digest=digest,
        to_digest=digest,
        to_meaning=desired.meaning,
        from_name=name,
        to_name=name,
        plan=plan_to_dict(plan),
        # What differs before the reboot is not its doing.
        drifted=tuple(sorted(await mismatches(ports, desired.config))),
        notes=(requested.words,),
        partial=record.lasting.partial,
        reboot=requested,
    )
    return Update(replace(made, lasting=record.lasting), desired.config, plan)
