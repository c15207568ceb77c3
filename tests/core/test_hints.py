# SPDX-License-Identifier: Apache-2.0
"""Each reason has a next step, and each one is used."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import nodeagent
from nodeagent import features
from nodeagent.kinds import Kind, ReasonEnum
from nodeagent.reasons import Reason, hint, known_reasons, reason_of
from tests.support import removed
from tests.support.golden import Golden

PACKAGE = Path(nodeagent.__file__).parent


def test_reasons_are_camel_case_and_hints_are_one_line() -> None:
    for reason in known_reasons():
        text = reason.hint
        assert text != hint("SomethingNew")
        assert re.fullmatch(r"[A-Z][A-Za-z]+", reason)
        assert text == text.strip()
        assert "\n" not in text
        assert not text.endswith(".")
        assert len(text) <= 110, f"the hint of {reason} must fit into one line of nodeagent status: name one next step"


@pytest.mark.finding(
    "users: the meaning of reasons",
    "Each reason has a sentence on what it means, in `nodeagent explain` and the reference.",
)
def test_each_reason_has_a_meaning() -> None:
    for reason in known_reasons():
        sentence = reason.meaning
        # Some begin with a name, such as etcd.
        assert re.fullmatch(r"[^\n]{10,}[^.]\.", sentence), f"write in a sentence what {reason} means"
        assert len(sentence) <= 120, f"the meaning of {reason} must fit into one line of nodeagent explain"
        assert sentence.rstrip(".").lower() != reason.hint.lower()
    meanings = [reason.meaning for reason in known_reasons()]
    assert len(set(meanings)) == len(meanings)
    assert reason_of("SomethingNew").meaning == ""


def test_the_text_of_each_hint(golden: Golden) -> None:
    golden("hints", "reasons", hints(Reason))
    for name, door in features.doors().items():
        if door.reasons is not None:
            golden("hints", f"reasons of the feature {name}", hints(door.reasons), feature=name)


def hints(words: type[ReasonEnum]) -> str:
    return "".join(f"{reason}: {reason.hint}\n" for reason in sorted(words))


def test_a_reason_of_a_newer_agent(golden: Golden) -> None:
    newer = reason_of("SomethingNew")
    assert (newer, newer.kind) == ("SomethingNew", Kind.FAULT)
    assert newer not in known_reasons()
    golden("hints", "a reason of a newer agent", hint("SomethingNew"))
    assert hint("") == ""


def used_in(paths: Iterable[Path]) -> set[str]:
    """Return the names of reasons in the modules but those that declare them."""
    texts = [path.read_text() for path in paths if path.name != "reasons.py"]
    return {word for text in texts for word in re.findall(r"\b(\w*Reason\.[A-Z_]+)\b", text)}


def test_each_reason_is_used() -> None:
    used = used_in(PACKAGE.rglob("*.py"))
    lists = [words for words in ReasonEnum.__subclasses__() if words.__module__.startswith("nodeagent.")]
    declared = {f"{words.__name__}.{name}" for words in lists for name in words.__members__}
    made_of_systemds_words = {name for name in declared if name.startswith("Reason.JOB_")}
    unused = declared - used - made_of_systemds_words - removed.words("use")
    assert unused == set(), "no code has these reasons: use them, or remove them"


def test_reasons_in_the_docs_exist() -> None:
    """No other word on that page has two capital letters in backquotes."""
    text = (PACKAGE.parent / "docs/explanation/os-updates.md").read_text()
    words = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", text))
    assert words - set(known_reasons()) - removed.words("reason") == set()
    assert {"StagedLost", "FinalizeFailed", "NoRollback", "BootcHost"} <= words
