# SPDX-License-Identifier: Apache-2.0
"""A server of JSON over TLS, whose answers may be anything."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

# Seconds for a request that must fail by its timeout; a server that answers is given far more.
SHORT, PATIENT = 0.5, 30.0


@dataclass
class TlsServer:
    """``answer`` is the whole HTTP answer; ``stall`` keeps the connection open after it."""

    answer: bytes = b""
    stall: bool = False
    requests: list[str] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.tasks.append(task)
        with suppress(OSError, asyncio.IncompleteReadError):
            self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self.answer)
            await writer.drain()
            if self.stall:
                await reader.read()
                # The client has gone without an end of its TLS session, which a close would wait for.
                writer.transport.abort()
        writer.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1, which is its own authority, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = str(directory / "cert.pem"), str(directory / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-out", certificate, "-keyout", key], check=True, capture_output=True, timeout=60)
    return certificate, key


@asynccontextmanager
async def serving(made: TlsServer, pair: tuple[str, str]) -> AsyncIterator[TlsServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.gather(*made.tasks)
        await asyncio.sleep(0)


def http(status: int, body: bytes | dict[str, Any], head: str = "") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n{head}\r\n".encode() + data
