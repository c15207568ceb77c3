# SPDX-License-Identifier: Apache-2.0
"""Patterns of units in a policy: what they match, which of them decides, what a cluster would refuse."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plan import unit_pattern
from nodeagent.core.plan.change import Change, ChangeKind
from nodeagent.core.plan.policy import (
    DAEMON_RELOAD,
    NONE,
    REBOOT,
    UNLISTED,
    Entry,
    MatchKind,
    Policy,
    match,
    merge,
    restart,
)
from nodeagent.core.plan.policy_explain import explain, extensions
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.core.plan.sides import Sides
from nodeagent.errors import InvalidInput

letters = st.text("ab@-", max_size=4)
patterns = st.builds(lambda before, after: f"{before}*{after}.service", letters, letters)


@given(patterns, letters)
def test_a_star_is_any_run_of_characters(pattern: str, name: str) -> None:
    unit = f"{name}.service"
    assert unit_pattern.matches(pattern, unit) == fnmatchcase(unit, pattern)


@given(patterns, patterns, letters)
def test_patterns_with_a_unit_in_common_overlap(one: str, other: str, name: str) -> None:
    unit = f"{name}.service"
    if unit_pattern.matches(one, unit) and unit_pattern.matches(other, unit):
        assert unit_pattern.overlap(one, other)


@given(patterns, patterns)
def test_overlapping_patterns_have_a_unit_in_common(one: str, other: str) -> None:
    befores, afters = zip(one.split("*"), other.split("*"), strict=True)
    common = f"{max(befores, key=len)}{max(afters, key=len)}"
    both = unit_pattern.matches(one, common) and unit_pattern.matches(other, common)
    assert both == unit_pattern.overlap(one, other)


NAMES = ("wg-quick@wg0.service", "wg-quick@wg*.service", "wg-quick@.service", "wg-*.service", "*.service")


def named(*names: str) -> Policy:
    return Policy(units={name: Entry(name, (NONE,)) for name in names})


@pytest.mark.parametrize("strongest", range(len(NAMES)))
@pytest.mark.parametrize("turned", [False, True])
def test_the_exact_name_wins_then_the_most_specific_pattern(strongest: int, turned: bool) -> None:
    names = NAMES[strongest:]
    found = match(named(*(names[::-1] if turned else names)), unit("wg-quick@wg0.service"))
    assert found is not None
    assert found.entry.key == names[0]
    assert found.kind == (MatchKind.EXACT if strongest == 0 else MatchKind.PATTERN)


def unit(name: str) -> Change:
    return Change("unit", name, ChangeKind.MODIFIED)


def test_what_a_pattern_does_not_match() -> None:
    policy = named(*NAMES[:4])
    assert [match(policy, unit(name)) for name in ("wg-quick@wg0.timer", "x.service")] == [None, None]
    assert match(named("*.timer"), Change("file", "/etc/x.timer", ChangeKind.ADDED)) is None


def test_of_equals_the_last_file_wins_also_where_an_earlier_file_has_the_same() -> None:
    weak = Policy(units={"a*.service": Entry("a*.service", (NONE,))})
    middle = Policy(units={"*b.service": Entry("*b.service", (REBOOT,))})
    for layers, key in (((weak, middle), "*b.service"), ((weak, middle, weak), "a*.service")):
        policy = Policy()
        for layer in layers:
            policy = merge(policy, layer)
        found = match(policy, unit("ab.service"))
        assert found is not None
        assert found.entry.key == key


OWN = [{"type": "DaemonReload"}, {"type": "Restart", "restart": {"serviceName": "%n"}}]


def entry(name: str, actions: Any = OWN) -> dict[str, Any]:
    return {"name": name, "actions": actions}


def parsed(*units: dict[str, Any]) -> Policy:
    return parse_policy(repr({"units": list(units)}).encode())


def test_an_action_on_the_unit_that_changes() -> None:
    policy = parsed(entry("wg-quick@.service"), entry("*.timer"), entry("x.service"))
    for name in ("wg-quick@wg0.service", "a.timer", "x.service"):
        found = match(policy, unit(name))
        assert found is not None
        assert found.entry.decide(unit(name), Sides()).actions == (DAEMON_RELOAD, restart(name))
        assert explain(policy, "unit", name).actions == (DAEMON_RELOAD, restart(name))


def test_a_template_has_instances_that_the_policy_does_not_know() -> None:
    verdict = parsed(entry("a@.service")).units["a@.service"].decide(unit("a@.service"), Sides())
    assert verdict.actions == UNLISTED
    assert "which instances of a@.service run is not known" in verdict.why


@pytest.mark.parametrize(
    ("units", "words"),
    [
        ([entry("a*b*.service")], "must not have more than one *"),
        ([entry("a*@.service")], "must not have more than one *"),
        ([entry("a.*")], "end in a unit type"),
        ([entry("a*.service"), entry("*a.service", [{"type": "None"}])], "match the same units"),
        ([entry("a@.service"), entry("a@*.service", [{"type": "None"}])], "match the same units"),
        ([entry("a.service", [{"type": "Restart", "restart": {"serviceName": "*.service"}}])], "must be letters"),
    ],
)
def test_refused(units: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parsed(*units)
    assert any(words in str(problem) for problem in raised.value.problems)


def test_the_unit_that_changes_is_for_entries_of_units_only() -> None:
    with pytest.raises(InvalidInput):
        parse_policy(repr({"files": [{"path": "/etc/x", "actions": OWN}]}).encode())


def test_the_explanation_names_the_weaker_patterns() -> None:
    explanation = explain(named(*NAMES[1:]), "unit", "wg-quick@wg0.service")
    assert explanation.match == "pattern"
    assert [shadowed.key for shadowed in explanation.shadowed] == list(NAMES[2:])
    assert "the most specific pattern that matches it" in explanation.reason
    exact = explain(named(*NAMES), "unit", "wg-quick@wg0.service")
    assert (exact.match, len(exact.shadowed)) == ("exact", 4)


def test_what_a_cluster_would_refuse() -> None:
    policy = parsed(entry("*.timer"), entry("a@.service", [{"type": "None"}]), entry("b.service", [{"type": "Drain"}]))
    assert [(each.path, each.message) for each in extensions(policy)] == [
        ("*.timer", "an API server refuses * in the name of a unit"),
        ("a@.service", "an API server refuses @ in the name of a unit"),
        ("*.timer", "an API server refuses the serviceName %n"),
    ]
    assert list(extensions(parse_policy(b"files: [{path: /etc/x, actions: [{type: None}]}]"))) == []
