"""One HTTP request and its answer, for services whose client libraries would weigh too much: etcd's gateway, FleetLock.

A connection for each request, a deadline over all of it, a bounded answer. Redirects are not followed and proxies of
the environment are not used: who disrupts a host is asked at the address that was configured. The bytes are parsed by
the standard library.
"""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any, Final
from urllib.parse import urlsplit

from nodeagent import __version__
from nodeagent.core.config.text import plain_json

__all__ = ["Answer", "HttpFault", "request", "tls_context"]

MAX_ANSWER: Final = 4 * 1024 * 1024
PORTS: Final = {"http": 80, "https": 443}


class HttpFault(Exception):
    """No connection, no answer in time, or none that is HTTP. What was asked may have been done all the same. For
    adapters, which know whose fault it is."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    def json(self) -> dict[str, Any]:
        """{} for what is no JSON object: a proxy on the way answers in HTML."""
        try:
            found = plain_json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


async def request(
    method: str,
    url: str,
    *,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float,
) -> Answer:
    """``timeout`` in seconds. ``tls`` is needed for https. Raises ``HttpFault``."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname or parts.username is not None:
        raise HttpFault("the address is no plain http or https URL")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    payload = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close", "Accept: application/json"]
    lines += [f"User-Agent: nodeagent/{__version__}"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    sent = "\r\n".join([*lines, "", ""]).encode() + payload
    try:
        port = parts.port or PORTS[parts.scheme]
        async with asyncio.timeout(timeout):
            received = await _exchange(parts.hostname, port, sent, tls if parts.scheme == "https" else None)
    except TimeoutError:
        raise HttpFault(f"no answer in {timeout:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise HttpFault(f"its certificate is not accepted: {error.verify_message}") from error
    except ssl.SSLError as error:
        # Also how a server says that it does not accept ours.
        raise HttpFault(f"TLS: {(error.reason or 'failed').lower().replace('_', ' ')}") from error
    except (OSError, ValueError) as error:  # the last: a port that is none, a host name that cannot be encoded
        number = getattr(error, "errno", None) or 0
        known = number in errno.errorcode  # not so for what a resolver says
        raise HttpFault(os.strerror(number) if known else str(error) or type(error).__name__) from error
    return _parsed(method, received)


async def _exchange(host: str, port: int, sent: bytes, tls: ssl.SSLContext | None) -> bytes:
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        writer.write(sent)
        await writer.drain()
        received = bytearray()
        while part := await reader.read(65536):
            received += part
            if len(received) > MAX_ANSWER:
                raise ValueError(f"the answer is larger than {MAX_ANSWER} bytes")
        return bytes(received)
    finally:
        writer.transport.abort()  # a polite end of TLS waits for the other side, up to half a minute


class _Received:
    """What the parser takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object, **__: object) -> io.BytesIO:
        return io.BytesIO(self._data)


def _parsed(method: str, received: bytes) -> Answer:
    response = HTTPResponse(_Received(received), method=method)  # type: ignore[arg-type]
    try:
        response.begin()
        return Answer(response.status, response.read())
    except (HTTPException, ValueError) as error:
        raise HttpFault("the answer is cut off, or is no HTTP") from error


def tls_context(ca: str = "", certificate: str = "", key: str = "") -> ssl.SSLContext:
    """Blocks: it reads files. Without ``ca`` the host's authorities count. Raises ``OSError``, of which ``SSLError`` is
    one."""
    context = ssl.create_default_context(cafile=ca or None)
    if ca:
        # Authorities of clusters are often made without the extensions that Python 3.13 began to ask for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate:
        context.load_cert_chain(certificate, key or None, password=_no_password)
    return context


def _no_password() -> str:
    """Instead of asking for one on the terminal."""
    raise ssl.SSLError("the key is encrypted")
