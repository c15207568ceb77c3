# SPDX-License-Identifier: Apache-2.0
"""Each kind of decision is found, and what is made of it is Python."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.__main__ import FOLDERS, ROOT, sample
from tests.mutants.decisions import changed, decisions
from tests.mutants.nearest import nearest


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if a:\n    b = 1", ["if True:\n    b = 1", "if False:\n    b = 1"]),
        ("if TYPE_CHECKING:\n    import a", []),
        ("while a:\n    break", ["while False:\n    break", "while a:\n    pass"]),
        ("x = a < b", ["x = (a <= b)"]),
        ("x = a not in b", ["x = (a in b)"]),
        ("x = a and b or c", ["x = ((a and b) and (c))", "x = ((a) or (b)) or c"]),
        ("x = not a", ["x = (a)"]),
        ("save(x)", ["pass"]),
        ("raise ValueError", ["pass"]),
        ("def f():\n    return True", ["def f():\n    return False"]),
        ("x = 'ü' == a", ["x = ('ü' != a)"]),
    ],
)
def test_what_becomes_of_a_decision(source: str, expected: list[str]) -> None:
    assert [changed(source, each) for each in decisions(source)] == expected


def test_the_sample_is_python_and_has_tests_near() -> None:
    chosen = sample(ROOT, FOLDERS, seed=1, count=20)
    for module, decision in chosen:
        ast.parse(changed(module.read_text(), decision))
        assert nearest(ROOT, module)[0]


def test_a_sample_is_the_same_for_its_seed() -> None:
    first, second = (sample(ROOT, ["core/plan"], seed=1, count=20) for _ in range(2))
    assert first == second
    assert first != sample(ROOT, ["core/plan"], seed=2, count=20)


def test_the_tests_of_a_module_are_nearest() -> None:
    assert nearest(ROOT, Path(ROOT, "nodeagent/core/config/kargs.py"))[0][0].name == "test_kargs.py"


def test_a_user_of_a_module_that_is_a_package_has_its_own_folder() -> None:
    near, wider = nearest(ROOT, Path(ROOT, "nodeagent/core/validate/started.py"))
    assert {test.parent.name for test in near} >= {"validate", "domains"}
    assert Path(ROOT, "tests/domains/test_readers.py") in (*near, *wider)
    assert Path(ROOT, "tests/integration/test_snapshot.py") not in (*near, *wider)
