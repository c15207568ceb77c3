# SPDX-License-Identifier: Apache-2.0
"""One HTTP request over a real socket: forms of an answer, hostile servers, bounds."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import ssl
import struct
import subprocess
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.host import http as under_test
from nodeagent.host.http import HttpFault, fetch_json, request, tls_context
from tests.support import tls_server
from tests.support.needs import needs
from tests.support.signer import Signer
from tests.support.tls_server import TlsServer, http, pair

__all__ = ["pair"]

Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[str]:
    """Yield the address of a server that calls ``handle`` after each request."""

    tasks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.append(task)
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await handle(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.gather(*tasks)


def answering(data: bytes) -> AbstractAsyncContextManager[str]:
    async def handle(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return serving(handle)


async def drip(writer: asyncio.StreamWriter) -> None:
    """Send a header without end, a byte at a time, until the client closes the connection."""
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


def workers() -> int:
    return sum("ThreadPoolExecutor" in thread.name for thread in threading.enumerate())


async def stopped() -> None:
    async with asyncio.timeout(5):
        while workers():
            await asyncio.sleep(0.01)


async def test_an_answer_in_chunks() -> None:
    chunked = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{"a": 1\r\n1\r\n}\r\n0\r\n\r\n'
    async with answering(chunked) as url:
        answer = await request("GET", url, timeout=5)
    assert (answer.status, answer.json()) == (200, {"a": 1})


@pytest.mark.finding("daemon: no bug ends it", "A FleetLock or etcd answer nested 200,000 deep is no object.")
@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"", b"\xff", b"[" * 200_000])
async def test_a_body_that_is_no_object_is_empty(body: bytes) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)) as url:
        assert (await request("GET", url, timeout=5)).json() == {}


@pytest.mark.parametrize(
    ("path", "body", "target"),
    [("", None, "/"), ("/a/b?c=d&e", {"f": "g"}, "/a/b?c=d&e"), ("/a?", {}, "/a")],
)
async def test_what_is_sent(path: str, body: dict[str, str] | None, target: str) -> None:
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        received.append(b"" if body is None else await reader.readexactly(len(json.dumps(body))))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"
        await request("POST", url, body=body, headers={"X-A": "b"}, timeout=30)
    head = received[0].decode().lower()
    assert head.startswith(f"post {target} http/1.1\r\n")
    assert "\r\nx-a: b\r\n" in head
    assert ("content-type: application/json" in head) is (body is not None)
    assert received[1] == (b"" if body is None else json.dumps(body).encode())


async def test_a_redirect_is_not_followed() -> None:
    async with answering(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n") as url:
        assert (await request("GET", url, timeout=5)).status == 302


async def test_faults_of_the_system_are_named_in_words() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(HttpFault, match=r"^Connection refused$"):
            await request("GET", f"http://127.0.0.1:{closed.getsockname()[1]}", timeout=5)


async def test_an_answer_that_arrives_byte_by_byte_is_given_up_and_its_thread_ends() -> None:
    async with serving(drip) as url:
        with pytest.raises(HttpFault, match=r"no answer in 0\.3 s"):
            await request("GET", url, timeout=0.3)
        await stopped()


async def test_a_cancelled_request_ends_its_thread() -> None:
    async with serving(drip) as url:
        task = asyncio.create_task(request("GET", url, timeout=60))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stopped()


async def test_servers_that_do_not_answer_do_not_delay_other_requests() -> None:
    async with serving(drip) as silent, answering(b"HTTP/1.1 204 No Content\r\n\r\n") as url:
        hanging = [asyncio.create_task(request("GET", silent, timeout=60)) for _ in range(40)]
        await asyncio.sleep(0.1)
        assert (await request("GET", url, timeout=30)).status == 204
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await stopped()


@pytest.mark.parametrize("data", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"])
async def test_an_answer_that_is_cut_off_or_no_http(data: bytes) -> None:
    async with answering(data) as url:
        with pytest.raises(HttpFault, match="cut off, or is no HTTP"):
            await request("GET", url, timeout=5)


@pytest.mark.parametrize("length", [b"", b"Content-Length: 2000\r\n"])
async def test_the_size_of_an_answer_is_limited(length: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "MAX_ANSWER", 1000)
    async with answering(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + b"x" * 2000) as url:
        with pytest.raises(HttpFault, match="larger than 1000 bytes"):
            await request("GET", url, timeout=5)


async def test_an_answer_of_the_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "MAX_ANSWER", 1000)
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1000) as url:
        assert len((await request("GET", url, timeout=5)).body) == 1000


@pytest.mark.parametrize("which", ["ca", "certificate", "key"])
def test_a_pipe_in_place_of_a_pem_file_is_not_waited_for(tmp_path: Path, which: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        tls_context(**{which: str(tmp_path / "pipe")})


@needs("openssl")
def test_the_authority_and_the_certificate_of_a_client(tmp_path: Path) -> None:
    Signer(tmp_path)
    key, certificate = tmp_path / "authority.key", tmp_path / "authority.crt"
    context = tls_context(str(certificate))
    assert [dict(part[0] for part in ca["subject"]) for ca in context.get_ca_certs()] == [{"commonName": "authority"}]
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert tls_context().verify_flags == ssl.create_default_context().verify_flags
    tls_context(certificate=str(certificate), key=str(key))
    # One file may have both.
    tls_context(certificate=str(tmp_path / "authority.pem"))
    with pytest.raises(ssl.SSLError):
        tls_context(certificate=str(certificate))
    locked = tmp_path / "locked.key"
    command = ["openssl", "pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:secret"]
    subprocess.run(command, check=True, timeout=60)
    with pytest.raises(ssl.SSLError, match="the key is encrypted"):
        tls_context(certificate=str(certificate), key=str(locked))


@needs("openssl")
async def test_a_server_with_tls(pair: tuple[str, str]) -> None:
    certificate, key = pair
    async with tls_server.serving(TlsServer(http(200, {"a": 1})), pair) as server:
        url = f"https://127.0.0.1:{server.port}"
        assert (
            await request("GET", url, tls=await asyncio.to_thread(tls_context, certificate), timeout=30)
        ).json() == {"a": 1}
        assert await fetched(url, certificate) == {"a": 1}
        with pytest.raises(HttpFault, match="its certificate is not accepted"):
            await request("GET", url, tls=await asyncio.to_thread(tls_context), timeout=30)
        own = await asyncio.to_thread(tls_context, certificate, certificate, key)
        own.maximum_version = ssl.TLSVersion.TLSv1_2
        own.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
        with pytest.raises(HttpFault, match=r"^TLS: [a-z0-9 ]+$"):
            await request("GET", url, tls=own, timeout=30)


@pytest.mark.parametrize("url", ["ftp://a", "http://", "unix:///run/x", "http://root:secret@a/"])
async def test_invalid_address(url: str) -> None:
    with pytest.raises(HttpFault) as caught:
        await request("GET", url, timeout=5)
    assert "secret" not in str(caught.value)


async def test_invalid_port() -> None:
    with pytest.raises(HttpFault, match=r"[Pp]ort"):
        await request("GET", "http://127.0.0.1:99999/", timeout=5)


async def test_a_lookup_without_an_answer_does_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def silent(*_: object, **__: object) -> list[Any]:
        answered.wait(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    with pytest.raises(HttpFault, match="no answer"):
        await request("GET", "http://etcd.example.com/", timeout=0.05)
    left = [thread for thread in threading.enumerate() if thread.name == "http"]
    assert left, "the lookup is still under way"
    assert all(thread.daemon for thread in left), "the process ends without it"
    answered.set()
    for thread in left:
        await asyncio.to_thread(thread.join, 10)


async def test_a_connection_that_is_reset_before_the_handshake_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a server does that is killed with connections in its queue."""
    connect = HTTPConnection.connect
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reset(connection: HTTPConnection) -> None:
            connect(connection)
            peer, _ = listening.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()

        monkeypatch.setattr(HTTPConnection, "connect", reset)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            with pytest.raises(HttpFault, match="reset by peer"):
                await request("GET", f"https://127.0.0.1:{listening.getsockname()[1]}", tls=tls_context(), timeout=30)
            # The thread of the request and the loop hold its error for a moment.
            for thread in threading.enumerate():
                if thread.name == "http":
                    await asyncio.to_thread(thread.join, 10)
            await asyncio.sleep(0)
            gc.collect()
    assert not [str(warning.message) for warning in found if warning.category is ResourceWarning]


