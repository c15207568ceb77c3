# SPDX-License-Identifier: Apache-2.0
"""Requests to the API server: JSON in, JSON out, each with a deadline, and repeated only if that is safe.

``read`` and ``objects`` return the fields that are read, with their types; ``get`` returns all of an object. Changes
are JSON merge patches (RFC 7386) with ``metadata.resourceVersion`` where a lost update would matter. Reads are repeated
with jitter. Writes are repeated only after a 429, because a write without an answer may have been done: after
``NoAnswer`` and ``ServerFault`` the caller reads the object. Rotated credentials are read again without a restart. The
``Date`` header of each answer updates ``server_clock``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlencode

from nodeagent import __version__
from nodeagent.core.backoff import delays, jittered
from nodeagent.core.config.text import plain_json
from nodeagent.core.coordination.kube_objects import KubeList, Node
from nodeagent.core.coordination.kube_time import ServerClock, http_date
from nodeagent.errors import AgentError, Refused
from nodeagent.kube._import import load
from nodeagent.kube.credentials import ClientIdentity, ClusterAccess
from nodeagent.kube.decode import decoded, decoded_items, status_of
from nodeagent.kube.errors import (
    Forbidden,
    Gone,
    KubeFault,
    NoAnswer,
    NotFound,
    ServerFault,
    Throttled,
    Unauthorized,
    from_answer,
)
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import Clock

Object = dict[str, Any]
T = TypeVar("T")

ATTEMPTS: Final = 3
# Seconds; doubled for each further attempt.
FIRST_PAUSE: Final = 0.5
# A longer Retry-After is raised, because the caller may have other work.
MAX_PAUSE: Final = 10.0
# Attempts while an authorizer refuses: an API server serves before it has read its roles. 7.5 seconds in all.
FORBIDDEN_ATTEMPTS: Final = 5
# Requests of which the refusal is known, so that they are not repeated again.
MAX_KNOWN: Final = 1000
# Seconds between two checks of the files of the credentials.
CHECK_EVERY: Final = 10.0
# Objects in one answer of a list, as kubectl requests them.
CHUNK: Final = 500
# Bytes; 500 pods of the largest real specs are a third of that.
MAX_ANSWER: Final = 32 * 1024 * 1024
# Objects of one list: twenty times the nodes that Kubernetes supports.
MAX_ITEMS: Final = 100_000
# A server may send fewer objects than requested in an answer.
MAX_PAGES: Final = 2 * MAX_ITEMS // CHUNK
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON: Final = "application/json"
# Of each object only its metadata: a tenth of a Node.
METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class KubeClient:
    """Use as ``async with``. ``timeout`` is that of one attempt, in seconds.

    ``patient``: a refusal of the authorizer is an answer only after some seconds. An operator who lacks a permission
    does not wait.
    """

    def __init__(self, access: ClusterAccess, clock: Clock, *, timeout: float = 10.0, patient: bool = True) -> None:
        self.server_clock = ServerClock()
        # Number of requests of this process. Benchmarks measure the load of an idle agent with it.
        self.requests = 0
        self._access = access
        self._clock = clock
        self._timeout = timeout
        self._connected: tuple[Any, ClientIdentity] | None = None
        self._checked = 0.0
        self._doubted = False
        self._opening = asyncio.Lock()
        self._patient = patient
        self._refused: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """The client may be used again afterwards."""
        connected, self._connected = self._connected, None
        if connected is not None:
            await connected[0].close()

    async def get(self, path: str, **query: str) -> Object:
        """A quorum read: never from a cache, unless ``query`` asks for a resourceVersion."""
        return await self._call("GET", path, query, None)

    async def read(self, path: str, kind: type[T]) -> T:
        """As ``get``, with the fields of ``kind``. Raises ``ServerFault`` for an object of another form."""
        return decoded(kind, await self.get(path), f"GET {path}")

    async def node(self, name: str) -> Node:
        """Return a Node. Raises ``Refused`` (``NodeUnknown``) if the cluster has no such Node."""
        try:
            return await self.read(f"/api/v1/nodes/{name}", Node)
        except NotFound:
            raise Refused(f"there is no Node {name} in the cluster", reason=Reason.NODE_UNKNOWN) from None

    async def objects(self, path: str, kind: type[T], *, accept: str = JSON, **query: str) -> list[T]:
        """Return all objects of a list, which is read in chunks; with ``METADATA`` for ``accept``, their metadata only.
        Begins again once if its position is too old."""
        try:
            return await self._objects(path, kind, query, accept)
        except Gone:
            # The API server keeps a position for five minutes, or for less after a restart.
            return await self._objects(path, kind, query, accept)

    async def _objects(self, path: str, kind: type[T], query: Mapping[str, str], accept: str) -> list[T]:
        objects: list[T] = []
        token, what = "", f"GET {path}"
        for _ in range(MAX_PAGES):
            more = {"continue": token} if token else {}
            answer: Object = await self._answer(
                "GET", path, {"limit": str(CHUNK), **query, **more}, None, accept=accept
            )
            # The objects of each answer are reduced to what is read, before the next one is requested.
            objects += decoded(list[kind], answer.get("items") or [], what)  # type: ignore[valid-type]
            if len(objects) > MAX_ITEMS:
                raise ServerFault(f"{what}: the list has more than {MAX_ITEMS} objects")
            following = (decoded(KubeList, answer, what).get("metadata") or {}).get("continue") or ""
            if not following:
                return objects
            # Otherwise every node would request pages without end, as fast as they are answered.
            if following == token or not answer.get("items"):
                raise ServerFault(f"{what}: the list does not advance")
            token = following
        raise ServerFault(f"{what}: the list has more than {MAX_PAGES} parts")

    async def metadata(self, path: str, kind: type[T], *, not_older: str) -> list[T]:
        """Return the metadata of all objects of a list, with the fields of ``kind``, from the cache of the API server.

        ``not_older`` is the resourceVersion that the cache must have reached. It is one answer, of which only these
        fields are kept in memory.
        """
        what = f"GET {path}"
        query = {"resourceVersion": not_older, "resourceVersionMatch": "NotOlderThan"}
        items: list[T] = await self._answer(
            "GET", path, query, None, accept=METADATA, read=lambda text: decoded_items(kind, text, what)
        )
        if len(items) > MAX_ITEMS:
            raise ServerFault(f"{what}: the list has more than {MAX_ITEMS} objects")
        return items

    async def create(
        self, path: str, body: Object, *, throttled: int = ATTEMPTS, timeout: float | None = None
    ) -> Object:
        """``throttled`` is the number of 429 answers until one is raised: 1 for evictions, where it has a meaning.
        ``timeout`` in place of that of the client."""
        return await self._call("POST", path, {}, body, attempts=throttled, timeout=timeout)

    async def patch(self, path: str, body: Object) -> Object:
        return await self._call("PATCH", path, {}, body, kind=MERGE)

    async def patch_lists(self, path: str, body: Object) -> Object:
        """A strategic merge patch, for built-in kinds only: list entries are merged by their key, not replaced."""
        return await self._call("PATCH", path, {}, body, kind=STRATEGIC)

    async def delete(self, path: str, *, uid: str, resource_version: str = "") -> None:
        """Delete this object only. Another object of the same name raises ``Conflict``."""
        conditions = {"uid": uid, **({"resourceVersion": resource_version} if resource_version else {})}
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
        await self._call("DELETE", path, {}, options)

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None,
        *,
        kind: str = JSON,
        attempts: int = ATTEMPTS,
        timeout: float | None = None,
    ) -> Object:
        answer: Object = await self._answer(method, path, query, body, kind=kind, attempts=attempts, timeout=timeout)
        return answer

    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None,
        *,
        kind: str = JSON,
        attempts: int = ATTEMPTS,
        accept: str = JSON,
        read: Callable[[bytes], Any] = plain_json.object_of,
        timeout: float | None = None,
    ) -> Any:
        """Return what ``read`` makes of the answer, which returns None for one that is none of an API server."""
        url = f"{path}?{urlencode(query)}" if query else path
        pauses, refusals = delays(FIRST_PAUSE, MAX_PAUSE), delays(FIRST_PAUSE, MAX_PAUSE)
        request, reread, refused = f"{method} {path}", False, 0
        while True:
            attempts -= 1
            try:
                answer = await self._once(method, url, body, kind, accept, read, timeout or self._timeout)
            except Forbidden as fault:
                refused += 1
                # A refused request was not carried out, so a write may be repeated as well.
                if self._is_final(request, fault, refused):
                    raise
                attempts += 1
                await asyncio.sleep(jittered(next(refusals), random.random()))  # noqa: S311 - spreads load, no secret
            except Unauthorized:
                # The token may have been rotated since the last check. A second 401 with fresh credentials is final.
                if reread:
                    raise
                reread = True
                attempts += 1
                # The connection holds the old credentials, so it is closed and opened again.
                await self.close()
            except (NoAnswer, ServerFault, Throttled) as fault:
                # Only a read is repeated after an uncertain answer. A write may have been done; its caller reads the
                # state first.
                pause = _pause(fault, next(pauses)) if method == "GET" or isinstance(fault, Throttled) else None
                if attempts <= 0 or pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                self._refused.discard(request)
                return answer

    def _is_final(self, request: str, fault: Forbidden, attempts: int) -> bool:
        # The words of the authorizer. Admission has others: it decides by rules that are in force.
        authorizer = 'User "' in fault.message and " cannot " in fault.message
        if not self._patient or not authorizer or request in self._refused:
            return True
        if attempts < FORBIDDEN_ATTEMPTS:
            return False
        if len(self._refused) >= MAX_KNOWN:
            self._refused.clear()
        self._refused.add(request)
        return True

    async def _once(
        self,
        method: str,
        url: str,
        body: Object | None,
        kind: str,
        accept: str,
        read: Callable[[bytes], Any],
        timeout: float,
    ) -> Any:
        what = f"{method} {url.partition('?')[0]}"
        with self._translated(what, timeout):
            # The limit covers the headers and the body, so that a slow proxy cannot hold the call without end.
            async with asyncio.timeout(timeout):
                response = await self._send(method, url, body, kind, accept)
                text = await _body(response, what)
        if response.status >= 300:
            raise _refusal(response, text, what)
        answer = read(text)
        if answer is None:
            raise ServerFault(f"{what}: the answer is no JSON object; check the address of the API server")
        return answer

    async def parts(self, url: str, accept: str, seconds: float) -> AsyncGenerator[bytes]:
        """Yield the answer to a GET in parts as they arrive, until the server ends it, ``seconds`` at most. It is not
        repeated, and uses a connection of its own until the generator is closed.

        Raises what ``get`` raises, also in the middle.
        """
        what = f"GET {url.partition('?')[0]}"
        with self._translated(what, self._timeout):
            async with asyncio.timeout(self._timeout):
                response = await self._send("GET", url, None, JSON, accept, seconds)
                if response.status >= 300:
                    raise _refusal(response, await _body(response, what), what)
            # The response of aiohttp, see ``_body``.
            raw = response.response
            try:
                async for part in raw.content.iter_any():
                    yield part
            finally:
                raw.close()

    async def _send(
        self, method: str, url: str, body: Object | None, kind: str, accept: str, seconds: float | None = None
    ) -> Any:
        """Return the answer, of which only the headers were read."""
        rest, identity = await self._connection()
        headers = {"Accept": accept, "Content-Type": kind, "User-Agent": f"nodeagent/{__version__}"}
        for setting in (await identity.configuration.auth_settings()).values():
            if setting["value"]:
                headers[setting["key"]] = setting["value"]
        self.requests += 1
        sent = self._clock.monotonic()
        address = identity.host + url
        response = await rest.request(method, address, headers=headers, body=body, _request_timeout=seconds)
        received = self._clock.monotonic()
        # Every answer, also one with an error, updates the estimate of the server's clock.
        date = http_date(response.headers.get("Date", ""))
        if date is not None:
            self.server_clock = self.server_clock.updated(date, sent, received)
        return response

    @contextmanager
    def _translated(self, what: str, timeout: float) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise NoAnswer(f"{what}: no answer in {timeout:g} s") from None
        except AgentError:
            # The credentials cannot be read.
            raise
        except (load().ClientError, OSError) as error:
            # An expired certificate looks like this as well.
            self._doubted = True
            raise NoAnswer(f"{what}: {str(error) or type(error).__name__}") from error

    async def _connection(self) -> tuple[Any, ClientIdentity]:
        async with self._opening:
            now = self._clock.monotonic()
            # After a failure the certificate may have expired, so the files are read again before the next attempt.
            if self._doubted:
                self._doubted = False
                await self.close()
            if self._connected is not None and now - self._checked >= CHECK_EVERY:
                self._checked = now
                # Tokens and certificates are rotated in place. Their time stamps are enough to notice that.
                if await asyncio.to_thread(self._connected[1].changed):
                    await self.close()
            connected = self._connected
            if connected is None:
                # Reading and parsing certificates blocks, and so does the first import of the library.
                connected = self._connected = await asyncio.to_thread(_connect, self._access)
                self._checked = now
            return connected


def _connect(access: ClusterAccess) -> tuple[Any, ClientIdentity]:
    with access.loaded() as identity:
        return load().RESTClientObject(identity.configuration), identity


def _refusal(response: Any, text: bytes, what: str) -> KubeFault:
    detail = status_of(plain_json.object_of(text) or {})
    return from_answer(response.status, detail, what, response.headers.get("Retry-After", ""))


def _pause(fault: KubeFault, usual: float) -> float | None:
    """Return the seconds before the next attempt; None if the server demands more than ``MAX_PAUSE``."""
    if fault.retry_after is not None and fault.retry_after > MAX_PAUSE:
        return None
    return jittered(max(usual, fault.retry_after or 0.0), random.random())  # noqa: S311 - spreads load, no secret


async def _body(response: Any, what: str) -> bytes:
    """Read the body of an answer in parts: ``read`` of the library has no limit."""
    # The response of aiohttp, which can be read in parts.
    raw = response.response
    text = bytearray()
    async for part in raw.content.iter_any():
        text += part
        if len(text) > MAX_ANSWER:
            raw.close()
            raise ServerFault(f"{what}: the answer is larger than {MAX_ANSWER} bytes")
    return bytes(text)
