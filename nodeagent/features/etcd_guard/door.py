# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from nodeagent.door import Base, BusMethod, Caller, Door, Feature
from nodeagent.features.etcd_guard.reasons import QuorumReason
from nodeagent.features.etcd_guard.settings import QuorumSettings
from nodeagent.settings.schema import Settings

STATUS: Final = BusMethod(
    name="EtcdStatus",
    arguments=("status",),
    about="Returns the JSON of `nodeagent etcd status --json`.",
)


def _open(base: Base) -> Feature:
    from nodeagent.features.etcd_guard.guard import QuorumGuard
    from nodeagent.features.etcd_guard.quorum import QuorumCheck

    quorum = QuorumCheck(base.clock, single=base.settings.of(QuorumSettings).single_member)

    def use(settings: Settings) -> None:
        quorum.use(single=settings.of(QuorumSettings).single_member)

    async def status(_caller: Caller, _values: Sequence[Any]) -> str:
        return json.dumps(await quorum.status())

    return Feature(use=use, guard=QuorumGuard(quorum), calls={STATUS.name: status})


DOOR: Final = Door(
    title="Quorum of etcd",
    page="usage/etcd.md",
    settings=(QuorumSettings,),
    reasons=QuorumReason,
    methods=(STATUS,),
    open=_open,
)
