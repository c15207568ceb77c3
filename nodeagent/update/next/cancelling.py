# SPDX-License-Identifier: Apache-2.0
"""Cancel an update: the request of an operator, and how the executor and the next turn carry it out.

The request is in the store before its effect, so that a kill does not lose it. An update in memory knows it earlier:
whether the cancellation or the reboot comes first is decided in ``reboot``, without a pause in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from nodeagent.errors import Refused
from nodeagent.reasons import Reason
from nodeagent.update import keeper
from nodeagent.update.course import Cancellation
from nodeagent.update.decide import cancellation
from nodeagent.update.history.ends import finish, finish_request
from nodeagent.update.history.entry import entry_of_request
from nodeagent.update.history.lasting import RequestedReboot, applied_of, left_by, matching
from nodeagent.update.history.outcome import UpdateOutcome
from nodeagent.update.next.desired import DesiredReader
from nodeagent.update.next.preflight import Desired
from nodeagent.update.next.requests import cancelled_by, close_interrupted, note_cancellation
from nodeagent.update.ports.events import UpdateCancelled, Warned
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.record import Record, half_way, interrupted, reject
from nodeagent.update.run import Ports, Run, Takeover, Update, narrate
from nodeagent.update.stages.failure import take_back
from nodeagent.update.states import Phase, Transition


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The accepted cancellation of the update to ``name``. ``applied`` counts changes of that config that the host has,
    because its safe parts came first. ``reboot`` names the requested reboot that was cancelled; "" for an update."""

    name: str
    digest: str
    update_id: str
    effect: Cancellation
    applied: int = 0
    reboot: str = ""


async def request_cancellation(
    ports: Ports, desired: DesiredReader, update: Update | None, who: str, put_back: Callable[[str], Awaitable[None]]
) -> Cancelled:
    """Record that ``who`` cancels the update, or the config that is tried again later.

    ``update`` is the one under way. ``put_back`` gets the digest of its config, and makes the current config the
    desired one. Raises ``Refused`` as ``update.decide``, and what the store and the desired file raise.
    """
    record = update.record if update is not None else await ports.store.load()
    if update is not None and record.reboot is not None:
        return await _cancel_reboot(ports, update, record.reboot, who)
    # The end of safe parts is reported with the digest of their own config, which is not the desired one.
    name, digest, ended = record.to_name, record.safe_for or record.to_digest, record.to_digest
    try:
        effect = cancellation(record, committed=update is not None and update.committed)
    except Refused as error:
        wanted = await desired.read() if error.reason == Reason.NO_UPDATE and not half_way(record) else None
        if wanted is None or wanted.source.digest == await ports.store.current():
            if (pending := ports.reboot_requests.pending()) is None:
                raise
            return await _drop_request(ports, pending, record, wanted, who)
        if matching(record.lasting.rejections, wanted.source.digest, wanted.meaning):
            # It is not tried again anyway.
            raise
        # A config that was put off or refused for a reason that may pass.
        name, effect = wanted.config.name, Cancellation.END
        digest = ended = wanted.source.digest
    answer = Cancelled(name, ended, record.update_id, effect, applied_of(record.lasting.partial, digest))
    if effect is Cancellation.REVERTING:
        return answer
    if update is not None:
        # From here on no reboot is requested.
        update.cancelled = cancelled_by(who)
    try:
        async with desired.recorded(ApplyRequest(digest, cancel=True, name=name, requester=who), None):
            # The request is in the store by now, and the file follows: a kill in between leaves the config cancelled.
            await put_back(digest)
    except BaseException:
        if update is not None:
            update.cancelled = None
        raise
    about = update.record if update is not None else record
    narrate(ports, about, UpdateCancelled, f"{who} cancelled the update to {name}", Reason.CANCELLED)
    return answer


async def _cancel_reboot(ports: Ports, update: Update, reboot: RequestedReboot, who: str) -> Cancelled:
    """Cancel the update under way that is a requested reboot."""
    record = update.record
    effect = cancellation(record, committed=update.committed)
    if effect is not Cancellation.REVERTING:
        # From here on no reboot is requested.
        update.cancelled = cancelled_by(who)
        try:
            await ports.reboot_requests.drop(reboot.id, update.cancelled.message)
        except BaseException:
            update.cancelled = None
            raise
        narrate(ports, record, UpdateCancelled, f"{who} cancelled the {reboot.words}", Reason.CANCELLED)
    return Cancelled(record.to_name, record.to_digest, record.update_id, effect, reboot=reboot.words)


async def _drop_request(
    ports: Ports, reboot: RequestedReboot, record: Record, wanted: Desired | None, who: str
) -> Cancelled:
    """Cancel a requested reboot that has not begun."""
    cancelled, digest = cancelled_by(who), await ports.store.current()
    await ports.reboot_requests.drop(reboot.id, cancelled.message)
    narrate(ports, record, UpdateCancelled, f"{who} cancelled the {reboot.words}", Reason.CANCELLED)
    name = wanted.config.name if wanted is not None else record.to_name
    ended = entry_of_request(
        name, digest, ports.clock.now(), UpdateOutcome.CANCELLED, cancelled.reason, cancelled.message
    )
    finish(ports.reporter, replace(ended, update_id=reboot.id))
    return Cancelled(name, digest, reboot.id, Cancellation.END, reboot=reboot.words)


async def taken_back(run: Run) -> Transition | None:
    """Return the way back of an update after its first write that is not wanted any more, None to continue.

    An operator cancels it in any phase. Another desired config takes its place only while it waits for its reboot, and
    not from a host that an earlier update left half-way.
    """
    update = run.update
    await note_cancellation(run.ports, update)
    takeover = update.cancelled or await _successor(run)
    if takeover is None or update.committed:
        return None
    try:
        cancellation(run.record, committed=False)
    except Refused as error:
        if update.cancelled is not None:
            # The host went down between the request and its effect.
            run.narrate(Warned, f"not cancelled: {error.message}", error.reason)
            await run.ports.store.drop_request(update.desired_digest)
            update.cancelled = None
        return None
    update.cancelled = takeover
    return take_back(run, takeover)


async def _successor(run: Run) -> Takeover | None:
    if run.record.phase is not Phase.REBOOTING or run.record.unfinished or run.record.reboot is not None:
        return None
    if not await run.superseded(run.update):
        return None
    takeover = run.update.takeover
    # A config that cannot be used does not take the place of one that can.
    return takeover if takeover is not None and takeover.usable else None


async def carry_out(ports: Ports, record: Record, request: ApplyRequest, meaning: str) -> Record:
    """Carry out a cancellation while no update runs. Returns the record, in which the config is applied on request
    only. ``meaning`` is that of the cancelled config, "" if it is not desired any more."""
    cancelled = cancelled_by(request.requester)
    ours = request.digest in (record.to_digest, record.safe_for)
    if ours and interrupted(record):
        record = reject(record, cancelled.message, ports.clock.now(), reason=cancelled.reason)
        record = await close_interrupted(ports, record, cancelled)
    elif request.digest not in (await ports.store.current(), record.lasting.failed_digest):
        named = replace(record, to_digest=request.digest, to_name=request.name, to_meaning=meaning)
        rejected = reject(named, cancelled.message, ports.clock.now(), reason=cancelled.reason)
        record = replace(record, lasting=rejected.lasting)
        await keeper.save(ports, record)
        message = f"{cancelled.message}; {left_by(record.lasting.partial, request.digest)}"
        finish_request(ports, request.name, request.digest, UpdateOutcome.CANCELLED, cancelled.reason, message)
    await ports.store.drop_request(request.digest)
    return record
