# SPDX-License-Identifier: Apache-2.0
"""The completion of the subcommands."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.packaging.test_manual import completion

__all__ = ["completion"]


def test_bash_completes(completion: Path) -> None:
    script = completion / "usr/share/bash-completion/completions/nodeagent"
    code = f"""
source {script}
COMP_WORDS=(nodeagent maintenance st) COMP_CWORD=2
$(complete -p nodeagent | sed 's/.*-F \\([^ ]*\\).*/\\1/') nodeagent st maintenance
echo "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert set(done.stdout.split()) == {"start", "stop", "status"}
