# SPDX-License-Identifier: Apache-2.0
"""The markers of tests, from which the lists of the development pages are made."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
lists, marked = (importlib.import_module(name) for name in ("lists", "marked"))

TESTS = """
import pytest

BEFORE = "refused"
pytestmark = pytest.mark.mistake("of a file")


def mistake(name, before, given):
    return pytest.param(name, given, marks=pytest.mark.mistake(name, before))


CASES = [mistake("no name", BEFORE, {}), mistake("no kind", "accepted", {"kind": other("x")})]


@pytest.mark.mistake(
    "a long text, "
    "in two parts"
)
@pytest.mark.parametrize("case", CASES)
async def test_it(case):
    mistake("called", "in a test", {})


@pytest.mark.cluster_failure("the server is away", "waits")
def test_other():
    pass


@pytest.mark.cluster_failure("the server is away")
def test_third():
    pass
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (lists, marked):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(TESTS)
    return tmp_path


def test_markers_of_files_of_cases_and_of_tests(root: Path) -> None:
    assert [tuple(each) for each in marked.marked("mistake")] == [
        (("of a file",), "tests/test_a.py"),
        (("no name", "refused"), "tests/test_a.py"),
        (("no kind", "accepted"), "tests/test_a.py"),
        (("a long text, in two parts",), "tests/test_a.py::test_it"),
    ]


def test_a_failure_has_all_its_tests_and_one_answer(root: Path) -> None:
    assert lists.cluster_failures().splitlines()[2:] == [
        "| the server is away | waits | `tests/test_a.py::test_other`, `tests/test_a.py::test_third` |"
    ]
    path = root / "tests/test_a.py"
    path.write_text(TESTS.replace('("the server is away")', '("the server is away", "fails")'))
    with pytest.raises(SystemExit, match="two tests have an answer"):
        lists.cluster_failures()
    path.write_text(TESTS.replace(', "waits"', ""))
    with pytest.raises(SystemExit, match="no test has the answer"):
        lists.cluster_failures()
