# SPDX-License-Identifier: Apache-2.0
"""Find the next update: compare the desired config with the current one and with the state after the last update."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field, replace

from nodeagent.core.plan.removal import check_removal
from nodeagent.errors import AgentError, Cause, InvalidInput, Refused, Unreconcilable
from nodeagent.reasons import Reason, reason_of
from nodeagent.update import keeper
from nodeagent.update.history.lasting import Confirmation, Lasting, matching
from nodeagent.update.next import idle
from nodeagent.update.next.blocked import Blocked, is_block
from nodeagent.update.next.cancelling import carry_out
from nodeagent.update.next.desired import DesiredReader
from nodeagent.update.next.preflight import Desired, Preflight
from nodeagent.update.next.requests import close_interrupted, takeover_by
from nodeagent.update.next.unreadable import load_or_half_way
from nodeagent.update.ports.events import Warned
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.record import Record, at_rest, half_way, in_effect, interrupted
from nodeagent.update.run import Ports, Update, narrate
from nodeagent.update.states import Phase


@dataclass(eq=False)
class NextUpdate:
    """``load`` returns a stored config, ``adopted`` the one that another program applied before. ``wanted`` is the
    desired config of the last call of ``begin``."""

    ports: Ports
    preflight: Preflight
    desired: DesiredReader
    _: KW_ONLY
    load: Callable[[str], Awaitable[Desired]]
    adopted: Callable[[], Awaitable[Desired | None]]
    complete: Callable[[str], bool] | None = None
    wanted: Desired | None = field(default=None, init=False)
    # In memory only: after a restart, the update finds out again that it is blocked.
    blocked: Blocked | None = field(default=None, init=False)

    async def begin(self, record: Record) -> Update | None:
        """Begin the next update, after the one of ``record``. Return None if there is none.

        Raises ``AgentError`` if the desired config is refused, or cannot be read or planned now, and none of its parts
        is applied alone.
        """
        self.wanted = None
        try:
            return await self._begin(record)
        except AgentError as error:
            if self.wanted is None or not is_block(error):
                raise
            blocked = Blocked(self.wanted.source.digest, error.cause)
            update = await self._begin_safe_parts(await self.ports.store.load(), self.wanted, blocked)
            if update is None:
                raise
            return update

    async def put_off(self, update: Update) -> bool:
        """Return whether parts of the config of ``update`` are to be applied, which ended before its first write."""
        record = update.record
        return await self.safe_first(update, AgentError(record.message, reason=reason_of(record.reason)))

    async def safe_first(self, update: Update, error: AgentError) -> bool:
        """Return whether parts of the config of ``update`` are applied before the rest, which ``error`` blocks."""
        record, wanted = await self.ports.store.load(), self.wanted
        if update.record.safe_for or wanted is None or wanted.source.digest != update.digest or not is_block(error):
            return False
        blocked = Blocked(update.digest, error.cause)
        if await self.ports.offer.find(self.load, self.preflight, record, wanted, blocked.cause) is None:
            return False
        self.blocked = blocked
        return True

    async def _begin_safe_parts(
        self, record: Record, desired: Desired, blocked: Blocked | None, *, failed: bool = False
    ) -> Update | None:
        """Begin the update to the safe parts of ``desired``, if it is the blocked config and has any."""
        if blocked is None or blocked.digest != desired.source.digest:
            return None
        begun = await self.ports.offer.find(self.load, self.preflight, record, desired, blocked.cause, failed=failed)
        if begun is None:
            return None
        target, update = begun
        request = await self.ports.store.request() if target is desired else None
        lasting = lasting_of(record, target, request)
        await self.ports.store.put_config(target.source)
        await begin_update(self.ports, record, update, lasting)
        # The status names the target of an update as the desired config.
        self.desired.report_again()
        self.desired.report(desired)
        return update

    async def _begin(self, record: Record) -> Update | None:
        await idle.end_earlier(self.ports, record)
        desired, request = await self.desired.with_request()
        self.wanted = desired
        current = await self.ports.store.current()
        # Taken once: without safe parts, the next turn tries the whole config again.
        blocked, self.blocked = self.blocked, None
        if request is not None and request.cancel:
            meaning = desired.meaning if desired and desired.source.digest == request.digest else ""
            record, request = await carry_out(self.ports, record, request, meaning), None
        if interrupted(record) and not (desired and desired.source.digest == record.to_digest != current):
            record = await close_interrupted(self.ports, record, await takeover_by(self.ports, desired))
        unfinished = half_way(record)
        if desired is None:
            # After an update that stopped half-way, an operator decides what is done with it.
            if not unfinished:
                await idle.discard_unwanted(self.ports, record)
            self.desired.report(None)
            return None
        # If this text is the current config, another text failed.
        other = "" if desired.source.digest == current else desired.meaning
        if (failed := matching(record.lasting.rejections, desired.source.digest, other)) and request is None:
            rejected = Blocked(desired.source.digest, Cause(Reason.CONFIG_REJECTED, failed.brief))
            # Of a config whose update an operator cancelled, nothing is applied.
            safe = None if failed.reason else await self._begin_safe_parts(record, desired, rejected, failed=True)
            if safe is not None:
                return safe
            idle.check_not_rejected(record, desired, failed)
            self.desired.report(desired)
            return None
        if desired.source.digest == current and not unfinished and record.lasting.partial is None:
            record = await idle.discard_unwanted(self.ports, record)
            # The refused config is not desired any more.
            if record.phase is Phase.DEGRADED:
                await keeper.rest(self.ports, replace(at_rest(record), to_name=desired.config.name))
            elif record.reason:
                # The reason of an earlier wait does not describe a host that is as desired.
                await keeper.rest(self.ports, record)
            if request is not None:
                await self.ports.store.drop_request(request.digest)
            self.desired.report(desired)
            self.desired.requests.unchanged(desired)
            return None
        if (update := await self._begin_safe_parts(record, desired, blocked)) is not None:
            return update
        lasting = lasting_of(record, desired, request)
        try:
            update = await self._prepare(record, desired, current, dirty=unfinished, confirmed=lasting.confirmed)
        except (InvalidInput, Unreconcilable):
            # A repetition has the same result, so the request has ended.
            await self.ports.store.drop_request(desired.source.digest)
            raise
        # An operator rolls back to a config that the host had.
        if not (request is not None and request.avoid) and not self._is_complete(desired):
            check_removal(desired.config.name, update.removal)
        # The record names the config by its digest, so the text is stored first.
        await self.ports.store.put_config(desired.source)
        await begin_update(self.ports, record, update, lasting)
        self.desired.report(desired)
        for note in update.record.notes:
            narrate(self.ports, update.record, Warned, note)
        return update

    async def check(self, desired: Desired, confirmed: Confirmation | None = None) -> Update:
        """Return the update to this config, or raise why it would be refused. Changes nothing on the host."""
        record = await load_or_half_way(self.ports)
        current = await self.ports.store.current()
        confirmed = confirmed or record.lasting.confirmed
        return await self._prepare(record, desired, current, dirty=half_way(record), confirmed=confirmed)

    def _is_complete(self, desired: Desired) -> bool:
        """Return whether the source of this config guarantees that nothing is missing in it."""
        return self.complete is not None and self.complete(desired.config.name)

    async def _prepare(
        self, record: Record, desired: Desired, current: str, *, dirty: bool, confirmed: Confirmation | None
    ) -> Update:
        base = in_effect(record, current)
        # After an update that stopped half-way, the disk may hold entries of any of these configs.
        digests = (base, current, record.to_digest, *record.unfinished) if dirty else (base,)
        configs = {digest: await idle.load_known(self.ports, self.load, digest) for digest in digests if digest}
        bases = [config for config in configs.values() if config is not None]
        first = configs.get(base) is None
        if not current and (adopted := await self.adopted()) is not None:
            bases, first = [adopted, *bases], False
            await self.ports.store.put_config(adopted.source)
        from_name = (await self.load(current)).config.name if base != current else ""
        return await self.preflight.prepare(
            desired, bases, dirty=dirty, first=first, from_name=from_name, confirmed=confirmed
        )


def lasting_of(record: Record, desired: Desired, request: ApplyRequest | None) -> Lasting:
    """Return what lasts when ``desired`` is applied. Raise ``Refused`` (``RolledBack``) if an operator rolled back from
    it and there is no request."""
    lasting = record.lasting.without(desired.source.digest, desired.meaning)
    if request is not None and request.avoid:
        lasting = replace(lasting, rolled_back_digest=request.avoid, rolled_back_meaning=request.avoid_meaning)
    if request is not None:
        lasting = replace(lasting, hold=request.hold, confirmed=request.confirmed or lasting.confirmed)
    # A config with another name and the same meaning would undo the rollback as well.
    if lasting.rolled_back_digest == desired.source.digest or lasting.rolled_back_meaning == desired.meaning:
        if request is None:
            name = desired.config.name
            raise Refused(
                f"{name} was rolled back by an operator; it must be re-applied explicitly", reason=Reason.ROLLED_BACK
            )
        lasting = replace(lasting, rolled_back_digest="", rolled_back_meaning="")
    return lasting


async def begin_update(ports: Ports, record: Record, update: Update, lasting: Lasting) -> None:
    """Save the record of ``update``, which follows ``record``, and report the beginning."""
    # The same update begins again.
    if interrupted(record) and not update.record.safe_for:
        update.mark(update_id=record.update_id, started=record.started, trail=record.trail)
        update.change_os(parts=record.os.parts)
    if half_way(record):
        held = await idle.still_held(ports, record) or update.record.update_id
        left = idle.left_half_way(record)
        update.mark(held=held, cordon=record.cordon, unfinished=left)
    if update.record.partial is not None:
        # A deployment that was staged for the rest of the config waits as the rest does.
        os = record.os.leftover
        update.change_os(kept=os.target, staged=os.staged, staged_boot_id=os.staged_boot_id)
    else:
        update.change_os(staged=await idle.leftover(ports, record, update))
    await keeper.begin(ports, update, lasting)
