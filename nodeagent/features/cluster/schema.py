# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final

from nodeagent.contract.keys import Keys, about


class Pod(Keys):
    namespace: Annotated[str, about("of the pod")]
    name: Annotated[str, about("of the pod")]
    why: Annotated[str, about("why it is still there")]
    blocked: Annotated[bool, about("whether it cannot be evicted now")]
    hint: Annotated[str, about("what to do about it; empty if it only needs time")]


class Drain(Keys):
    requester: Annotated[str, about("who drains the node: the agent, or the requester of a maintenance")]
    reason: Annotated[str, about("why")]
    since: Annotated[str, about("when it began, RFC 3339")]
    deadline: Annotated[str, about("when it ends at the latest; empty without a deadline")]
    then: Annotated[str, about("what follows at the deadline")]
    remaining: Annotated[list[Pod], about("pods that are still there, blocked ones first")]


STATUS: Final = {"drain": Annotated[Drain | None, about("the drain under way; null without one")]}
