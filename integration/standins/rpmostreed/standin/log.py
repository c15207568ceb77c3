# SPDX-License-Identifier: Apache-2.0
"""Lines for the journal, through stderr."""

from __future__ import annotations

import sys


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
