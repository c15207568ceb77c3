# SPDX-License-Identifier: Apache-2.0
"""The kinds of error. Each reason (``nodeagent.reasons``) has one."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """The kinds of error, each with the exit status of the command line contract."""

    INPUT = "input", 2
    UNRECONCILABLE = "unreconcilable", 3
    REFUSED = "refused", 4
    UNREACHABLE = "unreachable", 5
    # The agent tries again on its own.
    RETRY = "retry", 1
    FAULT = "fault", 1

    def __init__(self, _word: str, exit_code: int) -> None:
        self.exit_code = exit_code
