# SPDX-License-Identifier: Apache-2.0
"""Guards for every test, see ``tests/support/guards.py``, and the golden texts."""

from __future__ import annotations

from tests.support.golden import golden
from tests.support.guards import (
    fitting_answers,
    fitting_errors,
    no_blocking_calls,
    no_leaked_children,
    no_leaked_tasks,
    odd_answers,
    odd_errors,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_sessionstart,
)
from tests.support.skips import pytest_terminal_summary

__all__ = [
    "fitting_answers",
    "fitting_errors",
    "golden",
    "no_blocking_calls",
    "no_leaked_children",
    "no_leaked_tasks",
    "odd_answers",
    "odd_errors",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_sessionstart",
    "pytest_terminal_summary",
]
