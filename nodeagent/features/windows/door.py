# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from nodeagent.door import Base, BusMethod, Caller, Door, Feature
from nodeagent.errors import InvalidInput
from nodeagent.features.windows.decide.start import ANY_TIME, start_of
from nodeagent.features.windows.decide.window import parse_windows
from nodeagent.features.windows.reasons import WindowReason
from nodeagent.features.windows.settings import WindowSettings

WINDOWS: Final = BusMethod(
    name="Windows",
    takes="u",
    arguments=("limit", "windows"),
    about="Returns the JSON of `nodeagent windows --json`, with at most 100 windows.",
)


def _open(base: Base) -> Feature:
    from nodeagent.features.windows.guard import TimeGuard
    from nodeagent.features.windows.times import HostTimes

    times = HostTimes(base.settings.of(WindowSettings), base.store, base.clock, base.host_id)

    async def windows(_caller: Caller, values: Sequence[Any]) -> str:
        return json.dumps(await times.listing(values[0]))

    return Feature(
        use=lambda settings: times.use(settings.of(WindowSettings)),
        guard=TimeGuard(times),
        calls={WINDOWS.name: windows},
    )


def _check_request(options: Mapping[str, str]) -> None:
    """Raise ``InvalidInput`` (``BadTime``)."""
    try:
        if start := options.get("not_before"):
            start_of(start)
        if window := options.get("window"):
            parse_windows([window])
        if options.get("any_time", ANY_TIME) != ANY_TIME:
            raise ValueError(f"any_time is {ANY_TIME}, or is left out")
    except ValueError as error:
        raise InvalidInput(f"the start of the update is invalid: {error}", reason=WindowReason.BAD_TIME) from None


DOOR: Final = Door(
    title="Windows",
    page="usage/windows.md",
    settings=(WindowSettings,),
    reasons=WindowReason,
    methods=(WINDOWS,),
    check_request=_check_request,
    open=_open,
)
