# SPDX-License-Identifier: Apache-2.0
"""A record that this version cannot understand: damaged, or of a newer nodeagent that an OS rollback took away.

It is kept, and so is all that its update holds (the lease, the cordon, the slot). Nothing is done to the host until the
newer nodeagent is back, which finds everything as it left it, or an operator applies a config. Then the record is set
aside, and the host counts as one on which an update ended half-way: the disk shows what it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.plan_json import plan_from_dict
from nodeagent.errors import AgentError, InvalidInput, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.next.preflight import Desired
from nodeagent.update.ports.events import Warned
from nodeagent.update.record import UNKNOWN_UPDATE, Record, degraded_record
from nodeagent.update.run import Ports, Update, narrate
from nodeagent.update.states import Unreleased

_REASONS: Final = frozenset({Reason.STORE_CORRUPT, Reason.RECORD_TOO_NEW, Reason.RECORD_UNREADABLE})


def is_unreadable(error: AgentError) -> bool:
    return error.reason in _REASONS


async def load_or_half_way(ports: Ports) -> Record:
    """For a question that changes nothing: the record, or what would take its place."""
    try:
        return await ports.store.load()
    except AgentError as error:
        if not is_unreadable(error):
            raise
        # The id makes the record half-way: the disk may hold parts of a config that this version does not know.
        return degraded_record(update_id=UNKNOWN_UPDATE)


def known_plan(record: Record) -> Plan:
    """The plan of an update that is not carried out any more; an empty one for that of a newer nodeagent."""
    try:
        return plan_from_dict(record.plan or {})
    except (ValueError, TypeError, KeyError):
        return Plan(record.from_name, record.to_name, (), ())


async def rebuild(record: Record, load: Callable[[str], Awaitable[Desired]]) -> Update:
    """The update that the record is about. Raises ``Terminal`` where a part of it is not understood."""
    # Only the release is left, which needs neither its config nor its plan.
    if isinstance(record.leg, Unreleased):
        return Update(record, MachineConfig(record.to_name), known_plan(record))
    try:
        desired = await load(record.to_digest)
        return Update(record, desired.config, plan_from_dict(record.plan or {}))
    except InvalidInput as error:
        words = f"the config {record.to_name} of the update under way cannot be read: {error.message}"
        raise Terminal(words, reason=Reason.RECORD_UNREADABLE) from error
    except (ValueError, TypeError, KeyError) as error:
        words = f"the update to {record.to_name} has a step or an action that this version does not know: {error}"
        raise Terminal(words, reason=Reason.RECORD_TOO_NEW) from error


async def set_aside(ports: Ports, error: AgentError) -> None:
    """Keep the record that ``error`` is about for later, and continue as after half of an update."""
    record = await ports.store.set_record_aside(error.reason, str(error))
    narrate(ports, record, Warned, f"set the record of {record.update_id} aside: {error}", error.reason)
