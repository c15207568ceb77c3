# SPDX-License-Identifier: Apache-2.0
"""The rows of a list of changes: in a long one, equal changes of one directory are a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, Generic, TypeVar

from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.change import Change, Detail, Plan, PlannedChange
from nodeagent.core.plan.plan_json import detail_to_dict

# Rows of a list that is not grouped, and of one that is, where its changes allow that.
ROWS: Final = 20
# Changes that are a group.
FEWEST: Final = 4
# Components of the directory of a group: the first that leave few rows are taken.
DEPTHS: Final = (3, 2, 1)
# Details of a group; the others are counted.
DETAILS: Final = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChangeRow(Generic[T]):
    """``what`` is the id of the only change, or names what the changes have in common."""

    what: str
    items: tuple[T, ...]

    @property
    def first(self) -> T:
        return self.items[0]


def grouped(
    items: Sequence[T], change_of: Callable[[T], Change], likeness: Callable[[T], Hashable]
) -> list[ChangeRow[T]]:
    """Return the rows of a list, in its order. Changes in a row have the same ``likeness``; None: a row of its own."""
    rows = [ChangeRow(change_of(item).id, (item,)) for item in items]
    for depth in DEPTHS:
        if len(rows) <= ROWS:
            break
        rows = list(_at(depth, items, change_of, likeness))
    return rows


def _at(
    depth: int, items: Sequence[T], change_of: Callable[[T], Change], likeness: Callable[[T], Hashable]
) -> Iterable[ChangeRow[T]]:
    together: dict[Hashable, list[T]] = {}
    for item in items:
        change, like = change_of(item), likeness(item)
        place = tuple(_directory(change.key)[:depth]) if change.domain == "file" else ()
        mixes = like is not None and change.domain in ("file", "unit")
        together.setdefault((change.domain, place, like) if mixes else change, []).append(item)
    for row in together.values():
        changes = [change_of(item) for item in row]
        if len(row) < FEWEST:
            yield from (ChangeRow(change.id, (item,)) for change, item in zip(changes, row, strict=True))
        else:
            yield ChangeRow(_name(changes), tuple(row))


def _name(changes: Sequence[Change]) -> str:
    names = [change.key for change in changes]
    if changes[0].domain == "unit":
        return f"{len(names)} units: {enumerated(names)}"
    below = _directory(names[0])
    for name in names:
        # Both have a common begin, and the shorter one may end there.
        pairs = zip(below, _directory(name), strict=False)
        below = [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return f"{len(names)} files below /{'/'.join(below)}"


def _directory(path: str) -> list[str]:
    """Return the components of the directory of a file."""
    return path.split("/")[1:-1]


def plan_rows(plan: Plan) -> list[ChangeRow[PlannedChange]]:
    """Return the rows of a plan. A change whose keys are compared has one of its own."""
    return grouped(plan.changes, lambda planned: planned.change, _likeness)


def _likeness(planned: PlannedChange) -> Hashable:
    return None if planned.keys else (planned.change.kind, planned.policy, planned.actions, planned.why)


def shared_details(details_of_changes: Iterable[Sequence[Detail]]) -> list[tuple[Detail, int]]:
    """Return how the changes of a row differ, each with the number of changes: the sum of their lines, and the details
    that most of them have."""
    details = [detail for details_of_change in details_of_changes for detail in details_of_change]
    lines = [detail for detail in details if detail.added is not None or detail.removed is not None]
    added, removed = (sum(getattr(detail, side) or 0 for detail in lines) for side in ("added", "removed"))
    total = [(Detail("content", added=added, removed=removed), len(lines))] if lines else []
    others = Counter(detail for detail in details if detail.added is None and detail.removed is None).most_common()
    more = sum(count for _, count in others[DETAILS:])
    rest = [(Detail("more", after=f"{more} more"), more)] if more else []
    return [*total, *others[:DETAILS], *rest]


def groups_to_dict(plan: Plan) -> list[dict[str, Any]]:
    """Return the rows of several changes, for a client that draws a plan; none for a plan that is not grouped."""
    return [
        {
            "what": row.what,
            "changes": [planned.change.id for planned in row.items],
            "details": [
                {**detail_to_dict(detail), "count": count}
                for detail, count in shared_details(planned.details for planned in row.items)
            ],
        }
        for row in plan_rows(plan)
        if len(row.items) > 1
    ]
