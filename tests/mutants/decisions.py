# SPDX-License-Identifier: Apache-2.0
"""Decisions of a module, each with the text that takes it away."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

FLIPPED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """``start`` and ``end`` are offsets in the bytes of the module, ``text`` is put in their place."""

    line: int
    kind: str
    start: int
    end: int
    text: str


def decisions(source: str) -> list[Decision]:
    """Return what can be changed in ``source``, in its order."""
    lines = [0]
    for line in source.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    texts = source.encode()

    def make(node: ast.expr | ast.stmt, kind: str, text: str) -> Decision:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = lines[node.lineno - 1] + node.col_offset
        return Decision(node.lineno, kind, start, lines[node.end_lineno - 1] + node.end_col_offset, text)

    def part(node: ast.expr) -> str:
        found = make(node, "", "")
        return texts[found.start : found.end].decode()

    def of(node: ast.AST) -> Iterator[Decision]:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                # It is no decision of a program that runs.
                return
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield make(test, "never", "False")
                if not isinstance(node, ast.While):
                    yield make(test, "always", "True")
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield make(node, "compare", f"({part(left)} {FLIPPED[type(op)]} {part(right)})")
            case ast.BoolOp(op=op, values=values):
                word = " or " if isinstance(op, ast.And) else " and "
                yield make(node, "and/or", f"({word.join(f'({part(value)})' for value in values)})")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield make(node, "not", f"({part(operand)})")
            case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
                yield make(node, "call", "pass")
            case ast.Raise():
                yield make(node, "raise", "pass")
            case ast.Return(value=ast.Constant(value=bool(value))):
                yield make(node, "return", f"return {not value}")
            case ast.Break() | ast.Continue():
                yield make(node, "jump", "pass")
            case _:
                pass

    tree = ast.parse(source)
    return sorted((each for node in ast.walk(tree) for each in of(node)), key=lambda each: (each.start, each.kind))


def changed(source: str, decision: Decision) -> str:
    """Return ``source`` without the decision."""
    text = source.encode()
    return (text[: decision.start] + decision.text.encode() + text[decision.end :]).decode()
