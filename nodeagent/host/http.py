# SPDX-License-Identifier: Apache-2.0
"""Send one HTTP request with the standard library, to services whose client libraries are too large for a node.

The services are etcd's JSON gateway and metrics, and servers that features call. Each request has a connection of its
own, a deadline and a bound on the answer. Redirects are not followed and proxies of the environment are not used: the
permission to disrupt a host comes from the configured address only.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import ssl
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, InvalidURL
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

from nodeagent import __version__
from nodeagent.core.config.text import plain_json
from nodeagent.errors import AgentError
from nodeagent.host.eventloop import in_daemon_thread

MAX_ANSWER: Final = 4 * 1024 * 1024

# Seconds. A connection attempt cannot be interrupted.
CONNECT_TIMEOUT: Final = 10.0

TOO_MANY_REQUESTS: Final = 429


T = TypeVar("T")


class HttpFault(Exception):
    """No connection, no answer in time, or no HTTP. The server may have done what was requested. Adapters turn this
    into an ``AgentError``, because they know the service."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return {} if the body is no JSON object: a proxy between answers in HTML."""
        return plain_json.object_of(self.body) or {}


async def request(
    method: str,
    url: str,
    *,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float,
) -> Answer:
    """Send one request and return the answer, of any status.

    ``timeout`` is for all of it, in seconds. ``tls`` is required for https. Raises ``HttpFault``.
    """
    return await exchange(method, url, _whole, body=body, headers=headers, tls=tls, timeout=timeout)


