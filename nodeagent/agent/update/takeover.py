"""The end of an update, or of a request, before the first write: another config is desired, or none."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.agent.update.finishing import finish
from nodeagent.agent.update.outcomes import OUTCOMES
from nodeagent.agent.update.preflight import Desired
from nodeagent.agent.update.run import Ports, Takeover, narrate
from nodeagent.agent.update.unreadable import known_plan
from nodeagent.core.report.history import entry_of
from nodeagent.core.update.events import PhaseEntered
from nodeagent.core.update.record import Record, at_rest
from nodeagent.errors import AgentError
from nodeagent.reasons import Reason

__all__ = ["close_interrupted", "takeover_by", "unusable"]


async def takeover_by(ports: Ports, desired: Desired | None) -> Takeover:
    if desired is None:
        return Takeover(Reason.WITHDRAWN, "no config is desired any more; nothing was changed")
    name = desired.config.name
    if desired.source.digest == await ports.store.current():
        return Takeover(Reason.WITHDRAWN, f"the current config {name} is desired again; nothing was changed")
    return Takeover(Reason.SUPERSEDED, f"{name} is desired instead; nothing was changed", name)


def unusable(error: AgentError) -> Takeover:
    return Takeover(Reason.SUPERSEDED, f"the desired config cannot be used: {error}; nothing was changed")


async def close_interrupted(ports: Ports, record: Record, takeover: Takeover) -> Record:
    """Ends an update that was interrupted before anything was written, and does not begin again."""
    now = ports.clock.now()
    outcome, successor = OUTCOMES[takeover.reason], takeover.successor
    plan = known_plan(record)
    entry = entry_of(record, plan, now, outcome, takeover.reason, takeover.message, successor=successor)
    rest = replace(at_rest(record), since=now, boot_id=ports.power.boot_id())
    await ports.store.close_update(rest, entry)
    narrate(ports, rest, PhaseEntered)
    finish(ports.reporter, entry)
    return rest
