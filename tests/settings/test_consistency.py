# SPDX-License-Identifier: Apache-2.0
"""Settings of which each is good, and that contradict each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.settings.consistency import check_consistency, fixed_change
from nodeagent.settings.load import Loaded, load
from nodeagent.settings.schema import Settings

CLUSTER = "cluster: {kubeconfig: /k}\n"
AS_CLUSTER = "cluster: {kubeconfig: /k, source: cluster}\n"
BAD = {
    "settle": ("actions: {settle: 30}\nverify: {timeout: 20}\n", "actions.settle (30)"),
    "settle, equal": ("actions: {settle: 300}\n", "verify.timeout (300)"),
    "settle, by the other": ("verify: {timeout: 5}\n", "verify.timeout (5)"),
    "two identities": ("cluster: {kubeconfig: /k, service_account: /s}\n", "not both"),
    "no cluster": ("cluster: {source: cluster}\n", "needs a cluster"),
    "same path": ("metrics: {file: /etc/nodeagent/policy.yaml}\n", "same path"),
}
GOOD = {
    "defaults": "",
    "settle": "actions: {settle: 300}\nverify: {timeout: 900}\n",
    "no reboots": "reboot: {allow: false}\n",
    "no metrics": "metrics: {file: ''}\npolicy: ''\n",
}


def loaded(directory: Path, text: str) -> Loaded:
    (directory / "50-x.yaml").write_text(text)
    return load([directory])


@pytest.mark.finding(
    "attack: outages without end", "Settings that contradict each other are refused, with file and line of each."
)
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


@pytest.mark.finding(
    "attack: outages without end", "Settings that contradict each other are refused, with file and line of each."
)
def test_each_place_is_named_and_all_problems_at_once(tmp_path: Path) -> None:
    found = loaded(
        tmp_path, "actions: {settle: 30}\nverify:\n  timeout: 20\nmetrics: {file: /etc/nodeagent/policy.yaml}\n"
    )
    with pytest.raises(InvalidInput) as raised:
        check_consistency(found.settings, found.origins)
    lines = [problem.path.rpartition(":")[2] for problem in raised.value.problems]
    assert lines == ["1", "3", "4"]


def test_without_origins_the_message_has_no_empty_place() -> None:
    settings: Any = Settings
    with pytest.raises(InvalidInput) as raised:
        check_consistency(settings(cluster=settings().cluster.__class__(source="cluster")))
    assert raised.value.message.startswith("cluster.source: cluster needs")


def test_what_names_the_peers_and_the_store_requires_a_restart() -> None:
    settings: Any = Settings
    old = settings()
    assert fixed_change(old, settings(strict_units=True)) == ""
    assert fixed_change(old, settings(node_name="n2")) == "node_name"
    assert fixed_change(old, settings(cluster=old.cluster.__class__(kubeconfig="/k"))) == "cluster"
