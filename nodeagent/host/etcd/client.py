"""Questions to members of etcd, over the JSON gateway of their client URLs (grpc-gateway, POST with JSON).

Every one has a deadline, and nothing is repeated: who decides about a disruption asks anew. The client certificate is
that of the member on this host: etcd's gateway is a client of etcd with its server certificate, so it always serves.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from nodeagent.core.etcd.quorum import Alarm, Member, State, read_alarms, read_members, read_state
from nodeagent.errors import Unreachable
from nodeagent.host.http import Answer, HttpFault, request

__all__ = ["EtcdClient", "EtcdFault"]

T = TypeVar("T")
TIMEOUT: Final = 5.0
HEALTH: Final = "/health?exclude=NOSPACE&exclude=CORRUPT"  # alarms are asked for by themselves


class EtcdFault(Unreachable):
    """No answer, or none that means yes. The message has the address and the words of etcd."""

    default_reason = "EtcdUnreachable"


class EtcdClient:
    """``timeout`` is that of one request, in seconds. ``tls`` is None where etcd speaks plain http."""

    def __init__(self, tls: ssl.SSLContext | None, *, timeout: float = TIMEOUT) -> None:
        self._tls = tls
        self._timeout = timeout

    async def members(self, url: str) -> Sequence[Member]:
        """As a quorum knows them; without one as that member does."""
        try:
            answer = await self._ask(url, "/v3/cluster/member/list", {"linearizable": True})
        except EtcdFault:
            answer = await self._ask(url, "/v3/cluster/member/list", {})
        return _read(url, read_members, answer)

    async def alarms(self, url: str) -> Sequence[Alarm]:
        return _read(url, read_alarms, await self._ask(url, "/v3/maintenance/alarm", {"action": "GET"}))

    async def state(self, url: str) -> tuple[str, State]:
        """Who answers there, by id, and how it is: its own word, and that it can read through a quorum."""
        said, health = await asyncio.gather(
            self._ask(url, "/v3/maintenance/status", {}), self._send("GET", url, HEALTH, None), return_exceptions=True
        )
        if isinstance(said, BaseException):
            raise said
        member, state = _read(url, read_state, said)
        if isinstance(health, EtcdFault):
            return member, State(health.message, state.leader, state.applied, state.index)
        if isinstance(health, BaseException):
            raise health
        if health.status != 200 or health.json().get("health") != "true":
            why = str(health.json().get("reason") or f"status {health.status}")
            fault = "; ".join(filter(None, [state.fault, f"is not healthy: {why}"]))
            return member, State(fault, state.leader, state.applied, state.index)
        return member, state

    async def move_leader(self, url: str, to: str) -> None:
        """``url`` must be the leader's. Done when it returns, as far as the old leader knows."""
        await self._ask(url, "/v3/maintenance/transfer-leadership", {"targetID": to})

    async def _ask(self, url: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._send("POST", url, path, body)
        found = answer.json()
        if answer.status != 200:
            said = found.get("message") or found.get("error") or "is the JSON gateway there?"
            raise EtcdFault(f"{url}{path}: status {answer.status}, {said}")
        if not found:
            raise EtcdFault(f"{url}{path}: the answer is no JSON object")
        return found

    async def _send(self, method: str, url: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        try:
            return await request(method, url + path, body=body, tls=self._tls, timeout=self._timeout)
        except HttpFault as fault:
            raise EtcdFault(f"{url}: {fault}") from fault


def _read(url: str, read: Callable[[Mapping[str, Any]], T], answer: Mapping[str, Any]) -> T:
    try:
        return read(answer)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise EtcdFault(f"{url}: the answer is not etcd's") from error
