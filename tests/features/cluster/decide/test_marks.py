# SPDX-License-Identifier: Apache-2.0
"""The annotations that keep autoscalers away from a node under disruption."""

from __future__ import annotations

from typing import Any, Final

import pytest

from nodeagent.features.cluster.decide.marks import MARKED, marks_with, marks_without

SCALE_DOWN: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
KARPENTER: Final = "karpenter.sh/do-not-disrupt"
OF_KARPENTER: Final = {"karpenter.sh/nodepool": "general"}


def node(labels: dict[str, str] | None = None, **notes: str) -> Any:
    names = {"scale_down": SCALE_DOWN, "karpenter": KARPENTER, "marked": MARKED, "other": "example.com/other"}
    return {"metadata": {"name": "n", "labels": labels, "annotations": {names[key]: notes[key] for key in notes}}}


def merged(before: Any, changes: dict[str, str | None]) -> Any:
    """As the API server does with a merge patch."""
    notes = {**before["metadata"]["annotations"], **changes}
    present = {key: value for key, value in notes.items() if value is not None}
    return {"metadata": {**before["metadata"], "annotations": present}}


@pytest.mark.finding(
    "cluster: signs for other actors",
    "During a disruption the Node has the annotations by which the cluster autoscaler and Karpenter leave it alone.",
)
@pytest.mark.parametrize(
    ("before", "marks"),
    [
        (node(), [SCALE_DOWN]),
        (node(OF_KARPENTER), [SCALE_DOWN, KARPENTER]),
        (node(OF_KARPENTER, scale_down="true"), [KARPENTER]),
        # An admin decided about it, whichever way.
        (node(OF_KARPENTER, karpenter="false"), [SCALE_DOWN]),
        (node(OF_KARPENTER, karpenter="true", scale_down="false"), []),
    ],
)
def test_what_is_set_is_taken_back_and_nothing_else(before: Any, marks: list[str]) -> None:
    changes = marks_with(before)
    assert changes == ({**dict.fromkeys(marks, "true"), MARKED: ",".join(marks)} if marks else {})
    during = merged(before, changes)
    assert marks_with(during) == {}, "a repetition writes nothing"
    assert merged(during, marks_without(during)) == before


@pytest.mark.finding(
    "cluster: signs for other actors",
    "A process that was started again takes back the annotations of its predecessor, and keeps those of an admin.",
)
def test_another_process_takes_back_what_the_first_one_set() -> None:
    """Only the Node knows it."""
    during = node(OF_KARPENTER, karpenter="true", scale_down="true", marked=SCALE_DOWN, other="x")
    assert marks_without(during) == {SCALE_DOWN: None, MARKED: None}
    # It continues where the other one ended, on a node that has come to Karpenter in the meantime.
    during = node(OF_KARPENTER, scale_down="true", marked=SCALE_DOWN)
    assert marks_with(during) == {KARPENTER: "true", MARKED: f"{SCALE_DOWN},{KARPENTER}"}


@pytest.mark.parametrize(
    ("during", "changes"),
    [
        (node(scale_down="false", marked=SCALE_DOWN), {MARKED: None}),
        (node(marked=SCALE_DOWN), {MARKED: None}),
        # The list is no right to remove others.
        (node(other="true", marked=f"example.com/other,{SCALE_DOWN}", scale_down="true"), {SCALE_DOWN: None}),
        (node(marked=""), {MARKED: None}),
        (node(scale_down="true"), {}),
    ],
)
def test_a_mark_that_another_client_changed_is_left_alone(during: Any, changes: dict[str, None]) -> None:
    assert marks_without(during) == ({**changes, MARKED: None} if changes else {})
