"""The kinds of error. Each reason (``nodeagent.reasons``) has one."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """The kinds of error: the exit status of the command line contract, and whether the agent retries."""

    INPUT = 2, False
    UNRECONCILABLE = 3, False
    REFUSED = 4, True
    UNREACHABLE = 5, True
    RETRY = 1, True
    FAULT = 1, False

    def __init__(self, exit_code: int, retryable: bool) -> None:
        self.exit_code = exit_code
        self.retryable = retryable
