# SPDX-License-Identifier: Apache-2.0
"""A survey of three members over HTTP: which one is of this host, whose answer counts, and the move of the leader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.etcd.quorum import Member
from nodeagent.errors import Refused
from nodeagent.features.etcd_guard import quorum
from nodeagent.features.etcd_guard.quorum import QuorumCheck
from nodeagent.host.clock import SystemClock
from nodeagent.host.etcd.client import EtcdAccess
from nodeagent.host.etcd.survey import gateways
from tests.host.etcd.test_detect import put

MEMBERS = ("1", "2", "3")
NOT_FOUND = 404, {"message": "no such path"}


@dataclass
class Etcd:
    """Three members at addresses of the loopback, with the same port."""

    root: Path
    port: int = 0
    # Port in the addresses that the members advertise; 0 for that of the gateway.
    advertised: int = 0
    leader: str = "1"
    # Members that close each connection.
    down: set[str] = field(default_factory=set)
    # The member that answers at the address of another one.
    instead: dict[str, str] = field(default_factory=dict)
    moves: list[str] = field(default_factory=list)
    obeys: bool = True
    names: dict[str, str] = field(default_factory=dict)
    move_status: int = 200
    # The answer of each member to each request but the move.
    fault: tuple[int, dict[str, Any]] | None = None

    def url(self, member: str) -> str:
        return f"http://127.0.0.{member}:{self.port}"

    def check(self, *endpoints: str) -> QuorumCheck:
        return QuorumCheck(SystemClock(), access=EtcdAccess(endpoints=endpoints), root=self.root, timeout=2.0)

    def manifest(self, *words: str) -> None:
        """Write that of the member on this host."""
        peers = ",".join(f"cp-{each}=http://127.0.0.{each}:2380" for each in MEMBERS)
        command = json.dumps(["etcd", "--name=cp-1", f"--initial-cluster={peers}", *words])
        text = f"kind: Pod\nspec: {{hostNetwork: true, containers: [{{name: etcd, command: {command}}}]}}\n"
        put(self.root, "etc/kubernetes/manifests/etcd.yaml", text)

    def answer(self, member: str, path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        if path == "/v3/maintenance/transfer-leadership":
            self.moves.append(f"{member} to {body['targetID']}")
            self.leader = str(body["targetID"]) if self.obeys else self.leader
            return self.move_status, {}
        if self.fault is not None:
            return self.fault
        if path == "/v3/cluster/member/list":
            port = self.advertised or self.port
            urls = {each: [f"http://127.0.0.{each}:{port}"] for each in MEMBERS}
            return 200, {
                "members": [
                    {"ID": each, "name": self.names.get(each, f"cp-{each}"), "clientURLs": urls[each]}
                    for each in MEMBERS
                ]
            }
        state = {"header": {"member_id": member}, "leader": self.leader, "raftIndex": "5", "raftAppliedIndex": "5"}
        known = {"/health": {"health": "true"}, "/v3/maintenance/alarm": {}, "/v3/maintenance/status": state}
        return (200, known[path]) if path in known else NOT_FOUND

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        member = writer.get_extra_info("sockname")[0].rpartition(".")[2]
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lengths = [int(line.partition(":")[2]) for line in head.splitlines() if line.startswith("Content-Length")]
        body = await reader.readexactly(sum(lengths))
        if member not in self.down:
            path = head.split()[1].partition("?")[0]
            status, found = self.answer(self.instead.get(member, member), path, json.loads(body or b"{}"))
            data = json.dumps(found).encode()
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        writer.close()


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[Etcd]:
    found = Etcd(tmp_path)
    async with AsyncExitStack() as stack:
        for member in MEMBERS:
            server = await asyncio.start_server(found.serve, f"127.0.0.{member}", found.port)
            found.port = server.sockets[0].getsockname()[1]
            await stack.enter_async_context(server)
        found.manifest(f"--listen-client-urls={found.url('1')}")
        yield found


@pytest.mark.parametrize("status", [200, 503])
async def test_the_leadership_leaves_this_host_before_its_member_stops(etcd: Etcd, status: int) -> None:
    """An error does not say that it did not move."""
    etcd.move_status = status
    report = await etcd.check().move_leader()
    assert (report.verdict.allowed, report.verdict.leader_to) == (True, "")
    assert etcd.moves == [f"1 to {etcd.leader}"], "requested once, from the leader"


async def test_a_leadership_that_does_not_move(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "MOVE_TIMEOUT", 2.0)
    etcd.obeys = False
    with pytest.raises(Refused, match=r"did not move to cp-\d in 2 s") as caught:
        await etcd.check().move_leader()
    assert caught.value.reason == "EtcdLeaderStays"
    assert 2 <= len(etcd.moves) <= 2.0 / quorum.MOVE_PAUSE + 1, "it is requested again, after a pause"


async def test_the_leadership_of_another_member_stays(etcd: Etcd) -> None:
    etcd.leader = "2"
    assert (await etcd.check().move_leader()).verdict.allowed
    assert etcd.moves == []


async def test_a_member_of_this_host_that_is_down_is_known_by_its_name(etcd: Etcd) -> None:
    etcd.leader, etcd.down = "2", {"1"}
    report = await etcd.check().survey()
    assert report.survey is not None
    assert (report.survey.us, report.survey.unknown, report.verdict.allowed) == ("1", "", True)
    assert report.survey.states["1"].fault.startswith(f"does not answer ({etcd.url('1')}")


async def test_a_name_that_two_members_have_is_that_of_none(etcd: Etcd) -> None:
    etcd.leader, etcd.down, etcd.names = "2", {"1"}, {"3": "cp-1"}
    report = await etcd.check().survey()
    assert report.survey is not None
    assert report.survey.us == ""
    assert "EtcdNotMember" in [refusal.reason for refusal in report.verdict.refusals]


async def test_another_member_at_the_address_of_this_host(etcd: Etcd) -> None:
    """As behind a load balancer. Taken for that of this host, it would be the member that may be lost."""
    etcd.leader, etcd.instead = "2", {"1": "3"}
    report = await etcd.check().survey()
    assert report.survey is not None
    assert report.survey.us == "1"
    assert report.survey.states["1"].fault == f"does not answer (another member answers at {etcd.url('1')})"


async def test_another_member_at_the_address_of_a_member_says_nothing_about_it(etcd: Etcd) -> None:
    etcd.leader, etcd.instead = "1", {"3": "2"}
    report = await etcd.check().survey()
    assert report.survey is not None
    assert report.survey.states["3"].fault == f"another member answers at {etcd.url('3')}"
    assert [refusal.reason for refusal in report.verdict.refusals] == ["EtcdQuorumAtRisk"]


async def test_the_first_configured_address_is_that_of_this_host(etcd: Etcd) -> None:
    """Whatever name was detected."""
    report = await etcd.check(etcd.url("2"), etcd.url("3")).survey()
    assert report.survey is not None
    assert (report.survey.us, report.verdict.allowed) == ("2", True)


async def test_without_a_detected_member_the_leadership_leaves_the_first_configured_address(etcd: Etcd) -> None:
    (etcd.root / "etc/kubernetes/manifests/etcd.yaml").unlink()
    assert not (await etcd.check().survey()).signs
    report = await etcd.check(etcd.url("1")).move_leader()
    assert (report.signs, report.verdict.allowed, etcd.moves) == (
        ("configured address",),
        True,
        [f"1 to {etcd.leader}"],
    )


async def test_a_gateway_on_a_port_of_its_own(etcd: Etcd) -> None:
    etcd.advertised = 1
    etcd.manifest("--listen-client-urls=http://127.0.0.1:1", f"--listen-client-http-urls={etcd.url('1')}")
    assert (await etcd.check().survey()).verdict.allowed


async def test_the_reason_of_members_that_answer_nothing(etcd: Etcd) -> None:
    etcd.down = {"1", "2", "3"}
    assert [each.reason for each in (await etcd.check().survey()).verdict.refusals] == ["EtcdUnreachable"]
    etcd.down, etcd.fault = {"1"}, (400, {"message": "etcdserver: user name is empty"})
    (refusal,) = (await etcd.check().survey()).verdict.refusals
    assert refusal.reason == "EtcdCredentials", "what an admin has to correct comes first"
    assert refusal.message.startswith("no member answers: ")


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        (None, ["https://[fd00::1]:2379", "http://a:2379"]),
        (2382, ["https://[fd00::1]:2382", "http://a:2382"]),
    ],
)
def test_addresses_of_a_member(port: int | None, expected: list[str]) -> None:
    urls = ("https://[fd00::1]:2379/", "unix:///run/etcd.sock", "unixs://a:0", "http://:2379", "http://a:2379")
    assert list(gateways(Member("1", "a", urls=urls), port)) == expected
