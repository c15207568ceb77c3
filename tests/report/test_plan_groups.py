# SPDX-License-Identifier: Apache-2.0
"""Long plans are grouped: what is in a row is equal, and nothing is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plan.change import (
    Action,
    ActionType,
    Change,
    ChangeKind,
    Detail,
    KeyChange,
    Plan,
    PlannedChange,
    PolicySource,
)
from nodeagent.report.plan_groups import ROWS, groups_to_dict, plan_rows, shared_details

REBOOT = (Action(ActionType.DRAIN), Action(ActionType.REBOOT))


def file(path: str, *details: Detail, keys: tuple[KeyChange, ...] = ()) -> PlannedChange:
    change = Change("file", path, ChangeKind.ADDED)
    return PlannedChange(change, PolicySource.NONE, REBOOT, keys=keys, details=details)


def unit(name: str) -> PlannedChange:
    return PlannedChange(Change("unit", name, ChangeKind.ADDED), PolicySource.NONE, REBOOT)


def plan(*changes: PlannedChange) -> Plan:
    return Plan("a", "b", changes, REBOOT)


def names(*changes: PlannedChange) -> list[str]:
    return [row.what for row in plan_rows(plan(*changes))]


def test_a_short_plan_has_each_change() -> None:
    few = [file(f"/etc/x/{index}") for index in range(ROWS)]
    assert names(*few) == [planned.change.id for planned in few]
    assert groups_to_dict(plan(*few)) == []


def test_equal_files_of_a_directory_are_a_row() -> None:
    many = [file(f"/etc/kubernetes/static-pod-resources/{index % 7}/{index}") for index in range(266)]
    key = KeyChange("/etc/kubernetes/kubelet.conf", "maxPods", "", "1", REBOOT)
    alone = file("/etc/kubernetes/kubelet.conf", keys=(key,))
    units = [unit(f"{letter}.service") for letter in "abcde"]
    assert names(*many, alone, *units) == [
        "266 files below /etc/kubernetes/static-pod-resources",
        "file:/etc/kubernetes/kubelet.conf",
        "5 units: a.service, b.service, c.service and 2 more",
    ]


def test_a_shorter_directory_is_taken_where_there_are_many() -> None:
    assert names(*(file(f"/etc/a/{index}/{part}") for index in range(30) for part in range(4))) == [
        "120 files below /etc/a"
    ]
    assert names(*(file(f"/etc/{index}/x") for index in range(30))) == ["30 files below /etc"]


def test_the_details_of_a_row_are_counted() -> None:
    secret = Detail("mode", "", "0600")
    lines = [file(f"/etc/x/{index}", Detail("content", added=2, removed=0)) for index in range(20)]
    rows = plan_rows(plan(*lines, file("/etc/x/secret", secret, Detail("content", added=1, removed=1))))
    (row,) = rows
    assert shared_details(planned.details for planned in row.items) == [
        (Detail("content", added=41, removed=1), 21),
        (secret, 1),
    ]
    others = [file(f"/etc/x/{index}", Detail("owner", "", f"{index}:0")) for index in range(21)]
    assert shared_details(planned.details for planned in others)[-1] == (Detail("more", after="18 more"), 18)


CHANGES = st.lists(
    st.builds(
        lambda domain, parts: file("/" + "/".join(parts)) if domain == "file" else unit(f"{'-'.join(parts)}.service"),
        st.sampled_from(["file", "unit"]),
        st.lists(st.sampled_from(["etc", "a", "b", "c", "d", "e"]), min_size=1, max_size=6),
    ),
    unique_by=lambda planned: planned.change.id,
    max_size=60,
)


@given(CHANGES)
def test_every_change_is_in_one_row(changes: list[PlannedChange]) -> None:
    rows = plan_rows(plan(*changes))
    assert sorted(planned.change for row in rows for planned in row.items) == sorted(
        planned.change for planned in changes
    )
    assert all(len({(item.change.domain, item.actions) for item in row.items}) == 1 for row in rows)
