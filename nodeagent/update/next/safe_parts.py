# SPDX-License-Identifier: Apache-2.0
"""Apply the parts of a config that need no disruption while the rest of it cannot be applied (``on_blocked``).

The current config and the safe parts of the desired one are composed to a config, which is the target of an ordinary
update: it is written, verified, resumed and reverted as any other. It is not promoted; ``Lasting.partial`` names it as
what the host has. It holds the lease, and waits for no window, slot or other actor, because it disrupts nothing: it
never reboots, not even after a failure.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.config.partial_text import partial_text
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.safe_parts import SafeParts, compose, divide, is_safe
from nodeagent.domains import group_of, is_fix
from nodeagent.errors import (
    AgentError,
    Cause,
    InvalidInput,
    OutOfTurn,
    Refused,
    Retryable,
    ServiceUnavailable,
    Unreachable,
    Unreconcilable,
)
from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import Partial, matching
from nodeagent.update.next.preflight import Desired, Preflight, read_source
from nodeagent.update.next.unit_checks import UnitChecks
from nodeagent.update.ports.events import Warned
from nodeagent.update.record import Record, half_way, in_effect
from nodeagent.update.run import Ports, Update, narrate
from nodeagent.update.stages.compare import mismatches
from nodeagent.update.stages.coordination import LOST
from nodeagent.update.wait import Delayed

# Returns the desired config with the entries of the set as they are in the current one. Blocks for some milliseconds.
Compose = Callable[[Desired, Desired, frozenset[str]], Desired]

# Reasons after which nothing of the config is applied: another holder has the node, an operator stopped the update,
# rolled it back, or the check of a file gave no result.
_NO_BLOCK: Final = LOST | {
    Reason.LEASE_HELD,
    Reason.LEASE_EXPIRED,
    Reason.DRAIN_CANCELED,
    Reason.CANCELLED,
    # Nothing of it is applied before an operator confirms it.
    Reason.REMOVES_MOST,
    Reason.ROLLED_BACK,
    Reason.CONFIG_REJECTED,
    Reason.CHECKER_LATE,
    Reason.SUPERSEDED,
    Reason.WITHDRAWN,
}

FAILED_WITH: Final = "failed on this host with the rest"


@dataclass(frozen=True, slots=True)
class Blocked:
    """The update to the config with this digest cannot go on now."""

    digest: str
    cause: Cause


def is_block(error: AgentError) -> bool:
    """Return whether an update that ``error`` stops before its first write is blocked, rather than invalid, or waiting
    for an answer."""
    cause = error.__cause__ if isinstance(error.__cause__, AgentError) else error
    waits = isinstance(cause, Delayed | OutOfTurn | ServiceUnavailable | Retryable | Unreachable)
    return not waits and not isinstance(cause, InvalidInput | Unreconcilable) and error.reason not in _NO_BLOCK


def composed(current: Desired, desired: Desired, waiting: frozenset[str]) -> Desired:
    """Compose the text and read it as any other. Raises ``InvalidInput``."""
    text = partial_text(current.source.text, desired.source.text, waiting)
    # The store is searched by name as well, and the name is that of the desired config.
    name = f"{desired.config.name} (safe parts)"
    desired_parts = read_source(ConfigSource(name, hashlib.sha256(text).hexdigest(), text))
    # Text and types are composed separately. A difference is a bug, and must not reach the host.
    if desired_parts.config != compose(current.config, desired.config, waiting):
        raise InvalidInput("the text of its safe parts has another meaning")
    return desired_parts


@dataclass(eq=False)
class SafeUpdates:
    """``load`` returns a stored config."""

    ports: Ports
    load: Callable[[str], Awaitable[Desired]]
    compose: Compose
    # In memory only: after a restart, the update finds out again that it is blocked.
    blocked: Blocked | None = field(default=None, init=False)
    # The last question that had no answer.
    _none: tuple[str, ...] = field(default=(), init=False)

    async def find(
        self, preflight: Preflight, record: Record, desired: Desired, cause: Cause, *, failed: bool = False
    ) -> tuple[Desired, Update] | None:
        """Return the update to the safe parts of ``desired``, and its target; None if there is none.

        ``failed``: the config failed on this host, so only credentials, trust and access count as safe.
        """
        current, partial = await self.ports.store.current(), record.lasting.partial
        if not (preflight.policy_of_updates.safe_parts and current) or half_way(record) or record.unfinished:
            return None
        if partial is not None and (partial.desired, partial.fixes) == (desired.source.digest, failed):
            return None
        question = (
            desired.source.digest,
            str(failed),
            current,
            in_effect(record, current),
            record.lasting.failed_digest,
        )
        if question == self._none:
            return None
        try:
            update = await self._find(preflight, record, desired, await self.load(current), cause, failed=failed)
        except (ServiceUnavailable, Retryable, Unreachable):
            return None
        except AgentError as error:
            text = f"no part of {desired.config.name} is applied before the rest: {error}"
            narrate(self.ports, record, Warned, text, error.reason)
            update = None
        if update is None:
            self._none = question
        return update

    async def _find(
        self, preflight: Preflight, record: Record, desired: Desired, current: Desired, cause: Cause, *, failed: bool
    ) -> tuple[Desired, Update] | None:
        base = await self.load(in_effect(record, current.source.digest))
        parts = await self._divide(preflight, current, desired, base, failed=failed)
        waiting = frozenset(parts.waits)
        target, partial = desired, None
        if waiting and parts.safe:
            target = await asyncio.to_thread(self.compose, current, desired, waiting)
            partial = Partial(
                target.source.digest,
                desired.source.digest,
                desired.config.name,
                cause,
                parts.safe,
                tuple(parts.waits.items()),
                self.ports.clock.now(),
                failed,
            )
        elif waiting:
            # Nothing of this config is safe, so what the host has of another one goes.
            target = current
        if target is not current and matching(record.lasting.rejections, target.source.digest, target.meaning):
            return None
        # The host has the current config already.
        if target is current and record.lasting.partial is None:
            return None
        # Drift must not hold back a credential, and the OS changes with a reboot only.
        alone = replace(preflight, on_drift="report", leaves_os=True)
        update = await alone.prepare(target, [base], dirty=False, first=False, from_name=current.config.name)
        if not is_safe(update.plan):
            raise Refused("without the rest, they need a disruption")
        update.mark(safe_for=desired.source.digest, partial=partial)
        return target, update

    async def _divide(
        self, preflight: Preflight, current: Desired, desired: Desired, base: Desired, *, failed: bool
    ) -> SafeParts:
        policy = await preflight.policy(current.config, desired.config)
        host = await preflight.view(current.config, desired.config)
        judged = await UnitChecks(self.ports.units).judge(current.config, desired.config)
        plan = make_plan(current.config, desired.config, policy, host=host, idle=judged.idle)
        # An update may not overwrite these.
        left = await mismatches(self.ports, base.config) if preflight.on_drift == "refuse" else {}
        parts = divide(plan, group_of, left)
        if not failed:
            return parts
        fixes = tuple(change for change in parts.safe if is_fix(change))
        others = {change: FAILED_WITH for change in parts.safe if change not in fixes}
        return SafeParts(fixes, {**others, **parts.waits})
