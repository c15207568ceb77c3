# SPDX-License-Identifier: Apache-2.0
"""What the feature adds to `nodeagent status` and `nodeagent plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from nodeagent.cli._io import printable
from nodeagent.cli._render import WARN, paint

_THEN: Final = {"refuse": "; the update is refused", "update": "; it is updated before the host is drained"}


def rows(part: Mapping[str, Any], _now: datetime) -> Iterator[tuple[str, str]]:
    # One that is the same is what an operator expects.
    if part["state"] != "same":
        yield "bootloader", paint(printable(part["summary"].removeprefix("bootloader ")), WARN)


def plan_lines(part: Mapping[str, Any]) -> Iterator[str]:
    yield f"{part['summary']}{_THEN.get(part['then'], '')}"
