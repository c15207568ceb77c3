# SPDX-License-Identifier: Apache-2.0
"""What a few tests need of this machine: programs, whose packages `packaging/tools.sh` knows, and root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "packaging" / "tools.sh"
# The PATH of users other than root often lacks the latter.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing(program: str) -> str:
    """Return the reason to skip without a program, with the command that installs it; "" if it is here."""
    if shutil.which(program, path=PATH) is not None:
        return ""
    done = subprocess.run([TOOLS, "missing", program], capture_output=True, text=True, timeout=60, check=False)
    return done.stderr.strip() or f"missing: {program}"


def needs(program: str) -> pytest.MarkDecorator:
    """Skip a test without a program."""
    reason = missing(program)
    return pytest.mark.skipif(bool(reason), reason=reason)


acts_as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: without polkit, no one else may")
