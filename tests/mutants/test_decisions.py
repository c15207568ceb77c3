# SPDX-License-Identifier: Apache-2.0
"""Each kind of decision is found, and what is made of it is Python."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutants import switch
from tests.mutants.__main__ import FOLDERS, ROOT, sample
from tests.mutants.decisions import changed, decisions, switched
from tests.mutants.nearest import nearest


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if a:\n    b = 1", ["if True:\n    b = 1", "if False:\n    b = 1"]),
        ("if TYPE_CHECKING:\n    import a", []),
        ("while a:\n    break", ["while False:\n    break", "while a:\n    pass"]),
        ("x = a < b", ["x = (a <= b)"]),
        ("x = a not in b", ["x = (a in b)"]),
        ("x = (y := f(a)) < b + 1", ["x = ((y := f(a)) <= (b + 1))"]),
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


@pytest.mark.long
def test_the_sample_is_python_and_has_tests_near() -> None:
    chosen = sample(ROOT, FOLDERS, seed=1, count=20)
    for module, decision in chosen:
        ast.parse(changed(module.read_text(), decision))
        assert nearest(ROOT, module)


def test_a_sample_is_the_same_for_its_seed() -> None:
    first, second = (sample(ROOT, ["core/plan"], seed=1, count=20) for _ in range(2))
    assert first == second
    assert first != sample(ROOT, ["core/plan"], seed=2, count=20)


def test_the_tests_of_a_module_are_nearest() -> None:
    assert nearest(ROOT, Path(ROOT, "nodeagent/core/config/kargs.py"))[0].name == "test_kargs.py"


SOURCE = """
def f(a, b, g):
    if a < b and not b in (1, 2):
        g.append(
            a,
        )
        return True
    for c in (n := [a, b]):
        if (d := c) > b:
            break
    else:
        raise ValueError
    return [x for x in n if x] if a == 1 else d
"""


def test_a_switch_does_what_the_change_of_the_text_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcomes(text: str) -> list[object]:
        names: dict[str, Callable[..., object]] = {}
        exec(text, names)
        return [outcome(names["f"], a, b) for a in range(4) for b in range(4)]

    def outcome(f: Callable[..., object], a: int, b: int) -> object:
        appended: list[int] = []
        try:
            return f(a, b, appended), appended
        except ValueError:
            return ValueError, appended
        except NameError:
            return NameError, appended

    numbered = dict(enumerate(decisions(SOURCE)))
    text = switched(SOURCE, numbered)
    assert len(numbered) == 16
    for number, decision in numbered.items():
        monkeypatch.setattr(switch, "taken_away", number)
        assert outcomes(text) == outcomes(changed(SOURCE, decision)) != outcomes(SOURCE), decision
    monkeypatch.setattr(switch, "taken_away", -1)
    assert outcomes(text) == outcomes(SOURCE)


@pytest.mark.long
def test_every_decision_can_have_a_switch() -> None:
    for module in sorted(Path(ROOT, "nodeagent").rglob("*.py")):
        source = module.read_text(encoding="utf-8")
        ast.parse(switched(source, dict(enumerate(decisions(source)))))


def test_a_user_of_a_module_that_is_a_package_has_its_own_folder(tmp_path: Path) -> None:
    files = {
        "nodeagent/core/one.py": "",
        "nodeagent/user/__init__.py": "from nodeagent.core.one import ANY\n",
        "tests/core/test_any.py": "",
        "tests/user/test_any.py": "",
        "tests/other/test_any.py": "",
    }
    for name, text in files.items():
        tmp_path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(name).write_text(text)
    near = nearest(tmp_path, tmp_path / "nodeagent/core/one.py")
    assert {test.parent.name for test in near} == {"core", "user"}


def test_a_folder_without_a_mirror_has_the_tests_of_the_folder_above() -> None:
    assert {test.parent.name for test in nearest(ROOT, Path(ROOT, "nodeagent/update/stages/drain.py"))} == {"update"}
