# SPDX-License-Identifier: Apache-2.0
"""A small stand-in of bootc, which no registry of packages has as a program; see the README."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "NODEAGENT_BOOTC"


def program() -> Path:
    """The program for /usr/bin/bootc of test hosts: the real one that VARIABLE names, or the stand-in."""
    return Path(os.environ.get(VARIABLE) or Path(__file__).with_name("bootc.py"))
