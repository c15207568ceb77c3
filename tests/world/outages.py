# SPDX-License-Identifier: Apache-2.0
"""Services of the host in memory that do not answer."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from nodeagent.errors import AgentError

if TYPE_CHECKING:
    from tests.world.world import World


class Outage:
    """Decides which calls to services of the host get no answer. ``took_effect``: only the answer was lost."""

    def __init__(self, fault: Callable[[str], Awaitable[AgentError]], *, took_effect: bool = False) -> None:
        self.fault = fault
        self.took_effect = took_effect
        self.calls: list[str] = []

    def hits(self, service: str, call: str) -> bool:
        raise NotImplementedError

    async def around(self, service: str, call: str, work: Callable[[], Awaitable[Any]], **_options: Any) -> Any:
        self.calls.append(call)
        if not self.hits(service, call):
            return await work()
        if self.took_effect:
            await work()
        raise await self.fault(service)


class LocalService:
    """A port on a service of the host. The outage of the world decides about each call."""

    def __init__(self, port: Any, world: World, service: str) -> None:
        self._port = port
        self._world = world
        self._service = service

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if self._world.outage is None or not inspect.iscoroutinefunction(method):
            return method

        async def call(*arguments: Any, **options: Any) -> Any:
            described = " ".join([self._service, name, *(str(a) for a in arguments if isinstance(a, str))])
            outage = self._world.outage
            assert outage is not None
            return await outage.around(self._service, described, lambda: method(*arguments, **options), **options)

        return call
