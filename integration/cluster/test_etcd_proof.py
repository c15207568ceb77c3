# SPDX-License-Identifier: Apache-2.0
"""The proof that a member of etcd works, against a real cluster: etcd's own answers, and nothing of the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.cluster.etcd import EtcdCluster, EtcdMember
from integration.cluster.test_etcd import etcd, long_lived, make_etcd  # noqa: F401 - fixtures
from nodeagent.host.etcd.proof import MemberProof

MakeEtcd = Callable[..., EtcdCluster]


def proof_of(member: EtcdMember, snapshot: Path = Path("/dev/null")) -> MemberProof:
    return MemberProof(snapshot, root=member.host, timeout=10.0)


def test_a_healthy_member(etcd: EtcdCluster, tmp_path: Path) -> None:  # noqa: F811
    members = etcd.members
    ids = [asyncio.run(proof_of(member).identity()) for member in members]
    assert len({*ids, ""}) == 4
    assert asyncio.run(proof_of(members[0]).trouble(ids[0])) == ""
    assert "another member" in asyncio.run(proof_of(members[0]).trouble(ids[1]))
    asyncio.run(proof_of(members[0], tmp_path / "keyspace.db").snapshot())
    assert (tmp_path / "keyspace.db").stat().st_size > 10_000


def test_a_killed_member(etcd: EtcdCluster) -> None:  # noqa: F811
    member = etcd.members[0]
    member.server.kill()
    assert asyncio.run(proof_of(member).identity()) == ""
    assert asyncio.run(proof_of(member).trouble()) != ""


@pytest.mark.usefixtures("etcd")
def test_without_a_quorum_a_member_that_lives_is_not_ready(make_etcd: MakeEtcd) -> None:  # noqa: F811
    cluster = make_etcd()
    for member in cluster.members[1:]:
        member.server.kill()
    assert "/readyz answers 503" in asyncio.run(proof_of(cluster.members[0]).trouble())
