"""A client of etcd members, over the JSON gateway of their client URLs (grpc-gateway, POST with JSON).

Each request has a deadline, and none is repeated: the caller surveys again before each decision. The client certificate
is that of the member on this host. etcd accepts it, because its own gateway uses it as a client.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from nodeagent.core.etcd.quorum import Alarm, Member, MemberState, read_alarms, read_members, read_state
from nodeagent.errors import Unreachable
from nodeagent.host.http import Answer, HttpFault, request
from nodeagent.reasons import Reason

__all__ = ["EtcdClient", "EtcdFault"]

T = TypeVar("T")
TIMEOUT: Final = 5.0
HEALTH: Final = "/health?exclude=NOSPACE&exclude=CORRUPT"  # alarms have a request of their own


class EtcdFault(Unreachable):
    """No answer, or an error. The message has the address and the message of etcd."""

    default_reason = Reason.ETCD_UNREACHABLE


class EtcdClient:
    """``timeout`` is for one request, in seconds. ``tls`` is None for plain http."""

    def __init__(self, tls: ssl.SSLContext | None, *, timeout: float = TIMEOUT) -> None:
        self._tls = tls
        self._timeout = timeout

    async def members(self, url: str) -> Sequence[Member]:
        """Return the members as the quorum knows them; without a quorum, as that member does."""
        try:
            answer = await self._call(url, "/v3/cluster/member/list", {"linearizable": True})
        except EtcdFault:
            answer = await self._call(url, "/v3/cluster/member/list", {})
        return _read(url, read_members, answer)

    async def alarms(self, url: str) -> Sequence[Alarm]:
        return _read(url, read_alarms, await self._call(url, "/v3/maintenance/alarm", {"action": "GET"}))

    async def state(self, url: str) -> tuple[str, MemberState]:
        """Return the id of the member that answers, and its state: by its status, and by a read through the quorum."""
        status, health = await asyncio.gather(
            self._call(url, "/v3/maintenance/status", {}), self._send("GET", url, HEALTH, None), return_exceptions=True
        )
        if isinstance(status, BaseException):
            raise status
        member, state = _read(url, read_state, status)
        if isinstance(health, EtcdFault):
            return member, MemberState(health.message, state.leader, state.applied, state.index)
        if isinstance(health, BaseException):
            raise health
        if health.status != 200 or health.json().get("health") != "true":
            why = str(health.json().get("reason") or f"status {health.status}")
            fault = "; ".join(filter(None, [state.fault, f"is not healthy: {why}"]))
            return member, MemberState(fault, state.leader, state.applied, state.index)
        return member, state

    async def move_leader(self, url: str, to: str) -> None:
        """Move the leadership. ``url`` must be that of the leader, which has agreed when this returns."""
        await self._call(url, "/v3/maintenance/transfer-leadership", {"targetID": to})

    async def _call(self, url: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._send("POST", url, path, body)
        found = answer.json()
        if answer.status != 200:
            why = found.get("message") or found.get("error") or "the address may have no JSON gateway"
            raise EtcdFault(f"{url}{path}: status {answer.status}, {why}")
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
