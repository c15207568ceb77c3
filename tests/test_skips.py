# SPDX-License-Identifier: Apache-2.0
"""What `make test` says about skipped tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.skips import VARIABLE, words

ROOT = Path(__file__).parents[1]


def test_the_last_line_counts_by_reason() -> None:
    assert words([]) == "no test was skipped"
    assert words(["b", "a", "a"]) == "3 skipped: 2 because: a; 1 because: b"


def test_make_test_installs_what_tests_are_skipped_without() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"^UNIT_TOOLS := (.*)", makefile, re.MULTILINE)[0].split()
    assert re.search(r"\$\(if \$\(ROOT\),install,missing\) \$\(UNIT_TOOLS\)", makefile)
    lines = (line.split() for line in (ROOT / "packaging/tools.txt").read_text().splitlines())
    groups = {words[0]: words[-1] for words in lines if words and words[0] != "#"}
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    wanted = {name for text in texts for name in re.findall(r"\b(?:needs|which)\(\"([\w-]+)\"", text)}
    # Debian's is no package of Fedora, where that test has nothing to test; systemctl is in the package of others.
    wanted -= {"apt-get", "grub2-editenv", "systemctl"}
    assert len(wanted) > 15
    assert [name for name in sorted(wanted) if name not in named and groups.get(name) not in named] == []


def test_each_skipped_test_is_recorded(tmp_path: Path) -> None:
    record = tmp_path / "skipped.txt"
    (tmp_path / "conftest.py").write_text("from tests.support.skips import pytest_terminal_summary")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.skipif(True, reason='there is no program')\n"
        "def test_one(): pass\n"
        "def test_two(): pytest.skip('no disk')\n"
        "def test_three(): pass\n"
    )
    environment = {**os.environ, VARIABLE: str(record), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", tmp_path]
    subprocess.run([*command, tmp_path], check=True, timeout=120, env=environment, capture_output=True)
    command = [sys.executable, "-m", "tests.support.skips", str(record)]
    said = subprocess.run(command, check=True, timeout=60, cwd=ROOT, capture_output=True, text=True).stdout
    assert said == "2 skipped: 1 because: there is no program; 1 because: no disk\n"
