# SPDX-License-Identifier: Apache-2.0
"""Shell completion is written from the sources beside the script."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGING = Path(__file__).parents[2] / "packaging"
PARSER = """
import argparse
def build_parser():
    parser = argparse.ArgumentParser(prog="nodeagent")
    parser.add_argument("--of-the-copy")
    return parser
"""


def test_a_copy_of_the_sources_has_its_own_parser(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for package in ("nodeagent", "nodeagent/cli"):
        (source / package).mkdir(parents=True)
        (source / package / "__init__.py").touch()
    (source / "nodeagent/cli/main.py").write_text(PARSER)
    (source / "nodeagent/reasons.py").write_text("def known_reasons(): return ['ReasonOfTheCopy']")
    (source / "packaging").mkdir()
    script = shutil.copy(PACKAGING / "completion.py", source / "packaging")
    subprocess.run([sys.executable, script, tmp_path / "root"], check=True, timeout=60)
    written = (tmp_path / "root/usr/share/bash-completion/completions/nodeagent").read_text()
    assert "--of-the-copy" in written
    assert "ReasonOfTheCopy" in written
