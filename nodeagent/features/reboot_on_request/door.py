# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, Final

from nodeagent import installed
from nodeagent.door import Base, BusMethod, Caller, Door, Feature, request_options
from nodeagent.errors import InvalidInput, Refused
from nodeagent.features.reboot_on_request.decide import RequestSource, check_text
from nodeagent.features.reboot_on_request.reasons import RebootRequestReason
from nodeagent.features.reboot_on_request.settings import RebootRequestSettings
from nodeagent.features.reboot_on_request.view import STATUS, VIEWS
from nodeagent.reasons import Reason
from nodeagent.update.stages.guard import Guard
from nodeagent.update.states import Phase

REQUEST: Final = BusMethod(
    name="RequestReboot",
    takes="sa{sv}",
    arguments=("reason", "options", "answer"),
    action="reboot",
    about="Options: `at_once` `b`, `boot_staged` `b`, and those that features add to `Apply`; others are refused. "
    "Returns the `request` and the `source` of the request that holds, as JSON.",
)
_FLAGS: Final = ("at_once", "boot_staged")


def _open(base: Base) -> Feature:
    from nodeagent.features.reboot_on_request.requests import KeptRequests

    requests = KeptRequests(
        base.store,
        base.reporter,
        base.clock,
        base.ports.power.boot_id(),
        settings=base.settings.of(RebootRequestSettings),
        on_change=base.look_again,
    )
    guard = Guard()
    guard.reboot_requests = requests

    async def request(caller: Caller, values: Sequence[Any]) -> str:
        reason, options = values
        purpose, flags, added = check_text(reason), _flags(options), request_options(options, starts=True)
        if unknown := options.keys() - {*_FLAGS, *added}:
            raise InvalidInput(f"the option {min(unknown)} is unknown", reason=Reason.BAD_OPTION)
        at_once, added = start_of(added, at_once=flags["at_once"])
        if not base.policy().may_reboot:
            raise Refused("the settings allow no reboot (reboot.allow)", reason=Reason.REBOOT_NOT_ALLOWED)
        if not await base.store.current():
            raise Refused("no config was applied to this host yet", reason=Reason.NO_CURRENT_CONFIG)
        held = await requests.request(
            RequestSource.OPERATOR,
            caller.name,
            purpose,
            at_once=at_once,
            boot_staged=flags["boot_staged"],
            options=added,
        )
        return json.dumps({"request": held.id, "source": str(held.source)})

    beside = [("requests for a reboot", requests.run)]
    if base.api is not None:
        from nodeagent.features.reboot_on_request.node import NodeRequests

        def at_rest() -> bool:
            return base.shown().phase in (Phase.IDLE, Phase.DEGRADED)

        name = base.settings.node_name
        node = NodeRequests(base.api, name, requests, base.clock, at_rest, random.random)
        beside.append(("requests of the Node", node.run))

    return Feature(
        use=lambda settings: requests.use(settings.of(RebootRequestSettings)),
        guard=guard,
        beside=beside,
        # Before the loop, which may begin the reboot.
        at_start=[("requests for a reboot", requests.load)],
        calls={REQUEST.name: request},
    )


def start_of(added: dict[str, str], *, at_once: bool) -> tuple[bool, dict[str, str]]:
    """Return whether the reboot begins at once, and otherwise the options about its start.

    Raises ``InvalidInput`` (``BadOption``).
    """
    hurried = {option.at_once for option in installed.options() if option.at_once in added}
    # As an option it would be a delay, and a later request of a file would replace it.
    added = {name: value for name, value in added.items() if name not in hurried}
    if (at_once or hurried) and added:
        raise InvalidInput("a reboot at once has no later start", reason=Reason.BAD_OPTION)
    return at_once or bool(hurried), added


def _flags(options: dict[str, Any]) -> dict[str, bool]:
    flags = {name: options.get(name, False) for name in _FLAGS}
    if wrong := [name for name, value in flags.items() if not isinstance(value, bool)]:
        raise InvalidInput(f"{wrong[0]} must be true or false", reason=Reason.BAD_OPTION)
    return flags


DOOR: Final = Door(
    title="Reboot on request",
    page="usage/reboot.md",
    settings=(RebootRequestSettings,),
    reasons=RebootRequestReason,
    events=VIEWS,
    status=STATUS,
    methods=(REQUEST,),
    open=_open,
)
