# SPDX-License-Identifier: Apache-2.0
"""The settings: which selectors are valid, and what contradicts itself."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.errors import InvalidInput
from nodeagent.features.busy_pods.settings import SELECTOR, BusyPodSettings
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.load import load
from tests.features.busy_pods.selectors import INVALID, REFUSED_HERE, VALID

CLUSTER = "cluster: {kubeconfig: /k}\n"


def is_valid(selector: str) -> bool:
    return re.search(SELECTOR, selector) is not None


@pytest.mark.parametrize("selector", VALID)
def test_a_valid_selector_is_read(tmp_path: Path, selector: str) -> None:
    (tmp_path / "50-x.yaml").write_text(f"{CLUSTER}busy_pods: {{selectors: [{json.dumps(selector)}]}}\n")
    found = load([tmp_path])
    check_consistency(found.settings, found.origins)
    assert found.settings.of(BusyPodSettings).selectors == (selector,)


@pytest.mark.parametrize("selector", ["", " ", *INVALID, *REFUSED_HERE])
def test_another_text_is_a_problem_of_its_line(tmp_path: Path, selector: str) -> None:
    (tmp_path / "50-x.yaml").write_text(f"{CLUSTER}busy_pods: {{selectors: [a=b, {json.dumps(selector)}]}}\n")
    with pytest.raises(InvalidInput) as raised:
        load([tmp_path])
    (problem,) = raised.value.problems
    assert (raised.value.reason, problem.path) == ("SettingsInvalid", f"{tmp_path}/50-x.yaml:2")
    assert problem.message.startswith("busy_pods.selectors must be a list, each a label selector of Kubernetes")
    assert problem.message.endswith(f"; wrong is {selector[:60]!r}")


WORDS = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,5}[A-Za-z0-9])?", fullmatch=True)
KEYS = st.builds(
    lambda prefix, name: f"{prefix}/{name}" if prefix else name,
    st.sampled_from(["", "a", "example.com", "x-y.z"]),
    WORDS,
)
SPACES = st.text(" \t", max_size=2)
LISTS = st.lists(WORDS, min_size=1, max_size=3)
TERMS = st.one_of(
    KEYS,
    st.builds("!{1}{0}".format, KEYS, SPACES),
    st.builds("{0}{3}{1}{3}{2}".format, KEYS, st.sampled_from(["=", "==", "!="]), WORDS | st.just(""), SPACES),
    st.builds("{0}{2}{1}".format, KEYS, st.integers(0, 10**9), st.sampled_from(["<", ">", " < "])),
    st.builds(
        lambda key, word, values, space: f"{key} {word}{space}({space}{(space + ',').join(values)}{space})",
        KEYS,
        st.sampled_from(["in", "notin"]),
        LISTS,
        SPACES,
    ),
)


@given(st.lists(TERMS, min_size=1, max_size=4), SPACES)
def test_each_list_of_terms_is_a_selector(terms: list[str], space: str) -> None:
    assert is_valid(f"{space},{space}".join(terms) + space)
    assert not is_valid(",".join([*terms, ""]))
    assert not is_valid(",".join(["", *terms]))


@given(st.text(st.sampled_from("ab=!<>(), \t\n/.-_1in"), max_size=200))
def test_any_text_is_judged_soon(text: str) -> None:
    before = time.process_time()
    is_valid(text)
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    "selector", ["a" * 1023 + "!", "a." * 500 + "/", "a in (" + "b," * 500, "!a," * 340 + "!", "a " * 500 + "!"]
)
def test_a_long_text_is_judged_soon(selector: str) -> None:
    before = time.process_time()
    assert not is_valid(selector)
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("busy_pods: {selectors: [a]}\n", "busy_pods.selectors needs a cluster"),
        (CLUSTER + "busy_pods: {namespaces: [a]}\n", "need busy_pods.selectors"),
        (CLUSTER + "busy_pods: {longest_wait: 5}\n", "need busy_pods.selectors"),
        (CLUSTER + f"busy_pods: {{selectors: {json.dumps(['a'] * 17)}}}\n", "more than 16 entries"),
    ],
)
def test_settings_that_contradict_each_other(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "50-x.yaml").write_text(text)
    found = load([tmp_path])
    with pytest.raises(InvalidInput) as raised:
        check_consistency(found.settings, found.origins)
    assert any(words in problem.message for problem in raised.value.problems)
