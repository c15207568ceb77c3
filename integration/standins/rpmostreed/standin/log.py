"""Lines for the journal, through stderr."""

from __future__ import annotations

import sys


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
