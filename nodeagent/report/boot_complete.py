# SPDX-License-Identifier: Apache-2.0
"""Whether the update of this boot is verified, from the status of the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nodeagent.reasons import Reason
from nodeagent.update.states import Phase

# Phases in which nothing of an update is in effect yet, or all of it is verified.
_SETTLED: Final = frozenset({Phase.IDLE, Phase.STAGING, Phase.LEASING, Phase.RELEASING})

# The daemon does not know what is in effect.
_UNKNOWN: Final = frozenset(
    {
        Reason.STORE_CORRUPT,
        Reason.STORE_FAULT,
        Reason.STORE_TOO_NEW,
        Reason.RECORD_TOO_NEW,
        Reason.RECORD_UNREADABLE,
    }
)


def boot_verified(status: Mapping[str, Any] | None) -> bool | None:
    """Return True if this boot is good, False if it is not, None as long as that is open or the daemon does not run.

    A host that went back to its previous config is good, and so is one that refused a config. An update that ended
    half-way is not.
    """
    if status is None or status["daemon"] != "running" or not status["boot_id"]:
        return None
    if status["reason"] in _UNKNOWN:
        return None
    if status["phase"] != Phase.DEGRADED:
        # A deployment that was lost is staged again after the first write.
        return True if status["phase"] in _SETTLED and status["reason"] != Reason.STAGED_LOST else None
    return status["reason"] == Reason.REVERTED or not status["update_id"]
