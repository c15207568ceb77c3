# SPDX-License-Identifier: Apache-2.0
"""The lists of changes, mistakes and failures of a cluster, each from the marker of its name on the tests.

What a command prints now is in the golden text of the case.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from marked import ROOT, marked
from tables import code, table

SUMMARY = re.compile("disruption: |avoidable: |unlisted: ")


def changes() -> str:
    """A row for each marked change, with the changes and the last lines of its golden text."""
    rows = [marker.arguments[:2] for marker in marked("change")]
    return table(["change", "before", "now"], _with_golden(rows, "changes", _of_plan))


def mistakes() -> str:
    """A row for each mistake that is refused offline, with its golden text."""
    rows = [marker.arguments[:2] for marker in marked("mistake") if "::" not in marker.test]
    return table(["mistake", "before", "now"], _with_golden(rows, "mistakes", _of_error))


def other_mistakes(*places: str) -> str:
    """A row for each mistake below these places whose marker has the answer of now."""
    markers = [marker for marker in marked("mistake") if "::" in marker.test and marker.test.startswith(places)]
    return table(["mistake", "before", "now", "test"], [[*each.arguments, code(each.test)] for each in markers])


def cluster_failures() -> str:
    """A row for each failure, with all tests that have it. One of them has the answer of nodeagent."""
    answers: dict[str, str] = {}
    tests: dict[str, list[str]] = {}
    for (case, *answer), test in marked("cluster_failure"):
        tests.setdefault(case, []).append(code(test))
        if answer:
            if case in answers:
                raise SystemExit(f"two tests have an answer for {case!r}: give it to one of them")
            answers[case] = answer[0]
    if missing := tests.keys() - answers.keys():
        raise SystemExit(f"no test has the answer of nodeagent for: {', '.join(sorted(missing))}")
    rows = [[case, answer, ", ".join(tests[case])] for case, answer in answers.items()]
    return table(["case", "what nodeagent does", "tests"], rows)


def cluster_files() -> str:
    """A row for each file of tests with a real API server, with the first sentence of its docstring."""
    paths = sorted((ROOT / "integration/cluster").glob("test_*.py"))
    about = {path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in paths}
    first = {path.name: re.split(r"(?<=\.) ", " ".join(text.split()))[0] for path, text in about.items()}
    return table(["file", "tests"], [[code(name), sentence.replace("``", "`")] for name, sentence in first.items()])


def _with_golden(rows: Sequence[Sequence[str]], surface: str, shown: Callable[[str], str]) -> Iterable[Sequence[str]]:
    texts = (ROOT / f"tests/golden/{surface}.txt").read_text(encoding="utf-8").split("### ")[1:]
    now: Mapping[str, str] = {name: shown(text) for name, _, text in (each.partition("\n") for each in texts)}
    if missing := now.keys() ^ {name for name, _ in rows}:
        raise SystemExit(f"{surface} without a marker or a golden text: {', '.join(sorted(missing))}")
    return [[*row, now[row[0]]] for row in rows]


def _of_error(text: str) -> str:
    return "<br>".join(code(line.removeprefix("nodeagent: ")) for line in text.strip().splitlines())


def _of_plan(text: str) -> str:
    """The rows of the changes and the summary of a plan, without diffs and the list of actions; all of an error."""
    _, found, rest = text.partition("\nchange ")
    if found:
        listed, _, rest = rest.partition("\n\n")
        lines = [*listed.splitlines()[1:], *(line for line in rest.splitlines() if SUMMARY.match(line))]
    else:
        lines = [line.removeprefix("nodeagent: ") for line in text.splitlines() if "->" not in line]
    return "<br>".join(code(" ".join(line.split())) for line in lines if line.strip())
