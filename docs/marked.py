# SPDX-License-Identifier: Apache-2.0
"""The markers of the tests, from which the lists of tests are made.

The files are parsed, not imported: tests of the rings that need a cluster or a virtual machine are read anywhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Marked(NamedTuple):
    """A marker, with the arguments that are texts, and the test: ``file::name``, or a file if the marker is outside."""

    arguments: tuple[str, ...]
    test: str


def marked(kind: str) -> list[Marked]:
    """Return the markers ``kind`` in the order of the files and lines.

    A function of the same name in the same file makes the marked cases of a parametrized test: its first arguments are
    those of the marker.
    """
    paths = [path for tree in ("tests", "integration") for path in sorted((ROOT / tree).rglob("test_*.py"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    return [each for path, text in texts.items() if f"mark.{kind}(" in text for each in _of(path, text, kind)]


def _of(path: Path, text: str, kind: str) -> Iterator[Marked]:
    name, tree = str(path.relative_to(ROOT)), ast.parse(text)
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                for call in _calls(decorator, kind):
                    yield Marked(tuple(_texts(call, constants)), f"{name}::{node.name}")
        else:
            for call in _calls(node, kind):
                yield Marked(tuple(_texts(call, constants)), name)


def _calls(node: ast.AST, kind: str) -> Iterator[ast.Call]:
    """Yield calls of ``pytest.mark.KIND`` and of ``KIND``, in the order of the text."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        match call.func:
            case ast.Attribute(value=ast.Attribute(attr="mark"), attr=name) | ast.Name(id=name) if name == kind:
                yield call


def _texts(call: ast.Call, constants: Mapping[str, str]) -> Iterator[str]:
    for argument in call.args:
        match argument:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Name(id=name) if name in constants:
                yield constants[name]
            case _:
                return
