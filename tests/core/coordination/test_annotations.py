# SPDX-License-Identifier: Apache-2.0
"""The annotations of a Node: what a controller has written, and the one line of a reason."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.coordination.annotations import (
    DESIRED,
    DRAINED,
    MAX_REASON,
    TOPOLOGY,
    ControllerRequest,
    clean,
    read_request,
)


def node(annotations: dict[str, str] | None = None, **more: Any) -> Any:
    return {"metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "annotations": annotations}, **more}


def test_a_node_that_no_controller_knows() -> None:
    for spec in ({}, None, {"unschedulable": None}, {"unschedulable": False}):
        assert read_request(node(spec=spec)) == ControllerRequest()
    assert read_request(node()) == read_request({"metadata": {"name": "n"}}) == ControllerRequest()  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("annotations", "controlled", "single"),
    [
        ({DESIRED: "a"}, False, False),
        ({DRAINED: ""}, True, False),
        ({TOPOLOGY: "HighlyAvailable"}, True, False),
        ({TOPOLOGY: "SingleReplica"}, True, True),
    ],
)
def test_a_controller_that_drains(annotations: dict[str, str], *, controlled: bool, single: bool) -> None:
    request = read_request(node(annotations, spec={"unschedulable": True}))
    assert (request.controlled, request.single, request.cordoned) == (controlled, single, True)


def test_a_reason_is_one_line_of_limited_length() -> None:
    assert clean(" a\n\tb\u2028c\x07 ") == "a b c"
    assert clean("x" * MAX_REASON) == "x" * MAX_REASON
    longer = clean("x" * (MAX_REASON + 1))
    assert (len(longer), longer[-4:]) == (MAX_REASON, "x...")
    assert clean("x" * (MAX_REASON - 4) + " " + "y" * 9) == "x" * (MAX_REASON - 4) + "..."
