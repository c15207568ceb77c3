# SPDX-License-Identifier: Apache-2.0
"""The conditions of a MachineConfigNode in each phase of an update."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.features.cluster.decide.machine_config_node import STEPS, UpdateProgress, changed_status, progress_of
from nodeagent.report.status import Status
from nodeagent.update.states import Phase

NOW = "2026-11-24T00:00:00Z"
LATER = "2026-11-24T00:01:00Z"


def after(*progress: UpdateProgress, there: dict[str, Any] | None = None) -> dict[str, Any]:
    for each in progress:
        there = changed_status(each, there or {}, NOW) or there
    assert there is not None
    return there


def states(status: dict[str, Any], state: str) -> list[str]:
    found = {entry["type"]: entry["status"] for entry in status["conditions"]}
    return [kind for kind in STEPS if found.get(kind) == state]


def in_phase(phase: Phase, *, drained: bool = False) -> UpdateProgress:
    return UpdateProgress(phase, "", "b", drained)


DONE = UpdateProgress(Phase.IDLE, "b", "b")


@pytest.mark.finding(
    "peers: MachineConfigNode",
    "The status of the MachineConfigNode of the node is written, in the order of the machine-config-daemon.",
)
def test_an_update_with_drain_and_reboot() -> None:
    status = after(UpdateProgress(Phase.IDLE, "a", "a"))
    seen = []
    for phase, drained in (
        (Phase.STAGING, False),
        (Phase.LEASING, False),
        (Phase.DRAINING, False),
        (Phase.WRITING, True),
        (Phase.REBOOTING, True),
        (Phase.VERIFYING, True),
        (Phase.RELEASING, True),
    ):
        status = after(in_phase(phase, drained=drained), there=status)
        seen.append((states(status, "True"), states(status, "Unknown")))
        assert status["configVersion"] == {"current": "a", "desired": "b"}
    written = ["UpdatePrepared", "UpdateExecuted", "Cordoned", "Drained", "AppliedFilesAndOS"]
    assert seen == [
        ([], ["UpdatePrepared"]),
        (["UpdatePrepared"], []),
        (["UpdatePrepared", "Cordoned"], ["UpdateExecuted", "Drained"]),
        (["UpdatePrepared", "Cordoned", "Drained"], ["UpdateExecuted", "AppliedFilesAndOS"]),
        (written, ["UpdatePostActionComplete", "RebootedNode"]),
        ([*written, "RebootedNode"], ["UpdatePostActionComplete"]),
        ([*written, "UpdatePostActionComplete", "RebootedNode", "Resumed"], ["UpdateComplete", "Uncordoned"]),
    ]
    status = after(DONE, there=status)
    assert (states(status, "True"), states(status, "Unknown")) == (["Updated"], [])
    assert status["configVersion"] == {"current": "b", "desired": "b"}


def test_no_reboot_is_no_reboot() -> None:
    status = after(in_phase(Phase.ACTING), in_phase(Phase.VERIFYING), in_phase(Phase.RELEASING))
    assert "RebootedNode" in states(status, "False")
    assert "Drained" in states(status, "False")


def test_a_failure_shows_where() -> None:
    failed = UpdateProgress(Phase.DEGRADED, "", "b", reason="JobFailed", why="restart app.service failed")
    status = after(in_phase(Phase.WRITING), failed)
    assert states(status, "True") == ["UpdatePrepared", "NodeDegraded"]
    assert states(status, "Unknown") == ["UpdateExecuted", "AppliedFilesAndOS"]
    entry = next(entry for entry in status["conditions"] if entry["type"] == "NodeDegraded")
    assert (entry["reason"], entry["message"]) == ("JobFailed", "restart app.service failed")
    # Another failure has another message, and the time of the first one.
    other = UpdateProgress(Phase.DEGRADED, "", "b", reason="JobFailed", why="more")
    changed = changed_status(other, status, LATER)
    assert changed is not None
    entry = next(entry for entry in changed["conditions"] if entry["type"] == "NodeDegraded")
    assert (entry["message"], entry["lastTransitionTime"]) == ("more", NOW)
    assert states(after(DONE, there=status), "True") == ["Updated"]


def test_what_is_right_is_not_written() -> None:
    assert changed_status(DONE, after(DONE), LATER) is None


def test_conditions_of_others_stay() -> None:
    """The controller's own words about its drain, and the pinned image sets."""
    drained = {"type": "Drained", "status": "True", "reason": "UpdateExecutedDrained", "message": "x"}
    theirs = [drained, {"type": "PinnedImageSetsDegraded", "status": "False", "reason": "AsExpected"}]
    status = after(in_phase(Phase.WRITING, drained=True), there={"conditions": list(theirs), "pinnedImageSets": []})
    assert status["conditions"][:2] == theirs
    assert "pinnedImageSets" not in status


def test_the_parts_of_image_mode_where_the_controller_has_them() -> None:
    part = {"type": "AppliedFiles", "status": "False", "reason": "x", "message": "", "lastTransitionTime": NOW}
    status = after(in_phase(Phase.ACTING), there={"conditions": [part]})
    found = {entry["type"]: entry["status"] for entry in status["conditions"]}
    assert (found["AppliedFiles"], found["AppliedOSImage"]) == ("True", "True")
    assert "AppliedFilesAndOS" not in found


@pytest.mark.parametrize("name", ["/etc/x", "", "A"])
def test_a_name_that_is_none_of_an_object(name: str) -> None:
    assert changed_status(UpdateProgress(Phase.IDLE, name, name), {}, NOW) is not None
    assert "configVersion" not in after(UpdateProgress(Phase.IDLE, name, name))


def test_the_progress_of_a_status() -> None:
    assert progress_of(Status()) is None
    assert progress_of(Status(current="a", desired="b")) == UpdateProgress(Phase.IDLE, "a", "a")
    writing = Status(Phase.WRITING, current="a", desired="b", drained=True)
    assert progress_of(writing) == UpdateProgress(Phase.WRITING, "", "b", drained=True)
    failed = Status(Phase.DEGRADED, "JobFailed", "a\nb", current="a", desired="b")
    assert progress_of(failed) == UpdateProgress(Phase.DEGRADED, "", "b", False, "JobFailed", "a b")


@pytest.mark.parametrize("phase", Phase)
def test_each_phase_has_conditions(phase: Phase) -> None:
    assert changed_status(in_phase(phase), {}, NOW) is not None
