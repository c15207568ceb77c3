# SPDX-License-Identifier: Apache-2.0
"""Decisions of a module, each with the text that takes it away."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
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

CLOSED = (ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.Subscript)
"""Expressions that need no parentheses beside an operator."""


@dataclass(frozen=True, slots=True)
class Decision:
    """``start`` and ``end`` are offsets in the bytes of the module, ``text`` is put in their place."""

    line: int
    kind: str
    start: int
    end: int
    text: str
    expression: bool = False


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
        end = lines[node.end_lineno - 1] + node.end_col_offset
        return Decision(node.lineno, kind, start, end, text, isinstance(node, ast.expr))

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
                sides = [part(side) if isinstance(side, CLOSED) else f"({part(side)})" for side in (left, right)]
                yield make(node, "compare", f"({sides[0]} {FLIPPED[type(op)]} {sides[1]})")
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


SWITCH = "__import__('tests.mutants.switch').mutants.switch.lacks({})"


def switched(source: str, numbered: Mapping[int, Decision]) -> str:
    """Return ``source`` with a switch at each decision, which takes it away while the tests run."""
    texts = source.encode()
    before: list[tuple[int, int, str]] = []
    after: list[tuple[int, int, str]] = []
    for number, decision in numbered.items():
        lacks = SWITCH.format(number)
        if decision.expression:
            opening, closing = f"(({decision.text}) if {lacks} else (", "))"
        elif decision.text == "pass":
            opening, closing = f"if not {lacks}: ", ""
        else:
            line = texts.rfind(b"\n", 0, decision.start) + 1
            opening, closing = f"if {lacks}: {decision.text}\n{' ' * (decision.start - line)}", ""
        before.append((decision.start, -decision.end, opening))
        after.append((decision.end, -decision.start, closing))
    made: list[bytes] = []
    last = 0
    # What ends at a place comes before what starts there; the outer of two that start together comes first.
    marks = [(place, 0, order, text) for place, order, text in after]
    marks += [(place, 1, order, text) for place, order, text in before]
    for place, _, _, text in sorted(marks):
        made += [texts[last:place], text.encode()]
        last = place
    return b"".join([*made, texts[last:]]).decode()
