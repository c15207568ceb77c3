# SPDX-License-Identifier: Apache-2.0
"""What features add to the commands about the status and the history, and to a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any

from nodeagent.features import history_rows, plan_lines, status_rows
from nodeagent.update.history.trail import Trail


def rows_after(label: str, status: Mapping[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the rows of features that follow this row of the base."""
    for rows in status_rows():
        # The module is imported only for a part that there is. Most statuses have none of them.
        if rows.after == label and (part := status.get(rows.key)):
            yield from import_module(rows.module).rows(part, now)


def delaying(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts that delay an update that is requested now, by their keys; None for one that does not."""
    # None also for a daemon that is older than the feature.
    return {rows.key: status.get(rows.key) for rows in status_rows() if rows.delays}


def delays(status: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Yield what delays an update that is requested now."""
    for rows in status_rows():
        if rows.delays and (part := status.get(rows.key)):
            yield import_module(rows.module).delay(part, now)


def lines_after(label: str, answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of features that follow this line of a plan."""
    for lines in plan_lines():
        if lines.module and lines.after == label and (part := answer.get(lines.key)):
            yield from import_module(lines.module).plan_lines(part)


def columns(updates: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns of features in the list of updates: the header, and a cell for each update."""
    for rows in history_rows():
        if any(update.get(rows.key) for update in updates):
            cell = import_module(rows.module).cell
            yield rows.header, [cell(update.get(rows.key) or {}) for update in updates]


def facts(update: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of features about an update."""
    for rows in history_rows():
        if part := update.get(rows.key):
            yield from import_module(rows.module).facts(part)


def course_lines(trail: Trail) -> Iterator[str]:
    """Yield the lines of features below the course of an update."""
    for rows in history_rows():
        yield from import_module(rows.module).course(trail)
