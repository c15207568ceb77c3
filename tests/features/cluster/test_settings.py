# SPDX-License-Identifier: Apache-2.0
"""The settings of a drain: what they refuse, and what contradicts what."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.features.cluster.settings import NodeDrainSettings
from nodeagent.settings.check import Value, check_values
from nodeagent.settings.consistency import check_consistency, fixed_change
from nodeagent.settings.load import Loaded, load
from nodeagent.settings.schema import Settings, flatten

CLUSTER = "cluster: {kubeconfig: /k}\n"
AS_CLUSTER = "cluster: {kubeconfig: /k, source: cluster}\n"
BAD = {
    "lead time": ("drain: {timeout: 60, lead_time: 60}\n", "drain.lead_time is part"),
    "order of a controller": (AS_CLUSTER + "drain: {first: [app=a]}\n", "need drain.by: self"),
    "controller": (CLUSTER + "drain: {by: controller}\n", "needs cluster.source: cluster"),
    "first and last": (CLUSTER + "drain: {first: [app=a], last: [app=a]}\n", "in drain.first and in drain.last"),
    "lead time of a controller": (AS_CLUSTER + "drain: {lead_time: 60}\n", "need drain.by: self"),
    "last of a controller": (AS_CLUSTER + "drain: {by: controller, last: [a]}\n", "need drain.by: self"),
}
GOOD = {
    "defaults": "",
    "order": AS_CLUSTER + "drain: {by: self, first: [app=a], last: [app=b], lead_time: 5}\n",
    "controller": AS_CLUSTER + "drain: {by: controller}\n",
}


def loaded(directory: Path, text: str) -> Loaded:
    (directory / "50-x.yaml").write_text(text)
    return load([directory])


@pytest.mark.parametrize("name", BAD)
def test_settings_that_contradict_each_other(tmp_path: Path, name: str) -> None:
    text, words = BAD[name]
    found = loaded(tmp_path, text)
    with pytest.raises(InvalidInput) as raised:
        check_consistency(found.settings, found.origins)
    problems = [problem for problem in raised.value.problems if words in problem.message]
    assert problems
    assert all(problem.path.startswith(f"{tmp_path}/50-x.yaml:") for problem in problems)


@pytest.mark.parametrize("name", GOOD)
def test_settings_that_do_not(tmp_path: Path, name: str) -> None:
    found = loaded(tmp_path, GOOD[name])
    check_consistency(found.settings, found.origins)


def test_a_selector_is_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as raised:
        loaded(tmp_path, "drain: {last: ['app in (a, b)']}")
    (problem,) = raised.value.problems
    assert problem.path == f"{tmp_path}/50-x.yaml:1"
    assert problem.message == (
        "drain.last must be a list, each a label selector, as in app=db or app=db,tier!=test "
        "(=, !=, KEY and !KEY; no spaces); wrong is 'app in (a, b)'"
    )


def test_a_list_is_a_list_in_and_out() -> None:
    settings = check_values({"drain.first": Value(["app=a", "app=b"], "x")})
    assert settings.of(NodeDrainSettings).first == ("app=a", "app=b")
    assert flatten(settings)["drain.first"] == ["app=a", "app=b"]


def test_another_order_needs_no_restart() -> None:
    assert fixed_change(Settings(), Settings(parts=(NodeDrainSettings(first=("a",)),))) == ""
