# SPDX-License-Identifier: Apache-2.0
"""Answers of other servers: HTTP, and the gateway of etcd."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from typing import Any, Final

from integration.fuzz.target import Target, choices, document
from nodeagent.core.etcd.quorum import EtcdSurvey, judge, member_trouble, read_alarms, read_members, read_state
from nodeagent.host.etcd.client import EtcdClient, EtcdFault, _read
from nodeagent.host.etcd.options import Endpoints
from nodeagent.host.etcd.survey import survey_cluster
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


HERE: Final = Endpoints(("https://a:2379",), ("https://b:2379",), 1)


class _Client(EtcdClient):
    """A client of members whose answers are made of the same bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(None)
        self._data = data

    async def _send(self, method: str, url: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        # Each path takes other bytes, so that the answers do not agree.
        found = document(MEMBERS, self._data if self._data.startswith(b"{") else self._data[len(path) % 8 :])
        status = 500 if self._data[-1:] == b"\xff" and len(path) % 2 else 200
        return Answer(status, json.dumps(found).encode())


def surveyed(data: bytes) -> EtcdSurvey | None:
    """The survey of members that answer with these bytes; None if that fails."""
    with suppress(EtcdFault):
        return asyncio.run(survey_cluster(_Client(data), HERE, "a"))
    return None


def survey(data: bytes) -> None:
    """What the base makes of a survey, and each change of the membership."""
    found = surveyed(data)
    if found is not None:
        judge(found)
        member_trouble(found, "1")
    asyncio.run(_change(_Client(data)))


async def _change(client: EtcdClient) -> None:
    url = HERE.ours[0]
    calls = (
        client.cluster_version(url),
        client.unready(url),
        client.move_leader(url, "1"),
        client.add_learner(url, ["https://a:2380"]),
        client.promote(url, "1"),
        client.remove(url, "1"),
        client.update_address(url, "1", ["https://a:2380"]),
    )
    for call in calls:
        with suppress(EtcdFault):
            await call


SURVEYS: Final = [b"{}", b'{"members": [{"ID": 1, "clientURLs": [7]}]}', *choices(40)]

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
    Target("etcd-survey", survey, SURVEYS),
)
