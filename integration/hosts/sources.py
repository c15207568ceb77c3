# SPDX-License-Identifier: Apache-2.0
"""The code of modules as a key of a cache: changes of imports, comments and docstrings do not rebuild an image."""

from __future__ import annotations

import ast
from pathlib import Path


def code(*files: str | None) -> bytes:
    """The statements of Python files; pass ``__file__`` of the modules that make what is cached."""
    return b"\0".join(_statements(Path(file or "").read_text()).encode() for file in files)


def _statements(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [part for part in node.body if not _has_no_effect(part)] or [ast.Pass()]
    return ast.unparse(tree)


def _has_no_effect(part: ast.stmt) -> bool:
    """Imports, whose names the other statements use, and texts that are no value: docstrings."""
    if isinstance(part, (ast.Import, ast.ImportFrom)):
        return True
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)
