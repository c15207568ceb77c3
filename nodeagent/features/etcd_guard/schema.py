# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from nodeagent.contract.keys import Keys, about


class Refusal(Keys):
    reason: Annotated[str, about("a reason")]
    message: Annotated[str, about("why a disruption is not safe")]
    hint: Annotated[str, about("what to do")]


class Member(Keys):
    id: Annotated[str, about("in hexadecimal digits")]
    name: Annotated[str, about("empty for a member that has not started")]
    this: Annotated[bool, about("whether it is on this host")]
    learner: Annotated[bool, about("whether it has no vote yet")]
    leader: Annotated[bool, about("whether it leads")]
    healthy: Annotated[bool, about("whether it answers and keeps up")]
    trouble: Annotated[str, about("what is wrong with it; empty if it is healthy")]


class Alarm(Keys):
    member: Annotated[str, about("name or id")]
    kind: Annotated[str, about("as etcd names it: NOSPACE, CORRUPT")]


class Etcd(Keys):
    schema: Annotated[Literal["nodeagent/etcd/v1"], about("the schema of this object")]
    source: Annotated[Literal["daemon", "command"], about("who answered; what the daemon says counts")]
    member: Annotated[bool, about("whether a member of etcd is on this host")]
    signs: Annotated[list[str], about("how the member was found")]
    allowed: Annotated[bool, about("whether a disruption of this host is safe for etcd")]
    refusals: Annotated[list[Refusal], about("why it is not")]
    leader_to: Annotated[str | None, about("the member that takes the leadership before it; null if none has to")]
    members: Annotated[list[Member], about("all members; empty without one")]
    alarms: Annotated[list[Alarm], about("alarms of etcd")]


ANSWERS: Final = {"nodeagent/etcd/v1": Etcd}
