# SPDX-License-Identifier: Apache-2.0
"""FleetLock against a small real HTTP server that keeps slots as airlock and poseidon's do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from nodeagent.errors import AgentError, InvalidInput, Refused, Terminal, Unreachable
from nodeagent.features.fleetlock.client import ATTEMPTS, FleetLock

ID, OTHER = "0123456789abcdef0123456789abcdef", "f" * 32


@dataclass
class FleetServer:
    """``held`` by group; ``answers`` go before the real ones: bytes, or None for a connection that is cut."""

    slots: int = 1
    full: int = 500
    poseidon: bool = False  # refuses to give back a slot that another host has, where airlock accepts
    held: dict[str, set[str]] = field(default_factory=dict)
    answers: list[bytes | None] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.seen.append((first, headers))
        answer = self.answers.pop(0) if self.answers else self.decide(first.split()[1], headers, body["client_params"])
        if answer is not None:
            writer.write(answer)
            await writer.drain()
        writer.close()

    def decide(self, path: str, headers: dict[str, str], client: dict[str, str]) -> bytes:
        if headers.get("fleet-lock-protocol") != "true":
            return answer(400, {"kind": "bad_header", "value": "wrong header"})
        held = self.held.setdefault(client["group"], set())
        if path.endswith("/v1/steady-state"):
            if self.poseidon and held and client["id"] not in held:
                return answer(423, {"kind": "lock_held", "value": "reboot lease unlock unavailable, held by x"})
            held.discard(client["id"])
        elif not path.endswith("/v1/pre-reboot"):
            return answer(404, None)
        elif client["id"] not in held and len(held) >= self.slots:
            return answer(self.full, {"kind": "failed_lock", "value": "semaphore is full"})
        else:
            held.add(client["id"])
        return answer(200, {})


def answer(status: int, body: Any) -> bytes:
    text = b"<html>" if body is None else json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


@asynccontextmanager
async def serving(made: FleetServer) -> AsyncIterator[FleetServer]:
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0)


@pytest.fixture
async def server() -> AsyncIterator[FleetServer]:
    async with serving(FleetServer()) as made:
        yield made


def client(server: FleetServer, who: str = ID, *, path: str = "", timeout: float = 5.0) -> FleetLock:
    return FleetLock(server.url + path, who, first_pause=0.01, timeout=timeout)


async def raised(what: Any, kind: type[AgentError], reason: str) -> str:
    with pytest.raises(kind) as caught:
        await what
    assert caught.value.reason == reason
    return caught.value.message


async def test_one_slot_for_two_hosts(server: FleetServer) -> None:
    await client(server).lock()
    await client(server).lock()  # again is the same slot
    assert server.held == {"default": {ID}}
    for status in (500, 423, 409):
        server.full = status
        message = await raised(client(server, OTHER).lock(), Refused, "SlotHeld")
        assert "semaphore is full" in message
    assert len(server.seen) == 5, "a no is an answer: it is not asked again"
    await client(server).unlock()
    await client(server).unlock()
    await client(server, OTHER).lock()
    assert server.held == {"default": {OTHER}}


@pytest.mark.finding(
    "peers: steady state of FleetLock",
    "A FleetLock server that answers `steady-state` with 423 because another host has the slot has done what was "
    "requested.",
)
async def test_giving_back_while_another_host_has_the_slot(server: FleetServer) -> None:
    server.poseidon, server.full = True, 423
    await client(server, OTHER).lock()
    assert "semaphore is full" in await raised(client(server).lock(), Refused, "SlotHeld")
    await client(server).unlock()
    assert server.held == {"default": {OTHER}}


@pytest.mark.finding(
    "peers: steady state of FleetLock",
    "A FleetLock server that answers `steady-state` with 423 because another host has the slot has done what was "
    "requested.",
)
@pytest.mark.parametrize("status", [409, 423, 429, 500])
async def test_giving_back_is_done_only_where_the_server_says_so(server: FleetServer, status: int) -> None:
    await client(server).lock()
    body = None if status == 423 else {"kind": "failed_lock", "value": "busy"}  # 423 of a proxy, not of the protocol
    server.answers = [answer(status, body)] * ATTEMPTS
    await raised(client(server).unlock(), Unreachable, "FleetLockUnreachable")
    server.answers = [answer(status, body)]
    await client(server).unlock()
    assert server.held == {"default": set()}


@pytest.mark.finding(
    "peers: faults of a FleetLock server",
    "`internal_error` is a fault of the FleetLock server, not a slot that is held.",
)
@pytest.mark.parametrize("call", ["lock", "unlock"])
async def test_an_internal_error_is_a_fault_of_the_server_and_no_refusal(server: FleetServer, call: str) -> None:
    server.answers = [answer(500, {"kind": "internal_error", "value": "error getting reboot lease"})] * ATTEMPTS
    message = await raised(getattr(client(server), call)(), Unreachable, "FleetLockUnreachable")
    assert "error getting reboot lease" in message
    assert len(server.seen) == ATTEMPTS
    server.answers = [answer(500, {"kind": "internal_error", "value": "once"})]
    await getattr(client(server), call)()


async def test_what_is_sent(server: FleetServer) -> None:
    await client(server, path="/fleet/lock").lock()
    first, headers = server.seen[0]
    assert first == "POST /fleet/lock/v1/pre-reboot HTTP/1.1", "the last part of the address is not lost"
    assert headers["fleet-lock-protocol"] == "true"
    await client(server, path="/fleet/").unlock()
    assert server.seen[1][0].startswith("POST /fleet/v1/steady-state ")


@pytest.mark.parametrize("fault", [None, b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
                                   answer(502, None)])  # fmt: skip
async def test_a_passing_fault_is_tried_again(server: FleetServer, fault: bytes | None) -> None:
    server.answers = [fault] * (ATTEMPTS - 1)
    await client(server).lock()
    assert len(server.seen) == ATTEMPTS
    assert server.held == {"default": {ID}}


async def test_tries_are_bounded(server: FleetServer) -> None:
    server.answers = [answer(503, None)] * (ATTEMPTS + 1)
    message = await raised(client(server).lock(), Unreachable, "FleetLockUnreachable")
    assert "503" in message
    assert len(server.seen) == ATTEMPTS


async def test_server_down(server: FleetServer) -> None:
    lock = FleetLock("http://127.0.0.1:1", ID, first_pause=0.01)
    assert "refused" in await raised(lock.lock(), Unreachable, "FleetLockUnreachable")


async def test_a_server_that_hangs() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    made = await asyncio.start_server(hang, "127.0.0.1", 0)
    try:
        port = made.sockets[0].getsockname()[1]
        lock = FleetLock(f"http://127.0.0.1:{port}", ID, timeout=0.05, first_pause=0.01)
        assert "no answer in 0.05 s" in await raised(lock.unlock(), Unreachable, "FleetLockUnreachable")
    finally:
        made.close()
        await made.wait_closed()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("status", "body"), [(400, {"kind": "bad_group", "value": "unknown"}), (404, None), (301, None)]
)
async def test_errors_that_an_operator_has_to_correct(server: FleetServer, status: int, body: Any) -> None:
    server.answers = [answer(status, body)]
    message = await raised(client(server).lock(), Terminal, "FleetLockRejected")
    assert str(status) in message
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: FleetLock("ftp://a", ID),
        lambda: FleetLock("http://user:secret@a/", ID),
        lambda: FleetLock("http://@a/", ID),
        lambda: FleetLock("http://[", ID),
        lambda: FleetLock("http://a:99999", ID),
        lambda: FleetLock("http://a:x", ID),
        lambda: FleetLock("http://a", ID, "no group"),
    ],
)
def test_settings_that_are_wrong(make: Callable[[], FleetLock]) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert caught.value.reason == "FleetLockInvalid"
    assert "secret" not in caught.value.message