async def exchange(
    method: str,
    url: str,
    read: Callable[[HTTPResponse], T],
    *,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float,
    stall: float = 0.0,
) -> T:
    """Send one request, and return what ``read`` returns for the response. It runs in a thread and must be bounded.

    ``stall`` is the longest time for one read of the socket, in seconds (default: ``timeout``). After a timeout the
    thread may still be in ``read``, which fails at its next use of the response. Raises ``HttpFault``, and errors of
    ``read`` that are no ``OSError`` or ``ValueError``.
    """
    sent = {"Connection": "close", "Accept": "application/json", "User-Agent": f"nodeagent/{__version__}"}
    if body is not None:
        sent["Content-Type"] = "application/json"
    payload = None if body is None else json.dumps(body).encode()
    try:
        transfer = _Exchange(url, tls, min(timeout, stall or timeout), read)
        async with asyncio.timeout(timeout):
            return await transfer.run(method, payload, {**sent, **(headers or {})})
    except TimeoutError:
        raise HttpFault(f"no answer in {timeout:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise HttpFault(f"its certificate is not accepted: {error.verify_message}") from error
    except ssl.SSLError as error:
        # A server that does not accept the client certificate ends the handshake with an alert.
        raise HttpFault(f"TLS: {(error.reason or 'failed').lower().replace('_', ' ')}") from error
    except InvalidURL as error:
        raise HttpFault(str(error)) from error
    except HTTPException as error:
        raise HttpFault("the answer is cut off, or is no HTTP") from error
    except (OSError, ValueError) as error:
        # ValueError: an invalid port, or a host name that cannot be encoded.
        number = getattr(error, "errno", None) or 0
        # The numbers of resolver errors are not those of errno.
        is_errno = number in errno.errorcode
        raise HttpFault(os.strerror(number) if is_errno else str(error) or type(error).__name__) from error


async def fetch_json(
    url: str,
    *,
    ca: str,
    headers: Mapping[str, str] | None = None,
    timeout: float,
    error_of: Callable[[Mapping[str, Any]], str],
    unreachable: Callable[[str], AgentError],
    rejected: Callable[[str], AgentError],
) -> dict[str, Any]:
    """Return the JSON object that a configured server answers.

    ``error_of`` returns the words of an answer with an error. What may pass raises ``unreachable`` with the cause, what
    an admin has to correct raises ``rejected``.
    """
    try:
        # Certificates are rotated, so they are read for each request.
        tls = await asyncio.to_thread(tls_context, ca) if url.startswith("https:") else None
    except OSError as error:
        raise rejected(f"the authority cannot be used: {error.strerror or error}") from error
    try:
        answer = await request("GET", url, headers=headers, tls=tls, timeout=timeout)
    except HttpFault as fault:
        raise unreachable(str(fault)) from fault
    # In a thread: an update graph has some hundred kilobytes.
    body = await asyncio.to_thread(answer.json)
    if answer.status != 200:
        passing = answer.status >= 500 or answer.status == TOO_MANY_REQUESTS
        raise (unreachable if passing else rejected)(
            ", ".join(filter(None, (f"status {answer.status}", error_of(body))))
        )
    if not body:
        raise unreachable("the answer is no JSON object")
    return body


def _whole(response: HTTPResponse) -> Answer:
    body = response.read(MAX_ANSWER + 1)
    # One byte more was requested, so that a body of exactly the limit passes.
    if len(body) > MAX_ANSWER:
        raise ValueError(f"the answer is larger than {MAX_ANSWER} bytes")
    # A connection that ended early leaves a rest of the announced length.
    if response.length:
        raise HTTPException("cut off")
    return Answer(response.status, body)


class _Exchange(Generic[T]):
    """One request on one connection, in a thread that ``run`` can stop."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, timeout: float, read: Callable[[HTTPResponse], T]) -> None:
        parts = urlsplit(url)
        # Credentials in a URL would appear in logs.
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise HttpFault("the address is no plain http or https URL")
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connect_timeout = min(timeout, CONNECT_TIMEOUT)
        self._connection = (
            HTTPSConnection(parts.hostname, parts.port, timeout=connect_timeout, context=tls)
            if parts.scheme == "https"
            else HTTPConnection(parts.hostname, parts.port, timeout=connect_timeout)
        )
        self._timeout = timeout
        self._read = read
        self._socket: socket.socket | None = None
        self._stopped = False

    async def run(self, method: str, payload: bytes | None, headers: Mapping[str, str]) -> T:
        work = partial(self._blocking, method, payload, headers)
        try:
            # A lookup of a name cannot be interrupted, and a server may not answer.
            return await in_daemon_thread(asyncio.get_running_loop(), "http", work)
        finally:
            self._stop()

    def _stop(self) -> None:
        """End the reading in the thread. A timeout of the socket is for one read only: it would not end an answer that
        arrives byte by byte."""
        self._stopped = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _blocking(self, method: str, payload: bytes | None, headers: Mapping[str, str]) -> T:
        try:
            self._connection.connect()
            self._socket = self._connection.sock
            # The caller gave up during the connection attempt, which cannot be interrupted.
            if self._stopped:
                raise TimeoutError
            # The connection had a shorter timeout of its own.
            self._socket.settimeout(self._timeout)
            self._connection.request(method, self._target, payload, dict(headers))
            with self._connection.getresponse() as response:
                return self._read(response)
        finally:
            self._connection.close()


class _Socket(ssl.SSLSocket):
    """A socket that is closed if its connection was reset before the handshake, which Python before 3.13 leaves open
    until the next garbage collection: a server that is killed resets the connections that it has not accepted."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except ConnectionError:
            self.close()
            raise


def tls_context(ca: str = "", certificate: str = "", key: str = "") -> ssl.SSLContext:
    """Return a context for a client, from PEM files.

    Blocks: it reads files. Without ``ca`` the authorities of the host are trusted. Raises ``OSError``, of which
    ``SSLError`` is a kind.
    """
    for path in filter(None, (ca, certificate, key)):
        # OpenSSL would wait for a writer of a pipe without end, in a thread that cannot be interrupted.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            raise OSError(errno.EINVAL, "it is no regular file", path)
    context = ssl.create_default_context(cafile=ca or None)
    context.sslsocket_class = _Socket
    if ca:
        # Authorities of clusters are often made without the extensions that Python 3.13 began to require.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate:
        context.load_cert_chain(certificate, key or None, password=no_password)
    return context


def no_password() -> str:
    """Fail, where OpenSSL would prompt on the terminal."""
    raise ssl.SSLError("the key is encrypted")
