# SPDX-License-Identifier: Apache-2.0
"""Answers of etcd's gateway, and of another program at its address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from nodeagent.host.etcd.client import HEALTH, EtcdAccess, EtcdClient, EtcdFault, open_client
from nodeagent.host.etcd.options import Endpoints, Options
from tests.support.needs import needs
from tests.support.tls_server import TlsServer, http, pair, serving

__all__ = ["pair"]


@asynccontextmanager
async def gateway(answer: bytes) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


async def test_the_move_of_a_leadership_is_answered_by_an_empty_object() -> None:
    async with gateway(b"{}") as url:
        await EtcdClient(None).move_leader(url, "2")


@pytest.mark.parametrize("answer", [b"", b"<html></html>", b"[]", b"null"])
async def test_an_answer_of_another_program_is_no_success(answer: bytes) -> None:
    async with gateway(answer) as url:
        with pytest.raises(EtcdFault, match="the answer is no JSON object"):
            await EtcdClient(None).move_leader(url, "2")


@pytest.mark.parametrize(
    ("where", "reads"),
    [
        (Endpoints(("http://127.0.0.1:2379",), ("http://10.0.0.2:2379",)), False),
        (Endpoints(("https://127.0.0.1:2379",)), True),
        (Endpoints(("http://127.0.0.1:2379",), ("https://10.0.0.2:2379",)), True),
    ],
)
def test_certificates_are_read_where_an_address_needs_them(tmp_path: Path, where: Endpoints, reads: bool) -> None:
    access = EtcdAccess(ca=str(tmp_path / "missing.crt"))
    with pytest.raises(EtcdFault, match=r"missing\.crt") if reads else nullcontext():
        open_client(Options({}), access, where)


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    where = Endpoints(("https://127.0.0.1:2379",))
    with pytest.raises(EtcdFault, match="certificates of etcd: ") as caught:
        open_client(Options({}), EtcdAccess(ca=str(tmp_path / "ca.crt")), where)
    assert caught.value.reason == "EtcdCredentials"


Paths = Mapping[str, tuple[int, Any]]


@asynccontextmanager
async def etcd(paths: Paths) -> AsyncIterator[tuple[EtcdClient, str, list[tuple[str, Any]]]]:
    """Yield a client of a gateway that answers ``paths`` with a status and a document, its address, and the calls."""
    calls: list[tuple[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:")), 0)
        body = await reader.readexactly(length)
        path = head.split()[1]
        calls.append((path, json.loads(body) if body else None))
        status, document = paths.get(path, (404, {"message": "Not Found"}))
        answer = json.dumps(document).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        yield EtcdClient(None), f"http://{host}:{port}", calls


async def test_a_change_of_the_membership_names_the_member() -> None:
    done = (200, {"header": {}, "member": {"ID": "9"}})
    paths = {f"/v3/cluster/member/{what}": done for what in ("add", "promote", "remove", "update")}
    async with etcd(paths) as (client, url, calls):
        assert await client.add_learner(url, ["https://a:2380"]) == "9"
        await client.promote(url, "7")
        await client.remove(url, "7")
        await client.update_address(url, "7", ["https://b:2380"])
    assert calls == [
        ("/v3/cluster/member/add", {"peerURLs": ["https://a:2380"], "isLearner": True}),
        ("/v3/cluster/member/promote", {"ID": "7"}),
        ("/v3/cluster/member/remove", {"ID": "7"}),
        ("/v3/cluster/member/update", {"ID": "7", "peerURLs": ["https://b:2380"]}),
    ]


@pytest.mark.parametrize(
    ("status", "document", "reason"),
    [
        (200, {}, "EtcdRejected"),
        (404, {}, "EtcdRejected"),
        (500, {"header": {}}, "EtcdRejected"),
        (400, {"error": "etcdserver: Peer URLs already exists"}, "EtcdRejected"),
        (503, {"message": "etcdserver: unhealthy cluster"}, "EtcdQuorumAtRisk"),
        (400, {"message": "etcdserver: re-configuration failed due to not enough started members"}, "EtcdQuorumAtRisk"),
        (400, {"message": "etcdserver: too many learner members in cluster"}, "EtcdLearner"),
        (400, {"message": "etcdserver: can only promote a learner member which is in sync with leader"},
         "EtcdLearnerBehind"),
    ],
)  # fmt: skip
async def test_a_change_of_the_membership_that_etcd_rejects(status: int, document: Any, reason: str) -> None:
    async with etcd({"/v3/cluster/member/promote": (status, document)}) as (client, url, _):
        with pytest.raises(EtcdFault, match=f"status {status}") as caught:
            await client.promote(url, "7")
    assert caught.value.reason == reason


@pytest.mark.parametrize("message", ["etcdserver: can only promote a learner member", "etcdserver: member not found"])
async def test_a_promotion_or_removal_that_was_done_before(message: str) -> None:
    paths = {f"/v3/cluster/member/{what}": (404, {"message": message}) for what in ("promote", "remove", "update")}
    async with etcd(paths) as (client, url, _):
        await client.promote(url, "7")
        await client.remove(url, "7")
        with pytest.raises(EtcdFault, match=message):
            await client.update_address(url, "7", [])


@pytest.mark.parametrize(
    ("live", "ready", "problem"),
    [(200, 200, ""), (404, 404, ""), (503, 200, "/livez answers 503"), (200, 503, "/readyz answers 503")],
)
async def test_a_member_that_does_not_serve(live: int, ready: int, problem: str) -> None:
    async with etcd({"/livez": (live, {}), "/readyz": (ready, {})}) as (client, url, _):
        assert await client.unready(url) == (f"{url}{problem}" if problem else "")


STATUS = {"header": {"member_id": "7"}, "leader": "7"}


@pytest.mark.parametrize(
    ("status", "health", "fault"),
    [
        (STATUS, (200, {"health": "true"}), ""),
        (STATUS, (200, {"health": "false", "reason": "RAFT NO LEADER"}), "is not healthy: RAFT NO LEADER"),
        (STATUS, (503, {"health": "true"}), "is not healthy: status 503"),
        (STATUS, (200, []), "is not healthy: status 200"),
        ({**STATUS, "errors": ["it is slow"]}, (503, {}), "it is slow; is not healthy: status 503"),
        ({**STATUS, "errors": ["it is slow"]}, (200, {"health": "true"}), "it is slow"),
    ],
)
async def test_the_state_of_a_member(status: Any, health: tuple[int, Any], fault: str) -> None:
    async with etcd({"/v3/maintenance/status": (200, status), HEALTH: health}) as (client, url, _):
        member, state = await client.state(url)
    assert (member, state.fault) == ("7", fault)


async def test_a_member_without_a_state() -> None:
    async with etcd({"/v3/maintenance/status": (200, {"header": {}}), HEALTH: (200, {})}) as (client, url, _):
        with pytest.raises(EtcdFault, match="the answer is not etcd's"):
            await client.state(url)


async def test_a_member_of_which_only_one_half_answers() -> None:
    answer = json.dumps(STATUS).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if silent not in head:
            writer.write(f"HTTP/1.1 200 X\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        silent = b"/health"
        member, state = await EtcdClient(None).state(url)
        assert (member, "cut off" in state.fault) == ("7", True)
        silent = b"/status"
        with pytest.raises(EtcdFault, match="cut off") as caught:
            await EtcdClient(None).state(url)
    # Neither side has refused a certificate.
    assert caught.value.reason == "EtcdUnreachable"


@needs("openssl")
async def test_a_member_whose_certificate_is_not_accepted(pair: tuple[str, str]) -> None:
    async with serving(TlsServer(http(200, STATUS)), pair) as server:
        url = f"https://127.0.0.1:{server.port}"
        client = await asyncio.to_thread(open_client, Options({}), EtcdAccess(), Endpoints((url,)))
        with pytest.raises(EtcdFault, match="certificate") as caught:
            await client.alarms(url)
        assert caught.value.reason == "EtcdCredentials"
        client = await asyncio.to_thread(open_client, Options({}), EtcdAccess(ca=pair[0]), Endpoints((url,)))
        assert await client.alarms(url) == ()


async def test_an_etcd_with_users() -> None:
    denied = {"error": "etcdserver: permission denied"}
    async with etcd({"/v3/maintenance/alarm": (403, denied)}) as (client, url, _):
        with pytest.raises(EtcdFault, match="users of its own") as caught:
            await client.alarms(url)
        assert caught.value.reason == "EtcdCredentials"
        with pytest.raises(EtcdFault, match="Not Found") as caught:
            await client.members(url)
        assert caught.value.reason == "EtcdUnreachable"
