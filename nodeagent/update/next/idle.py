# SPDX-License-Identifier: Apache-2.0
"""The work of the loop on the record and the stored configs between updates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from nodeagent.errors import AgentError, InvalidInput, Refused
from nodeagent.reasons import Reason, reason_of
from nodeagent.update import keeper
from nodeagent.update.history.lasting import Rejection
from nodeagent.update.next.preflight import Desired
from nodeagent.update.next.unreadable import is_unreadable
from nodeagent.update.ports.events import PhaseEntered, Warned
from nodeagent.update.record import OsProgress, Record, interrupted
from nodeagent.update.run import Ports, Update, narrate
from nodeagent.update.stages.coordination import LOST
from nodeagent.update.stages.os_deployments import discard_own, find_own
from nodeagent.update.states import Phase

# Configs that are known at the same time as left half-way. What is older is forgotten, and may leave files behind.
MAX_HALF_WAY = 16

# Turns a digest into the stored config. Raises ``AgentError`` for one that cannot be read.
Load = Callable[[str], Awaitable[Desired]]


async def leftover(ports: Ports, record: Record, update: Update) -> str:
    """Return the id of a deployment that an abandoned update left staged, if ``update`` may build on it."""
    if ports.os is None:
        return ""
    if update.target is not None:
        return await find_own(ports.os, record)
    await discard_own(ports.os, record)
    return ""


async def end_earlier(ports: Ports, record: Record) -> None:
    """End what an update left in the boot loader, which ended before that. A failure is reported, and the next turn
    retries."""
    if ports.os is None:
        return
    for guard in ports.guards:
        try:
            if message := await guard.at_rest(ports.os):
                narrate(ports, record, PhaseEntered, message)
        except AgentError as error:
            narrate(ports, record, Warned, error.message, error.reason)


async def discard_unwanted(ports: Ports, record: Record) -> Record:
    """Discard an owned staged deployment that no config requests. A failure is reported, and the next turn retries."""
    if ports.os is None or (record.os.target is None and not record.os.staged):
        return record
    planned = record.os.kept is not None and record.os.target is None and not record.update_id
    if planned and record.os.staged_boot_id == ports.power.boot_id():
        # It was staged for a plan, and the next update may use it. A locked deployment does not outlive its boot.
        return record
    try:
        await discard_own(ports.os, record)
    except AgentError as error:
        narrate(ports, record, Warned, str(error), error.reason)
        return record
    record = replace(record, os=OsProgress())
    return await keeper.save(ports, record)


def left_half_way(record: Record) -> tuple[str, ...]:
    """Return the digests, newest first, of the configs of which the disk may hold parts after a half-way ``record``."""
    # An update that was interrupted or given up wrote nothing itself. A reverted one may have left what its revert
    # could not reach.
    own = () if interrupted(record) or record.aborted else (record.to_digest,)
    digests = dict.fromkeys(filter(None, (*own, *record.unfinished)))
    return tuple([*digests][:MAX_HALF_WAY]) or (record.update_id,)


async def still_held(ports: Ports, record: Record) -> str:
    """Return the operation whose lease a half-way node still holds, for the repair to go on with."""
    if record.operation:
        try:
            await ports.coordination.lease.check(record.operation)
        except Refused as error:
            if error.reason not in LOST:
                raise
            # The operation does not get the lease again, so the repair takes it under its own.
            return ""
    return record.operation


async def load_known(ports: Ports, load: Load, digest: str) -> Desired | None:
    """Load a stored config. None if it cannot be read: the disk then shows what is there, as on a first start."""
    try:
        return await load(digest)
    except AgentError as error:
        if not isinstance(error, InvalidInput) and not is_unreadable(error):
            raise
        text = f"the stored config {digest[:12]} counts as unknown: {error}"
        narrate(ports, Record(), Warned, text, error.reason)
        return None


def check_not_rejected(record: Record, desired: Desired, failed: Rejection) -> None:
    """Raise ``Refused``, unless the status already shows why this config is not applied."""
    name = desired.config.name
    if (
        record.phase is Phase.DEGRADED
        and record.lasting.failed_digest == desired.source.digest
        and record.to_name == name
    ):
        return
    raise Refused(failed.words(name), reason=reason_of(failed.reason or Reason.CONFIG_REJECTED))
