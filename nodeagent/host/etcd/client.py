# SPDX-License-Identifier: Apache-2.0
"""A client of etcd members, over the JSON gateway of their client URLs (grpc-gateway, POST with JSON).

Each request has a deadline, and none is repeated: the caller surveys again before each decision. The client certificate
is that of the member on this host. etcd accepts it, because its own gateway uses it as a client.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPResponse
from typing import Any, Final, TypeVar

from nodeagent.core.etcd.quorum import Alarm, Member, MemberState, read_alarms, read_members, read_state
from nodeagent.errors import Unreachable
from nodeagent.host.etcd.options import Endpoints, Options, endpoints
from nodeagent.host.http import Answer, HttpFault, exchange, request, tls_context
from nodeagent.kinds import Kind
from nodeagent.reasons import Reason

T = TypeVar("T")
TIMEOUT: Final = 5.0
# Alarms have a request of their own.
HEALTH: Final = "/health?exclude=NOSPACE&exclude=CORRUPT"


class EtcdFault(Unreachable):
    """No answer, or an error. The message has the address and the message of etcd.

    Whatever its reason, the survey counts the member as one that does not answer.
    """

    kinds = frozenset({Kind.UNREACHABLE, Kind.REFUSED, Kind.RETRY, Kind.FAULT})
    default_reason = Reason.ETCD_UNREACHABLE


# The gateway has one status for many errors, so the words decide, as in cluster-etcd-operator. "Unhealthy cluster" is
# also the answer for five seconds after each change of the leader or of a member.
_REJECTED: Final = {
    "unhealthy cluster": Reason.ETCD_QUORUM_AT_RISK,
    "not enough started members": Reason.ETCD_QUORUM_AT_RISK,
    "too many learner members": Reason.ETCD_LEARNER,
    "in sync with leader": Reason.ETCD_LEARNER_BEHIND,
}

# Answers of an etcd with users of its own. Its gateway does not take the name in a certificate for one.
_USERS: Final = (b"CommonName of client", b"user name is empty", b"permission denied", b"invalid auth token")
HAS_USERS: Final = "etcd has users of its own (auth enable), which are not supported"

# Answers to a promotion or removal that was done before.
_DONE: Final = ("etcdserver: can only promote a learner member", "etcdserver: member not found")


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
            return member, replace(state, fault=health.message)
        if isinstance(health, BaseException):
            raise health
        if health.status != 200 or health.json().get("health") != "true":
            cause = str(health.json().get("reason") or f"status {health.status}")
            fault = "; ".join(filter(None, [state.fault, f"is not healthy: {cause}"]))
            return member, replace(state, fault=fault)
        return member, state

    async def cluster_version(self, url: str) -> str:
        """Return the version as which the cluster of the member works: that of its oldest member."""
        answer = await self._send("GET", url, "/version", None)
        return _read(url, lambda versions: str(versions["etcdcluster"]), answer.json())

    async def unready(self, url: str) -> str:
        """Return why the member does not serve, "" if it does. A learner does not, although its ``/health`` is true.

        etcd has these paths since 3.4.29, 3.5.11 and 3.6. An older member is judged by its state alone.
        """
        for path in ("/livez", "/readyz"):
            answer = await self._send("GET", url, path, None)
            if answer.status not in (200, 404):
                return f"{url}{path} answers {answer.status}"
        return ""

    async def move_leader(self, url: str, to: str) -> None:
        """Move the leadership. ``url`` must be that of the leader, which has agreed when this returns."""
        await self._call(url, "/v3/maintenance/transfer-leadership", {"targetID": to})

    async def add_learner(self, url: str, peers: Sequence[str]) -> str:
        """Return the id of the new member. ``url`` must be that of a voter, also below."""
        answer = await self._change(url, "add", {"peerURLs": list(peers), "isLearner": True})
        return _read(url, lambda addition: str(int(addition["member"]["ID"])), answer)

    async def promote(self, url: str, member: str) -> None:
        """Promote a learner. A voter is promoted already. Raises ``EtcdFault`` (``EtcdLearnerBehind``)."""
        await self._change(url, "promote", {"ID": member})

    async def remove(self, url: str, member: str) -> None:
        await self._change(url, "remove", {"ID": member})

    async def update_address(self, url: str, member: str, peers: Sequence[str]) -> None:
        await self._change(url, "update", {"ID": member, "peerURLs": list(peers)})

    async def _change(self, url: str, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
        path = f"/v3/cluster/member/{what}"
        answer = await self._send("POST", url, path, body)
        document = answer.json()
        if answer.status == 200 and document:
            return document
        message = str(document.get("message") or document.get("error") or "the address may have no JSON gateway")
        if message in _DONE and what in ("promote", "remove"):
            return document
        reason = next((reason for words, reason in _REJECTED.items() if words in message), Reason.ETCD_REJECTED)
        raise EtcdFault(f"{url}{path}: status {answer.status}, {message}", reason=reason)

    async def snapshot(self, url: str, read: Callable[[HTTPResponse], T], *, timeout: float, stall: float) -> T:
        """Return what ``read`` returns for the stream of a snapshot, as ``host.http.exchange``."""
        path = "/v3/maintenance/snapshot"
        try:
            return await exchange("POST", url + path, read, body={}, tls=self._tls, timeout=timeout, stall=stall)
        except HttpFault as fault:
            raise EtcdFault(f"{url}{path}: {fault}") from fault

    async def _call(self, url: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._send("POST", url, path, body)
        document = answer.json()
        if answer.status != 200:
            message = document.get("message") or document.get("error") or "the address may have no JSON gateway"
            users = any(words in answer.body for words in _USERS)
            message, reason = (HAS_USERS, Reason.ETCD_CREDENTIALS) if users else (message, None)
            raise EtcdFault(f"{url}{path}: status {answer.status}, {message}", reason=reason)
        # etcd answers the move of a leadership with an empty object.
        if not document and answer.body.strip() != b"{}":
            raise EtcdFault(f"{url}{path}: the answer is no JSON object")
        return document

    async def _send(self, method: str, url: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        try:
            return await request(method, url + path, body=body, tls=self._tls, timeout=self._timeout)
        except HttpFault as fault:
            # One side does not accept the certificate of the other.
            credentials = Reason.ETCD_CREDENTIALS if isinstance(fault.__cause__, ssl.SSLError) else None
            raise EtcdFault(f"{url}: {fault}", reason=credentials) from fault


def _read(url: str, read: Callable[[Mapping[str, Any]], T], answer: Mapping[str, Any]) -> T:
    try:
        return read(answer)
    # OverflowError: JSON of Python has an infinite number.
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise EtcdFault(f"{url}: the answer is not etcd's") from error


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """Addresses and certificates of a caller. "" and () mean those that are detected. Paths are PEM files."""

    endpoints: Sequence[str] = ()
    ca: str = ""
    certificate: str = ""
    key: str = ""


def endpoints_of(options: Options, access: EtcdAccess) -> Endpoints:
    """Return the addresses. The first one of a caller is that of this host."""
    if access.endpoints:
        first, *others = (url.rstrip("/") for url in access.endpoints)
        return Endpoints((first,), others)
    return endpoints(options)


def open_client(options: Options, access: EtcdAccess, where: Endpoints, timeout: float = TIMEOUT) -> EtcdClient:
    """Read the certificates. Blocks. Raises ``EtcdFault`` (``EtcdCredentials``)."""
    if not any(url.startswith("https:") for url in (*where.ours, *where.others)):
        return EtcdClient(None, timeout=timeout)
    return EtcdClient(client_tls(options, access), timeout=timeout)


def client_tls(options: Options, access: EtcdAccess = EtcdAccess()) -> ssl.SSLContext:
    """Return the context with the certificates. Blocks. Raises ``EtcdFault`` (``EtcdCredentials``)."""
    files = (
        access.ca or options.get("trusted-ca-file"),
        access.certificate or options.get("cert-file"),
        access.key or options.get("key-file"),
    )
    try:
        return tls_context(*files)
    except ssl.SSLError as error:
        raise EtcdFault(f"certificates of etcd: {error.reason or error}", reason=Reason.ETCD_CREDENTIALS) from error
    except OSError as error:
        which = error.filename or ", ".join(filter(None, files))
        raise EtcdFault(f"certificates of etcd: {error.strerror}: {which}", reason=Reason.ETCD_CREDENTIALS) from error