async def fetched(url: str, ca: str = "") -> dict[str, Any]:
    return await fetch_json(
        url,
        ca=ca,
        timeout=5,
        error_of=lambda body: str(body.get("error", "")),
        unreachable=Retryable,
        rejected=Terminal,
    )


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (200, b"<html>", Retryable, "no JSON object"),
        (200, b"{}", Retryable, "no JSON object"),
        (204, b"", Terminal, "^status 204$"),
        (403, b'{"error": "no"}', Terminal, "^status 403, no$"),
        (429, b'{"error": "later"}', Retryable, "^status 429, later$"),
        (499, b"", Terminal, "^status 499$"),
        (500, b"", Retryable, "^status 500$"),
    ],
)
async def test_an_answer_that_is_no_result(status: int, body: bytes, kind: type[AgentError], message: str) -> None:
    async with answering(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)) as url:
        with pytest.raises(kind, match=message) as caught:
            await fetched(url)
    assert type(caught.value) is kind


async def test_a_result() -> None:
    async with answering(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}') as url:
        # The authority is for https alone.
        assert await fetched(url, "/nonexistent/ca.crt") == {"a": 1}


async def test_a_server_that_does_not_answer_may_come_back() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(Retryable, match="Connection refused"):
            await fetched(f"http://127.0.0.1:{closed.getsockname()[1]}")


async def test_an_authority_that_cannot_be_read() -> None:
    with pytest.raises(Terminal, match="authority cannot be used: No such file"):
        await fetched("https://127.0.0.1:9/", "/nonexistent/ca.crt")
