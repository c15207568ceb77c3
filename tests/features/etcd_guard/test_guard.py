# SPDX-License-Identifier: Apache-2.0
"""The places of the quorum: a stop, settings that are read again, and the method on the bus."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import pytest

from nodeagent.door import Base, Caller
from nodeagent.errors import Refused
from nodeagent.features.etcd_guard import quorum as module
from nodeagent.features.etcd_guard.door import DOOR
from nodeagent.features.etcd_guard.guard import QuorumGuard
from nodeagent.features.etcd_guard.quorum import QuorumCheck
from nodeagent.features.etcd_guard.settings import QuorumSettings
from nodeagent.reasons import Reason
from nodeagent.settings.schema import Settings


@dataclass
class Quorum:
    refused: bool = False
    moves: int = 0

    async def check(self) -> None:
        if self.refused:
            raise Refused("etcd: at risk", reason=Reason.ETCD_QUORUM_AT_RISK)

    async def move_leader(self) -> None:
        await self.check()
        self.moves += 1


async def test_the_leader_moves_right_before_the_stop_only() -> None:
    quorum = Quorum()
    guard = QuorumGuard(quorum)
    await guard.permit_stop()
    assert quorum.moves == 0
    await guard.before_stop()
    assert quorum.moves == 1
    quorum.refused = True
    for check in (guard.permit_stop, guard.before_stop):
        with pytest.raises(Refused):
            await check()


async def test_the_daemon_answers_with_the_settings_that_were_read_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async def status(check: QuorumCheck) -> dict[str, bool]:
        return {"single": check._single}

    monkeypatch.setattr(module.QuorumCheck, "status", status)
    assert DOOR.open is not None
    base: dict[str, Any] = {given.name: None for given in fields(Base)}
    feature = DOOR.open(Base(**{**base, "settings": Settings()}))
    read = feature.calls["EtcdStatus"]
    assert json.loads(await read(Caller(), ())) == {"single": False}
    feature.use(Settings(parts=(QuorumSettings(single_member=True),)))
    assert json.loads(await read(Caller(), ())) == {"single": True}
