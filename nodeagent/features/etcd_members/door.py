# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nodeagent.door import Base, BusMethod, Caller, Door, Feature
from nodeagent.features.etcd_members.reasons import MemberReason
from nodeagent.features.etcd_members.view import STATUS, VIEWS

CHANGE: Final = BusMethod(
    name="ChangeEtcdMember",
    takes="sa{sv}",
    arguments=("operation", "options", "status"),
    action="etcd-member",
    about="Begins `join`, `leave` or `replace`; `etcd_member` in the status has its progress. "
    "Option of `replace`: `member` `s`.",
)


def _open(base: Base) -> Feature:
    from nodeagent.features.etcd_members.host import open_member
    from nodeagent.features.etcd_members.manager import MemberManager
    from nodeagent.features.etcd_members.request import request_of

    manager = MemberManager(
        base.coordination,
        base.clock,
        base.store,
        base.reporter,
        lambda: open_member(base.units, base.static_pods, base.clock),
        on_release=base.look_again,
    )

    async def change(caller: Caller, values: Sequence[Any]) -> str:
        await manager.start(caller.name, request_of(*values))
        return base.status()

    return Feature(
        beside=[("the etcd member", manager.run)],
        at_start=[("etcd", manager.load)],
        calls={CHANGE.name: change},
    )


DOOR: Final = Door(
    title="Members of etcd",
    page="usage/etcd-members.md",
    reasons=MemberReason,
    events=VIEWS,
    status=STATUS,
    methods=(CHANGE,),
    open=_open,
)
