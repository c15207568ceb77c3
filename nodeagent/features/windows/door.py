# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.errors import InvalidInput
from nodeagent.features.windows.decide.start import ANY_TIME, start_of
from nodeagent.features.windows.decide.window import parse_windows
from nodeagent.features.windows.reasons import WindowReason
from nodeagent.features.windows.settings import WindowSettings


def _open(base: Base) -> Feature:
    from nodeagent.features.windows.guard import TimeGuard
    from nodeagent.features.windows.times import HostTimes

    times = HostTimes(base.settings.of(WindowSettings), base.store, base.clock, base.host_id)
    return Feature(use=lambda settings: times.use(settings.of(WindowSettings)), guard=TimeGuard(times))


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
    check_request=_check_request,
    open=_open,
)
