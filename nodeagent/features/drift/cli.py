# SPDX-License-Identifier: Apache-2.0
"""Drift in `nodeagent status`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from nodeagent.cli._io import printable
from nodeagent.cli._render import STRONG, WARN, ago, change_name, clock, paint
from nodeagent.cli._settings import valid_settings
from nodeagent.reasons import Reason, hint

SHOWN: Final = 20
# With the setting that the hint of the reason recommends.
LEFT: Final = (
    "nodeagent verify shows what differs; on_drift: repair leaves what needs an action, and what users other than root "
    "can write: undo it, or put it into the config"
)


def rows(drift: Sequence[dict[str, Any]], now: datetime) -> Iterator[tuple[str, str]]:
    for drifted in drift[:SHOWN]:
        entry, since = change_name(drifted["entry"]), drifted["since"]
        text = f"{entry} {drifted['why']} (since {clock(since, now)}, {ago(since, now)}"
        yield "drift", paint(printable(text + (f", by {drifted['by']})" if drifted["by"] else ")")), WARN)
    if len(drift) > SHOWN:
        yield "drift", f"{len(drift) - SHOWN} more (status --json has all)"
    # It is the same for all of them.
    yield "what now", paint(LEFT if valid_settings().on_drift == "repair" else hint(Reason.DRIFTED), STRONG)
