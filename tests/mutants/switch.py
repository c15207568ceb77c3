# SPDX-License-Identifier: Apache-2.0
"""The switch of the decisions: which one is taken away in this process, and which were reached."""

from __future__ import annotations

import os

VARIABLE = "NODEAGENT_MUTANT"
taken_away = int(os.environ.get(VARIABLE, "-1"))
"""A child process inherits it from the test that starts it."""
reached: set[int] = set()


def lacks(number: int) -> bool:
    """Return whether decision ``number`` is taken away. Called by what ``decisions.switched`` makes of a module."""
    reached.add(number)
    return number == taken_away


def take_away(number: int) -> None:
    """Take decision ``number`` away, in this process and in the children it starts."""
    global taken_away
    taken_away = number
    os.environ[VARIABLE] = str(number)
