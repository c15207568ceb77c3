# SPDX-License-Identifier: Apache-2.0
"""The JSON of a rollout, which ``schema.py`` declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from nodeagent.features.slots.decide.rollout import NodeProgress, Rollout
from nodeagent.features.slots.decide.stuck import StuckSlot

SCHEMA: Final = "nodeagent/fleet/v1"


def rollout_to_dict(rollout: Rollout, unknown: Sequence[str], stuck: Sequence[StuckSlot] = ()) -> dict[str, Any]:
    """``unknown`` are messages about objects that could not be read, so that flags may be missing."""
    return {
        "schema": SCHEMA,
        "complete": rollout.complete,
        "pools": [
            {
                "name": pool.name,
                "target": pool.target,
                "paused": pool.paused,
                "complete": pool.complete,
                "troubles": list(pool.troubles),
                "nodes": len(pool.members),
                **{str(progress): len(pool.having(progress)) for progress in NodeProgress},
                "flagged": len(pool.flagged),
                "members": msgspec.to_builtins(list(pool.members)),
            }
            for pool in rollout.pools
        ],
        "unmanaged": list(rollout.unmanaged),
        "stuck_slots": [{**msgspec.to_builtins(slot), "command": slot.command} for slot in stuck],
        "unknown": list(unknown),
    }
