"""Reporting that an update, or a request for one, has ended: one event, from which the bus makes ``UpdateFinished``."""

from __future__ import annotations

from nodeagent.agent.update.run import Ports, Transition
from nodeagent.core.plan.change import Plan
from nodeagent.core.report.history import entry_of
from nodeagent.core.update.events import UpdateFinished
from nodeagent.core.update.outcome import UpdateOutcome, exit_code
from nodeagent.core.update.ports.host import Reporter
from nodeagent.core.update.ports.store import HistoryEntry
from nodeagent.core.update.record import Record

__all__ = ["finish", "finish_update"]


def finish(reporter: Reporter, entry: HistoryEntry, *, code: int | None = None, tried_again: bool = False) -> None:
    """``code`` is the exit status, where the error that ended it knows better than the outcome."""
    code = exit_code(entry.outcome, entry.reason) if code is None else code
    reporter.emit(UpdateFinished(entry, code, tried_again))


async def finish_update(ports: Ports, ended: Record, plan: Plan, to: Transition) -> None:
    """``ended`` is the record before it came to rest. The entry is in the history, except that of an update which
    changed nothing and is tried again."""
    newest = await ports.store.history(1)
    if newest and newest[0].update_id == ended.update_id:
        entry = newest[0]
    else:
        entry = entry_of(ended, plan, ports.clock.now(), UpdateOutcome.POSTPONED, to.reason, to.message)
    # The beginning of an update drops its request, so this one came later.
    request = await ports.store.request()
    failed = entry.outcome not in (UpdateOutcome.DONE, UpdateOutcome.DONE_AFTER_FALLBACK)
    tried_again = failed and request is not None and request.digest == entry.to_digest
    finish(ports.reporter, entry, tried_again=tried_again)
