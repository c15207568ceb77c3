# SPDX-License-Identifier: Apache-2.0
"""The plan in an entry of the history: its values, and its bounds."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.plan_values import with_values
from nodeagent.domains import default_policy
from nodeagent.update.history.entry import MAX_DETAILS, MAX_OS, MAX_TEXT, plan_summary
from tests.world.run import config

OLD = config("old", {"/etc/a": "one\n"})
NEW = config("new", {"/etc/a": "two\n"}, kernel_arguments=tuple(f"a{number}={'x' * 500}" for number in range(9)))
PLAN = with_values(make_plan(OLD, NEW, default_policy()), OLD, NEW)


def test_it_has_the_values_of_each_change() -> None:
    changes = {change["key"]: change for change in plan_summary(PLAN)["changes"]}
    assert changes["/etc/a"]["details"] == [{"what": "content", "added": 1, "removed": 1}]


def test_values_are_bounded() -> None:
    found = plan_summary(PLAN, "x" * 5000)
    (details,) = [change["details"] for change in found["changes"] if change["domain"] != "file"]
    assert len(details) == MAX_DETAILS
    assert {len(detail["after"]) for detail in details} == {MAX_TEXT}
    assert len(found["os"]) == MAX_OS


def test_what_is_not_known_has_no_key() -> None:
    bare = replace(PLAN, changes=tuple(replace(each, details=()) for each in PLAN.changes))
    found = plan_summary(bare)
    assert "os" not in found
    assert not any("details" in change for change in found["changes"])
