# SPDX-License-Identifier: Apache-2.0
"""The rows of a drain in `nodeagent status`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from nodeagent.cli._io import printable
from nodeagent.cli._render import STRONG, ago, ahead, clock, paint

# Pods; --json has all of them.
SHOWN: Final = 20


def rows(drain: dict[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    if drain.get("requester"):
        since = f" (since {clock(drain['since'], now)}, {ago(drain['since'], now)})" if drain.get("since") else ""
        yield "drain for", printable(f"{drain['requester']}: {drain['reason']}{since}")
    if drain.get("deadline"):
        yield "deadline", f"{clock(drain['deadline'], now)}{ahead(drain['deadline'], now)}; then {drain['then']}"
    pods = drain["remaining"]
    shown: set[str] = set()
    for pod in pods[:SHOWN]:
        yield "waits for", printable(f"{pod['namespace']}/{pod['name']}: {pod['why']}")
        # Many pods wait for the same, so each hint is shown once.
        if (way := pod.get("hint")) and way not in shown:
            shown.add(way)
            yield "what now", paint(printable(way), STRONG)
    if len(pods) > SHOWN:
        yield "waits for", f"{len(pods) - SHOWN} more (status --json has all)"
    if not pods:
        yield "waits for", "another check: no pods are left"
