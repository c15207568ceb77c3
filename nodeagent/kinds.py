# SPDX-License-Identifier: Apache-2.0
"""The kinds of error, and what a reason is. Each reason (``nodeagent.reasons``, and those of features) has a kind."""

from __future__ import annotations

from enum import Enum, ReprEnum
from typing import Self


class Kind(Enum):
    """The kinds of error, each with the exit status of the command line contract."""

    INPUT = "input", 2
    UNRECONCILABLE = "unreconcilable", 3
    REFUSED = "refused", 4
    # As refused, and a repetition has the same result: the config is not tried again without a request.
    REJECTED = "rejected", 4
    UNREACHABLE = "unreachable", 5
    # The agent tries again on its own.
    RETRY = "retry", 1
    FAULT = "fault", 1

    def __init__(self, _word: str, exit_code: int) -> None:
        self.exit_code = exit_code


# The hint for a reason of a newer agent.
_UNKNOWN = "journalctl -u nodeagent shows the details"


class AnyReason(str):
    """A reason, with its kind, its hint and its meaning: of the base (``Reason``), or of a feature.

    The meaning is a sentence: what happened, or what the agent waits for. "" for a word of a newer agent.
    """

    kind: Kind
    hint: str
    meaning: str

    def __new__(cls, word: str, kind: Kind = Kind.FAULT, hint: str = _UNKNOWN, meaning: str = "") -> Self:
        reason = str.__new__(cls, word)
        reason._value_ = word  # type: ignore[attr-defined]
        reason.kind, reason.hint, reason.meaning = kind, hint, meaning
        return reason


class ReasonEnum(AnyReason, ReprEnum):
    """The base of a list of reasons. A feature has one of its own, in its folder."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """A word of a newer agent, from the bus or the store, is a reason of the kind ``FAULT``."""
        if not isinstance(value, str):
            return None
        reason = str.__new__(cls, value)
        reason._name_ = reason._value_ = value
        reason.kind, reason.hint, reason.meaning = Kind.FAULT, _UNKNOWN, ""
        return reason
