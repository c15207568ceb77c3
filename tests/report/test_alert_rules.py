# SPDX-License-Identifier: Apache-2.0
"""The alerting rules of the docs: each has a test to fire and not to fire, which integration/prometheus runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.reasons import known_reasons
from nodeagent.update.states import Phase
from tests.support import removed

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
TESTS: list[dict[str, Any]] = yaml.safe_load((EXAMPLES / "alerts-test.yaml").read_text())["tests"]


def test_each_rule_is_tested_to_fire_and_not_to_fire() -> None:
    cases = [case for test in TESTS for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in RULES}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == names
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == names


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_a_rule_names_phases_and_reasons_that_exist(rule: dict[str, Any]) -> None:
    for known, label in ((Phase, "phase"), (known_reasons(), "reason")):
        words = [word for found in re.findall(rf'{label}=~?"([^"]*)"', rule["expr"]) for word in found.split("|")]
        assert set(words) <= {str(each) for each in known} | removed.words("reason")
