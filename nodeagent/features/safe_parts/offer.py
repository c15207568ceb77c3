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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.plan import make_plan
from nodeagent.domains import group_of, is_fix
from nodeagent.errors import (
    AgentError,
    Cause,
    InvalidInput,
    Refused,
    Retryable,
    ServiceUnavailable,
    Unreachable,
)
from nodeagent.features.safe_parts.decide import Parts, compose, divide, is_safe
from nodeagent.features.safe_parts.settings import SafePartsSettings
from nodeagent.features.safe_parts.text import partial_text
from nodeagent.update.history.lasting import Partial, matching
from nodeagent.update.next.preflight import Desired, Preflight, read_source
from nodeagent.update.next.unit_checks import UnitChecks
from nodeagent.update.ports.events import Warned
from nodeagent.update.record import Record, half_way, in_effect
from nodeagent.update.run import Update, narrate
from nodeagent.update.stages.compare import mismatches
from nodeagent.update.stages.guard import Guard
from nodeagent.update.stages.offer import Offer

# Returns the desired config with the entries of the set as they are in the current one. Blocks for some milliseconds.
Compose = Callable[[Desired, Desired, frozenset[str]], Desired]


FAILED_WITH: Final = "failed on this host with the rest"


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


class SafeParts(Offer):
    """Of a config that failed on this host, only credentials, trust and access count as safe."""

    def __init__(self, settings: SafePartsSettings, compose: Compose = composed) -> None:
        self._settings = settings
        self._compose = compose
        # The last question that had no answer.
        self._none: tuple[str, ...] = ()

    def use(self, settings: SafePartsSettings) -> None:
        self._settings = settings

    @property
    def is_on(self) -> bool:
        return self._settings.on_blocked == "apply-safe-parts"

    async def find(
        self,
        load: Callable[[str], Awaitable[Desired]],
        preflight: Preflight,
        record: Record,
        desired: Desired,
        cause: Cause,
        *,
        failed: bool = False,
    ) -> tuple[Desired, Update] | None:
        ports = preflight.ports
        current, partial = await ports.store.current(), record.lasting.partial
        if not (self.is_on and current) or half_way(record) or record.unfinished:
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
            update = await self._find(load, preflight, record, desired, await load(current), cause, failed=failed)
        except (ServiceUnavailable, Retryable, Unreachable):
            return None
        except AgentError as error:
            text = f"no part of {desired.config.name} is applied before the rest: {error}"
            narrate(ports, record, Warned, text, error.reason)
            update = None
        if update is None:
            self._none = question
        return update

    async def _find(
        self,
        load: Callable[[str], Awaitable[Desired]],
        preflight: Preflight,
        record: Record,
        desired: Desired,
        current: Desired,
        cause: Cause,
        *,
        failed: bool,
    ) -> tuple[Desired, Update] | None:
        base = await load(in_effect(record, current.source.digest))
        parts = await self._divide(preflight, current, desired, base, failed=failed)
        waiting = frozenset(parts.waits)
        target, partial = desired, None
        if waiting and parts.safe:
            target = await asyncio.to_thread(self._compose, current, desired, waiting)
            partial = Partial(
                target.source.digest,
                desired.source.digest,
                desired.config.name,
                cause,
                parts.safe,
                tuple(parts.waits.items()),
                preflight.ports.clock.now(),
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
    ) -> Parts:
        policy = await preflight.policy(current.config, desired.config)
        host = await preflight.view(current.config, desired.config)
        judged = await UnitChecks(preflight.ports.units).judge(current.config, desired.config)
        plan = make_plan(current.config, desired.config, policy, host=host, idle=judged.idle)
        # An update may not overwrite these.
        left = await mismatches(preflight.ports, base.config) if preflight.on_drift == "refuse" else {}
        parts = divide(plan, group_of, left)
        if not failed:
            return parts
        fixes = tuple(change for change in parts.safe if is_fix(change))
        others = {change: FAILED_WITH for change in parts.safe if change not in fixes}
        return Parts(fixes, {**others, **parts.waits})


class SafePartsGuard(Guard):
    def __init__(self, offer: SafeParts) -> None:
        self.offer: SafeParts = offer

    async def planned(self, update: Update, *, stops_node: bool) -> Sequence[str]:  # noqa: ARG002
        parts = divide(update.plan, group_of)
        if not (self.offer.is_on and parts.safe and parts.waits):
            return ()
        return [f"if the rest is blocked, these are applied at once (on_blocked): {enumerated(parts.safe)}"]
