# SPDX-License-Identifier: Apache-2.0
"""The tests that ``make quick`` runs for a change, on a tree of a few files with a history of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick.choice import changed_files, choose

ROOT = Path(__file__).resolve().parents[2]
TREE = {
    "nodeagent/core/pace.py": "",
    "nodeagent/core/wait.py": "from nodeagent.core.pace import Pace",
    "nodeagent/agent/loop.py": "from nodeagent.core.wait import Wait",
    "tests/conftest.py": "",
    "tests/core/test_pace.py": "from nodeagent.core.pace import Pace",
    "tests/core/test_other.py": "from nodeagent.core.other import Other",
    "tests/agent/test_loop.py": "from nodeagent.agent.loop import Loop\nfrom tests.support.hosts import Host",
    "tests/agent/test_status.py": 'golden("status", "idle", text)',
    "tests/golden/status.txt": "### idle",
    "tests/packaging/test_tools.py": 'text = (ROOT / "Makefile").read_text()',
    "tests/support/hosts.py": "",
    "tests/test_docs.py": "",
    "tests/test_names.py": "",
    "docs/index.md": "",
    "packaging/tools.sh": "",
    "Makefile": "",
}


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def chosen(root: Path, *changed: str) -> list[str]:
    return [str(test.relative_to(root)) for test in choose(root, [root / name for name in changed])]


def test_a_module_brings_its_test_its_folder_and_the_choose_its_users_and_the_tree_last(root: Path) -> None:
    assert chosen(root, "nodeagent/core/pace.py") == [
        "tests/core/test_pace.py",
        "tests/core/test_other.py",
        "tests/test_docs.py",
        "tests/test_names.py",
    ]
    assert "tests/agent/test_loop.py" in chosen(root, "nodeagent/core/wait.py")


def test_a_changed_test_is_first_and_each_changed_module_has_its_turn(root: Path) -> None:
    tests = chosen(root, "nodeagent/agent/loop.py", "nodeagent/core/pace.py", "tests/agent/test_status.py")
    assert tests[:3] == ["tests/agent/test_status.py", "tests/agent/test_loop.py", "tests/core/test_pace.py"]


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("tests/support/hosts.py", ["tests/agent/test_loop.py", "tests/test_docs.py", "tests/test_names.py"]),
        ("tests/golden/status.txt", ["tests/agent/test_status.py"]),
        ("docs/index.md", ["tests/test_docs.py"]),
        ("packaging/tools.sh", ["tests/packaging/test_tools.py"]),
        ("Makefile", ["tests/packaging/test_tools.py"]),
    ],
)
def test_what_the_product_does_not_import_has_the_choose_what_reads_it(
    root: Path, changed: str, tests: list[str]
) -> None:
    assert chosen(root, changed) == tests


def test_a_module_that_was_removed_brings_the_tests_that_still_import_it(root: Path) -> None:
    (root / "nodeagent/core/pace.py").unlink()
    assert chosen(root, "nodeagent/core/pace.py")[0] == "tests/core/test_pace.py"


def test_a_test_that_was_removed_is_not_run(root: Path) -> None:
    (root / "tests/core/test_other.py").unlink()
    assert "tests/core/test_other.py" not in chosen(root, "tests/core/test_other.py")


def test_changes_are_those_of_the_branch_of_the_work_tree_and_new_files(root: Path) -> None:
    git(root, "checkout", "-b", "topic")
    (root / "nodeagent/core/wait.py").write_text("changed")
    git(root, "commit", "-am", "on the topic")
    git(root, "checkout", "main")
    (root / "docs/index.md").write_text("changed on main since")
    git(root, "commit", "-am", "on main")
    git(root, "checkout", "topic")
    (root / "Makefile").write_text("changed")
    (root / "docs/new.md").write_text("")
    names = ["Makefile", "docs/new.md", "nodeagent/core/wait.py"]
    assert sorted(changed_files(root, "main")) == [root / name for name in names]
    assert sorted(changed_files(root, "unknown")) == [root / name for name in names[:2]]


def test_what_there_is_no_time_for_is_skipped_and_named(tmp_path: Path) -> None:
    (tmp_path / "test_slow.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.quick.limit", "--seconds", "0", "-p", "no:cacheprovider"]
    # The guards of the project, which give pytest-asyncio a loop, are not loaded here.
    command += ["-W", "ignore"]
    done = subprocess.run(
        [*command, "-c", ROOT / "pyproject.toml", tmp_path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "SKIPPED [1]" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout, "a run without a test would prove nothing"
    assert "make unit runs it" in done.stdout
