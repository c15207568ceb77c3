"""Whoever invents a reason says what to do about it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import nodeagent
from nodeagent.core.hints import DOCUMENTATION, HINTS, documentation, hint
from nodeagent.host.fs import os_errors
from nodeagent.host.rpmostree import failures

PACKAGE = Path(nodeagent.__file__).parent
ROOMS = ("agent", "core", "domains", "host", "kube", "log")  # errors of cli carry their own hints
POSITIONS = {"Next": 1, "degraded": 3, "_failed": 2, "Gate": 0, "Refusal": 0}
"""Functions that take a reason by position."""


def literals(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="reason", value=value):
                yield value
            case ast.Assign(targets=[ast.Name(id="default_reason")], value=value):
                yield value
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if name in POSITIONS:
                yield from args[POSITIONS[name] : POSITIONS[name] + 1]


def reasons() -> set[str]:
    files = [
        PACKAGE / "errors.py",
        PACKAGE / "settings/schema.py",
        *(p for room in ROOMS for p in (PACKAGE / room).rglob("*.py")),
    ]
    trees = [ast.parse(path.read_text()) for path in files]
    found = {value.value for tree in trees for value in literals(tree) if isinstance(value, ast.Constant)}
    tables = {
        *os_errors._TERMINAL.values(),
        *os_errors._RETRYABLE.values(),
        *(reason for _, reason, _ in failures._TABLE),
    }
    return {str(value) for value in found if value} | tables


def test_every_reason_has_a_hint() -> None:
    assert reasons() - set(HINTS) == set()


def test_reasons_are_camel_case_and_hints_are_one_line() -> None:
    for reason, text in HINTS.items():
        assert re.fullmatch(r"[A-Z][A-Za-z]+", reason)
        assert text == text.strip()
        assert "\n" not in text
        assert not text.endswith(".")
        assert len(text) <= 110


def test_there_is_an_answer_for_a_reason_of_a_newer_agent() -> None:
    assert hint("SomethingNew") == "journalctl -u nodeagent shows the details"
    assert hint("") == ""


def test_every_hint_is_for_a_reason_that_somebody_gives() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "hints.py"]
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text())))
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    jobs = {word for word in HINTS if word.startswith("Job")}  # made of systemd's own words
    assert set(HINTS) - words - jobs == set()


def test_reasons_that_the_docs_speak_of_are_there() -> None:
    """Nothing else there is a word of two humps in backquotes."""
    text = (PACKAGE.parent / "docs/explanation/os-updates.md").read_text()
    words = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", text))
    assert words - set(HINTS) == set()
    assert {"StagedLost", "FinalizeFailed", "NoRollback", "BootcHost"} <= words


def test_each_reason_has_a_section_in_the_docs() -> None:
    root = PACKAGE.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Documentation"] == DOCUMENTATION
    headings = re.findall(r"^### (\w+)$", (root / "docs/reference/reasons.md").read_text(), re.MULTILINE)
    found = {f"{DOCUMENTATION}/reference/reasons.md#{heading.lower()}" for heading in headings}
    assert {documentation(reason) for reason in HINTS} == found
    assert documentation("SomethingNew") == documentation("") == ""
