# SPDX-License-Identifier: Apache-2.0
"""What `fleet status` answers: the JSON of a rollout, which ``schema.py`` declares, and for people the nodes that need
attention, as groups of those that are in the way of the same thing.

5,000 nodes that wait for a slot are one line, and the three that failed are another one above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from nodeagent.features.slots.decide.rollout import NodeProgress, NodeRollout, PoolRollout, Rollout
from nodeagent.features.slots.decide.stuck import StuckSlot

SCHEMA: Final = "nodeagent/fleet/v1"
# What an operator looks at first.
ORDER: Final = (NodeProgress.DEGRADED, NodeProgress.UPDATING, NodeProgress.PENDING, NodeProgress.UPDATED)


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of a pool with the same progress and the same words: the reason of the node, and those of its flags."""

    pool: str
    progress: NodeProgress
    words: tuple[str, ...]
    members: Sequence[NodeRollout]

    @property
    def why(self) -> str:
        """The messages, if all members have the same, else the words alone."""
        texts = {why(member) for member in self.members}
        return texts.pop() if len(texts) == 1 else ", ".join(self.words)

    @property
    def configs(self) -> str:
        """The configs, if all members have the same."""
        texts = {configs(member) for member in self.members}
        return texts.pop() if len(texts) == 1 else "several"


def attention(pool: PoolRollout) -> Sequence[NodeRollout]:
    """Return the nodes of a pool that need attention. Those that wait to begin are only counted."""
    shown = (NodeProgress.UPDATING, NodeProgress.DEGRADED)
    return [member for member in pool.members if member.flags or member.progress in shown]


def groups(fleet: Rollout) -> Sequence[Group]:
    """Return the groups: the worst progress first, and in it those with flags, then the largest."""
    members_of: dict[tuple[str, NodeProgress, tuple[str, ...]], list[NodeRollout]] = {}
    for pool in fleet.pools:
        for member in attention(pool):
            members_of.setdefault((pool.name, member.progress, _words(member)), []).append(member)
    return sorted((Group(*key, members) for key, members in members_of.items()), key=_rank)


def _rank(group: Group) -> tuple[int, bool, int, str]:
    return ORDER.index(group.progress), not group.members[0].flags, -len(group.members), group.pool


def _words(member: NodeRollout) -> tuple[str, ...]:
    reason = [member.reason.partition(":")[0]] if member.reason else []
    return tuple(dict.fromkeys([*reason, *(str(flag.reason) for flag in member.flags)]))


def why(member: NodeRollout) -> str:
    words = [member.reason] if member.reason else []
    return "; ".join([*words, *(f"{flag.reason}: {flag.message}" for flag in member.flags)])


def configs(member: NodeRollout) -> str:
    current = member.current or "none"
    return current if current == member.target else f"{current} -> {member.target or '?'}"


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
