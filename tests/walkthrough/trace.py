# SPDX-License-Identifier: Apache-2.0
"""Records which files of the product a call passes, in the order in which they are entered first."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import nodeagent

__all__ = ["passed_files"]

PACKAGE = str(Path(nodeagent.__file__).parent) + "/"


@contextmanager
def passed_files() -> Iterator[list[str]]:
    """Yield a list that grows inside the context. Imports do not count, only calls of functions."""
    found: dict[str, None] = {}
    files: list[str] = []

    def profile(frame: FrameType, event: str, _arg: Any) -> None:
        code = frame.f_code
        # The body of a class runs with the import of its module, which another test may have done before.
        called = event == "call" and code.co_flags & inspect.CO_OPTIMIZED
        if called and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            found.setdefault(code.co_filename.removeprefix(PACKAGE))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        files.extend(found)
