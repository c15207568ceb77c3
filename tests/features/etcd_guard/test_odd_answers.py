# SPDX-License-Identifier: Apache-2.0
"""Answers of etcd of another form: a refusal, as an outage, and never an error of the agent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import Refused
from nodeagent.features.etcd_guard import quorum
from nodeagent.host.clock import SystemClock
from nodeagent.host.etcd.client import EtcdAccess, EtcdClient
from nodeagent.host.http import Answer

ODD = pytest.mark.finding(
    "configs: refused before the question", "An odd answer of etcd is an outage of it, and an update waits."
)
URL = "http://127.0.0.1:2379"
NAMES = ("a", "b", "c")
MEMBERS: list[Any] = [
    {"ID": str(number), "name": name, "clientURLs": [f"http://{name}:2379"], "peerURLs": [f"http://{name}:2380"]}
    for number, name in enumerate(NAMES, 1)
]
STATUS: dict[str, Any] = {"header": {"member_id": "1", "cluster_id": "9"}, "leader": "2", "raftIndex": "5"}


class Client(EtcdClient):
    """Each member answers with its id."""

    def __init__(self, members: list[Any], status: Mapping[str, Any]) -> None:
        super().__init__(None)
        self._members = members
        self._status = status

    async def _send(self, method: str, url: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        if path.endswith("list"):
            return Answer(200, json.dumps({"members": self._members}).encode())
        if path.startswith("/health"):
            return Answer(200, b'{"health": "true"}')
        if path.endswith("alarm"):
            return Answer(200, b'{"alarms": []}')
        host = next((str(number) for number, name in enumerate(NAMES, 1) if f"/{name}:" in url), "1")
        header = {**STATUS["header"], "member_id": host}
        return Answer(200, json.dumps({**STATUS, "raftAppliedIndex": "5", "header": header, **self._status}).encode())


def checked(
    monkeypatch: pytest.MonkeyPatch, root: Path, members: list[Any], status: Mapping[str, Any]
) -> quorum.QuorumCheck:
    monkeypatch.setattr(quorum, "open_client", lambda *_: Client(members, status))
    return quorum.QuorumCheck(SystemClock(), access=EtcdAccess(endpoints=(URL,)), root=root)


async def test_the_members_are_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (await checked(monkeypatch, tmp_path, MEMBERS, {}).check()).verdict.allowed


@ODD
@pytest.mark.parametrize(
    "odd",
    [
        {"clientURLs": [7]},
        {"clientURLs": 7},
        {"clientURLs": [None]},
        {"peerURLs": [{}]},
        {"peerURLs": "http://c:2380"},
        {"name": ["c"]},
        {"ID": "1"},
        {"ID": [1]},
        {"ID": "x"},
        {"ID": -3},
        {"ID": float("inf")},
        {"ID": 2**70},
        {"ID": None},
        {"ID": True},
    ],
    ids=str,
)
async def test_a_member_of_another_form(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, odd: Mapping[str, Any]
) -> None:
    with pytest.raises(Refused, match="the answer is not etcd") as caught:
        await checked(monkeypatch, tmp_path, [*MEMBERS[:2], {**MEMBERS[2], **odd}], {}).check()
    assert caught.value.reason == "EtcdUnreachable"


@ODD
async def test_a_member_that_is_no_object_is_not_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without it, the others would be a quorum of fewer members."""
    with pytest.raises(Refused, match="the answer is not etcd"):
        await checked(monkeypatch, tmp_path, [*MEMBERS, "x"], {}).check()


@ODD
async def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    members = [*MEMBERS[:2], {**MEMBERS[2], "clientURLs": ["http://[", "c:2379"]}]
    with pytest.raises(Refused, match="c: has no address for clients"):
        await checked(monkeypatch, tmp_path, members, {}).check()


@ODD
@pytest.mark.parametrize(
    "status",
    [
        {"raftIndex": float("inf"), "leader": "x"},
        {"leader": -1},
        {"errors": 7},
        {"header": {"member_id": float("inf")}},
        {"header": []},
        {"raftIndex": 2**70},
    ],
    ids=str,
)
async def test_a_status_of_another_form(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: Mapping[str, Any]
) -> None:
    with pytest.raises(Refused, match="the answer is not etcd"):
        await checked(monkeypatch, tmp_path, MEMBERS, status).check()
