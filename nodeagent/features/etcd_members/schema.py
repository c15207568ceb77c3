# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, UnsetType

from nodeagent.contract.keys import Keys, about


class Operation(Keys):
    id: Annotated[str, about("id of the operation")]
    operation: Annotated[str, about("join, leave or replace")]
    requester: Annotated[str, about("who requested it")]
    since: Annotated[str, about("RFC 3339")]
    message: Annotated[str, about("what it does or waits for")]
    ended: Annotated[str, about("empty while it runs; done, or the text of the cause")]
    reason: Annotated[str, about("the reason of a failure; empty for none")]


class Answer(Keys, kw_only=True):
    schema: Annotated[Literal["nodeagent/etcd-member/v1"], about("the schema of this object")]
    id: Annotated[str, about("id of the operation; absent if it has only been requested")] | UnsetType = UNSET
    operation: Annotated[str, about("join, leave or replace")]
    requester: Annotated[str, about("who requested it")] | UnsetType = UNSET
    since: Annotated[str, about("RFC 3339")] | UnsetType = UNSET
    message: Annotated[str, about("what it does or waits for")]
    ended: Annotated[str, about("empty while it runs; done, or the text of the cause")]
    reason: Annotated[str, about("the reason of a failure; empty for none")]


STATUS: Final = {
    "etcd_member": Annotated[Operation | None, about("a join, leave or replacement of the etcd member; null without")]
}
ANSWERS: Final = {"nodeagent/etcd-member/v1": Answer}
