# SPDX-License-Identifier: Apache-2.0
"""The sections in `nodeagent status`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from nodeagent.cli._io import printable
from nodeagent.cli._render import WARN, paint
from nodeagent.features.irreconcilable.decide import HOW


def rows(sections: Sequence[str], _now: datetime) -> Iterator[tuple[str, str]]:
    yield "left out", paint(printable(f"{', '.join(sections)} ({HOW})"), WARN)
