"""Answers of other servers: HTTP, the gateway of etcd, FleetLock."""

from __future__ import annotations

from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from typing import Any, Final

from integration.fuzz.target import Target, choices, document
from nodeagent.core.coordination.fleetlock import Call
from nodeagent.core.etcd.quorum import read_alarms, read_members, read_state
from nodeagent.errors import AgentError
from nodeagent.host.etcd.client import EtcdFault, _read
from nodeagent.host.fleetlock import FleetLock
from nodeagent.host.http import Answer, _whole

OK: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class _Socket:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self._data)


def http(data: bytes) -> None:
    response = HTTPResponse(_Socket(data))  # type: ignore[arg-type]
    # The errors that ``exchange`` translates.
    with suppress(HTTPException, OSError, ValueError):
        response.begin()
        _whole(response).json()


MEMBERS: Final[dict[str, Any]] = {
    "header": {"member_id": "1", "cluster_id": "2"},
    "members": [{"ID": "1", "name": "a", "peerURLs": ["https://a:2380"], "clientURLs": ["https://a:2379"]}],
    "alarms": [{"memberID": "1", "alarm": "NOSPACE"}],
    "version": "3.6.8",
    "leader": "1",
    "raftIndex": "9",
    "raftAppliedIndex": "9",
    "dbSize": "100",
    "isLearner": False,
    "errors": ["etcdserver: no leader"],
}


def etcd(data: bytes) -> None:
    found = document(MEMBERS, data)
    if found is None:
        return
    for read in (read_members, read_state, read_alarms):
        with suppress(EtcdFault):
            _read("https://a:2379", read, found)


def fleetlock(data: bytes) -> None:
    lock = FleetLock("https://fleetlock", "00" * 16)
    for status in (200, 400, 423, 500):
        for call in Call:
            with suppress(AgentError):
                lock._judge(call, Answer(status, data))


TARGETS: Final = (
    Target(
        "http",
        http,
        [
            OK + b"Content-Length: 2\r\n\r\n{}",
            OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            OK + b"Content-Length: -1\r\n\r\n{}",
            OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffff\r\n{}",
            b"HTTP/1.1 100 Continue\r\n\r\n" * 20,
            b"<html>",
        ],
    ),
    Target("etcd", etcd, [b"{}", b'{"members": [{}]}', b'{"members": [{"ID": []}]}', *choices(20)]),
    Target("fleetlock", fleetlock, [b"", b"[]", b'{"kind": "failed_lock", "value": "semaphore"}', b'{"kind": []}']),
)
