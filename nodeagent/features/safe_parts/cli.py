# SPDX-License-Identifier: Apache-2.0
"""What the feature adds to `nodeagent plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodeagent.cli._io import printable
from nodeagent.cli._render import change_name, table_lines


def plan_lines(part: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is applied while the rest waits."""
    yield "\nif the rest is blocked, with on_blocked: apply-safe-parts:"
    rows = [(printable(change_name(change)), "applied at once") for change in part["safe"]]
    rows += [(printable(change_name(waits["change"])), printable(f"waits: {waits['for']}")) for waits in part["waits"]]
    yield from table_lines(("change", "part"), rows)
