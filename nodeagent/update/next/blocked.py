# SPDX-License-Identifier: Apache-2.0
"""Which errors block a config: its update cannot go on now, so that a feature may apply a part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nodeagent.errors import (
    AgentError,
    Cause,
    InvalidInput,
    OutOfTurn,
    Retryable,
    ServiceUnavailable,
    Unreachable,
    Unreconcilable,
)
from nodeagent.reasons import Reason
from nodeagent.update.stages.coordination import LOST
from nodeagent.update.wait import Delayed

# Reasons after which nothing of the config is applied: another holder has the node, an operator stopped the update,
# rolled it back, or the check of a file gave no result.
_NO_BLOCK: Final = LOST | {
    Reason.LEASE_HELD,
    Reason.LEASE_EXPIRED,
    Reason.DRAIN_CANCELED,
    Reason.CANCELLED,
    # Nothing of it is applied before an operator confirms it.
    Reason.REMOVES_MOST,
    Reason.ROLLED_BACK,
    Reason.CONFIG_REJECTED,
    Reason.CHECKER_LATE,
    Reason.SUPERSEDED,
    Reason.WITHDRAWN,
}


@dataclass(frozen=True, slots=True)
class Blocked:
    """The update to the config with this digest cannot go on now."""

    digest: str
    cause: Cause


def is_block(error: AgentError) -> bool:
    """Return whether an update that ``error`` stops before its first write is blocked, rather than invalid, or waiting
    for an answer."""
    cause = error.__cause__ if isinstance(error.__cause__, AgentError) else error
    if isinstance(cause, Delayed | OutOfTurn):
        # Others decide when this config is applied, so no part of it comes before that.
        return False
    kinds = InvalidInput | Unreconcilable | ServiceUnavailable | Retryable | Unreachable
    return not isinstance(cause, kinds) and error.reason not in _NO_BLOCK
