# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from nodeagent.contract.keys import Keys, about
from nodeagent.features.slots.decide.rollout import NodeProgress


class Flag(Keys):
    reason: Annotated[str, about("a reason")]
    message: Annotated[str, about("who blocks a disruption, and with what")]


class Member(Keys):
    name: Annotated[str, about("of the Node")]
    progress: Annotated[NodeProgress, about("how far it is; pending: its update has not begun")]
    current: Annotated[str, about("the config that it runs")]
    desired: Annotated[str, about("the config that its controller wants")]
    target: Annotated[str, about("the config that it should run: that of the pool, or its own")]
    state: Annotated[str, about("as the agent or the machine-config-daemon reports it")]
    reason: Annotated[str, about("why it is degraded or waits")]
    flags: Annotated[list[Flag], about("others that block its disruption")]


class Pool(Keys):
    name: Annotated[str, about("of the pool")]
    target: Annotated[str, about("the config of its nodes; empty if each has its own")]
    paused: Annotated[bool, about("whether it is paused")]
    complete: Annotated[bool, about("whether every node runs its config")]
    troubles: Annotated[list[str], about("what is wrong with the pool itself")]
    nodes: Annotated[int, about("nodes of the pool")]
    updated: Annotated[int, about("nodes that run their config")]
    updating: Annotated[int, about("nodes in an update")]
    pending: Annotated[int, about("nodes whose update has not begun")]
    degraded: Annotated[int, about("nodes that need an operator")]
    flagged: Annotated[int, about("nodes whose disruption others block")]
    members: Annotated[list[Member], about("its nodes")]


class Stuck(Keys):
    name: Annotated[str, about("of the Lease")]
    pool: Annotated[str, about("of the slot, as slots.pool names it")]
    node: Annotated[str, about("its holder")]
    since: Annotated[str, about("when it was taken; empty if that is not known")]
    why: Annotated[str, about("why the holder does not give it back")]
    command: Annotated[str, about("what frees it, after a look at the node")]


class Fleet(Keys):
    schema: Annotated[Literal["nodeagent/fleet/v1"], about("the schema of this object")]
    complete: Annotated[bool, about("whether all pools are complete")]
    pools: Annotated[list[Pool], about("all pools")]
    unmanaged: Annotated[list[str], about("nodes of no pool, for which no controller names a config")]
    stuck_slots: Annotated[list[Stuck], about("slots whose holder does not give them back")]
    unknown: Annotated[list[str], about("objects that could not be read, so that flags may be missing")]


ANSWERS: Final = {"nodeagent/fleet/v1": Fleet}
