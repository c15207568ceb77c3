"""The check of etcd's quorum, loaded when it is needed first: before the first disruption."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from nodeagent.host.etcd.quorum import QuorumCheck, answer
from nodeagent.update.ports.host import Clock


class LazyQuorumCheck:
    """Implements ``ports.EtcdQuorum``. ``single`` as in ``core.etcd.quorum.judge``."""

    def __init__(self, clock: Clock, *, single: bool) -> None:
        self._clock = clock
        self._single = single
        self._loaded: QuorumCheck | None = None
        self._survey: asyncio.Future[Mapping[str, Any]] | None = None

    def use(self, *, single: bool) -> None:
        self._single, self._loaded = single, None

    async def check(self) -> None:
        await (await self._check()).check()

    async def move_leader(self) -> None:
        await (await self._check()).move_leader()

    async def status(self) -> Mapping[str, Any]:
        """Return ``nodeagent/etcd/v1``. Concurrent calls share one survey of the members."""
        if self._survey is None or self._survey.done():
            self._survey = asyncio.ensure_future(self._answer())
        return await asyncio.shield(self._survey)

    async def _answer(self) -> Mapping[str, Any]:
        check = await self._check()
        return answer(await check.survey(), "daemon")

    async def _check(self) -> QuorumCheck:
        if self._loaded is None:
            self._loaded = await asyncio.to_thread(self._load)
        return self._loaded

    def _load(self) -> QuorumCheck:
        return QuorumCheck(self._clock, single=self._single)
