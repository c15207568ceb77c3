# SPDX-License-Identifier: Apache-2.0
"""The end of an update, or of a request for one: one event, from which the bus makes ``UpdateFinished``.

A config that is replaced before an update to it began ends as well, and the client that waits for it is notified.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.core.plan.change import Plan
from nodeagent.reasons import Reason
from nodeagent.update.history.entry import entry_of, entry_of_request
from nodeagent.update.history.outcome import VERIFIED, UpdateOutcome, exit_code
from nodeagent.update.ports.events import UpdateFinished
from nodeagent.update.ports.host import Reporter
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.record import Record
from nodeagent.update.run import Ports
from nodeagent.update.states import Transition

# Reasons to abort an update whose config is not desired any more, and the outcomes in the history.
OUTCOMES: Final[Mapping[str, UpdateOutcome]] = {
    Reason.SUPERSEDED: UpdateOutcome.SUPERSEDED,
    Reason.WITHDRAWN: UpdateOutcome.WITHDRAWN,
    Reason.CANCELLED: UpdateOutcome.CANCELLED,
}


def finish(reporter: Reporter, entry: HistoryEntry, *, tried_again: bool = False) -> None:
    reporter.emit(UpdateFinished(entry, exit_code(entry.outcome, entry.reason), tried_again))


async def finish_update(ports: Ports, ended: Record, plan: Plan, to: Transition) -> None:
    """``ended`` is the record before it came to rest. The entry is in the history, except that of an update which
    changed nothing and is tried again."""
    newest = await ports.store.history(1)
    # The store closes an update and writes its entry in one transaction, so the newest entry is its end, if any.
    if newest and newest[0].update_id == ended.update_id:
        entry = newest[0]
    else:
        entry = entry_of(ended, plan, ports.clock.now(), UpdateOutcome.POSTPONED, to.reason, to.message)
    # The beginning of an update drops its request, so this one came later.
    request = await ports.store.request()
    failed = entry.outcome not in VERIFIED
    tried_again = failed and request is not None and not request.cancel and request.digest == entry.to_digest
    finish(ports.reporter, entry, tried_again=tried_again)


def finish_request(
    ports: Ports,
    name: str,
    digest: str,
    outcome: UpdateOutcome,
    reason: str = "",
    message: str = "",
    *,
    successor: str = "",
) -> None:
    """End the request for a config without an update to it."""
    entry = entry_of_request(name, digest, ports.clock.now(), outcome, reason, message, successor=successor)
    finish(ports.reporter, entry)
