# SPDX-License-Identifier: Apache-2.0
"""The guard of etcd against a real cluster of three members with TLS."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.cluster.etcd import EtcdCluster, EtcdMember
from integration.cluster.programs import Binaries
from nodeagent.cli.main import main
from nodeagent.errors import Refused
from nodeagent.features.etcd_guard.quorum import QuorumCheck, QuorumReport
from nodeagent.host.clock import SystemClock
from nodeagent.host.etcd.client import EtcdAccess

MakeEtcd = Callable[..., EtcdCluster]


@pytest.fixture(scope="session")
def long_lived(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    made = EtcdCluster(binaries, tmp_path_factory.mktemp("etcd"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def etcd(long_lived: EtcdCluster) -> EtcdCluster:
    """Whatever a test stopped runs again."""
    down = [member for member in long_lived.members if not member.status()]
    for member in down:
        member.server.kill()
        member.server.start()
    for member in down:  # two of three need each other
        member.server.wait_ready(30)
    return long_lived


@pytest.fixture
def make_etcd(binaries: Binaries, tmp_path: Path) -> Iterator[MakeEtcd]:
    """For what a cluster does not recover from."""
    made: list[EtcdCluster] = []

    def make(*flags: str, names: tuple[str, ...] = ("a", "b", "c")) -> EtcdCluster:
        made.append(EtcdCluster(binaries, tmp_path / "etcd", *flags, names=names))
        made[0].start()
        return made[0]

    yield make
    for each in made:
        each.close()


def guard_of(member: EtcdMember, *, single: bool = False) -> QuorumCheck:
    return QuorumCheck(SystemClock(), root=member.host, single=single, timeout=2.0)


def look(member: EtcdMember, *, single: bool = False) -> QuorumReport:
    return asyncio.run(guard_of(member, single=single).survey())


def reasons(report: QuorumReport) -> list[str]:
    return [refusal.reason for refusal in report.verdict.refusals]


def test_a_healthy_cluster_allows_each_of_its_members(etcd: EtcdCluster) -> None:
    leader = etcd.leader()
    for member in etcd.members:
        report = look(member)
        assert report.signs == ("static pod /etc/kubernetes/manifests/etcd.yaml",)
        assert report.verdict.refusals == ()
        assert report.survey is not None
        assert report.survey.us == member.id
        assert bool(report.verdict.leader_to) == (member is leader)


def test_one_is_killed_and_the_others_must_stay(etcd: EtcdCluster) -> None:
    victim, *rest = sorted(etcd.members, key=lambda member: member is etcd.leader())
    victim.server.kill()
    for member in rest:
        report = look(member)
        assert reasons(report) == ["EtcdQuorumAtRisk"]
        assert f"{victim.name}: does not answer" in report.verdict.refusals[0].message
    # The member that is down already does not count: its host may be rebooted, which may repair it.
    assert look(victim).verdict.refusals == ()


def test_a_hung_member_counts_as_lost(etcd: EtcdCluster) -> None:
    victim = etcd.follower()
    other = next(member for member in etcd.members if member not in (victim, etcd.leader()))
    victim.server.pause()
    try:
        report = look(other)
    finally:
        victim.server.resume()
    assert reasons(report) == ["EtcdQuorumAtRisk"]
    assert "no answer in 2 s" in report.verdict.refusals[0].message


@pytest.mark.cluster_failure("etcd needs this member")
def test_without_a_quorum_nothing_is_allowed(etcd: EtcdCluster) -> None:
    left = etcd.members[2]
    for member in etcd.members[:2]:
        member.server.kill()
    assert "EtcdQuorumAtRisk" in reasons(look(left))
    assert "EtcdUnreachable" in reasons(look(left)), "the alarms are unknown"
    left.server.kill()
    assert reasons(look(left)) == ["EtcdUnreachable"]


async def test_the_leader_hands_on_before_it_goes(etcd: EtcdCluster) -> None:
    leader = await asyncio.to_thread(etcd.leader)
    report = await guard_of(leader).move_leader()
    assert report.verdict.leader_to == ""
    assert await asyncio.to_thread(etcd.leader) is not leader


async def test_a_follower_moves_no_leader(etcd: EtcdCluster) -> None:
    leader = await asyncio.to_thread(etcd.leader)
    await guard_of(await asyncio.to_thread(etcd.follower)).move_leader()
    assert await asyncio.to_thread(etcd.leader) is leader


async def test_the_leader_stays_where_a_quorum_would_be_lost(etcd: EtcdCluster) -> None:
    leader = await asyncio.to_thread(etcd.leader)
    (await asyncio.to_thread(etcd.follower)).server.kill()
    with pytest.raises(Refused) as caught:
        await guard_of(leader).move_leader()
    assert caught.value.reason == "EtcdQuorumAtRisk"
    assert await asyncio.to_thread(etcd.leader) is leader


def test_the_membership_changes_in_between(make_etcd: MakeEtcd) -> None:
    etcd = make_etcd()
    member = etcd.follower()
    learner = etcd.add("d", learner=True)
    assert reasons(look(member)) == ["EtcdLearner"]
    learner.server.start()
    learner.server.wait_ready(30)
    report = look(member)
    assert reasons(report) == ["EtcdLearner"]
    assert report.verdict.refusals[0].message.startswith("d is a learner")
    etcd.members[0].ask("/v3/cluster/member/promote", {"ID": learner.id})
    assert look(member).verdict.refusals == ()
    etcd.add("e", learner=False)
    assert "EtcdUnstarted" in reasons(look(member))


def test_an_alarm(make_etcd: MakeEtcd) -> None:
    etcd = make_etcd(f"--quota-backend-bytes={4 << 20}")
    value = base64.b64encode(b"x" * (1 << 20)).decode()
    for number in range(8):
        key = base64.b64encode(b"%d" % number).decode()
        etcd.leader().ask("/v3/kv/put", {"key": key, "value": value})
    report = look(etcd.follower())
    assert set(reasons(report)) == {"EtcdAlarm"}
    assert "alarm NOSPACE of " in report.verdict.refusals[0].message


def test_a_single_member_by_permission_only(make_etcd: MakeEtcd) -> None:
    (only,) = make_etcd(names=("a",)).members
    assert reasons(look(only)) == ["EtcdNotRedundant"]
    report = look(only, single=True)
    assert report.verdict.allowed
    assert report.verdict.leader_to == ""


def test_two_members_are_never_enough(make_etcd: MakeEtcd) -> None:
    etcd = make_etcd(names=("a", "b"))
    assert reasons(look(etcd.members[0], single=True)) == ["EtcdNotRedundant"]


def test_certificates_that_etcd_does_not_know(etcd: EtcdCluster, tmp_path: Path) -> None:
    from integration.cluster.pki import Authority

    certificate, key = Authority(tmp_path).client("mallory", "mallory")
    access = EtcdAccess((etcd.members[0].client,), str(etcd.authority.certificate), str(certificate), str(key))
    report = asyncio.run(QuorumCheck(SystemClock(), access=access, root=tmp_path, timeout=2.0).survey())
    assert reasons(report) == ["EtcdCredentials"]
    missing = EtcdAccess(access.endpoints, str(tmp_path / "none.crt"))
    report = asyncio.run(QuorumCheck(SystemClock(), access=missing, root=tmp_path).survey())
    assert reasons(report) == ["EtcdCredentials"]


def test_the_command(etcd: EtcdCluster, capsys: pytest.CaptureFixture[str]) -> None:
    member = etcd.follower()
    # fmt: off
    words = ["etcd", "status", "--endpoint", member.client, "--ca", str(etcd.authority.certificate),
             "--cert", str(member.certificate), "--key", str(member.key)]
    # fmt: on
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["allowed"], answer["member"]) == ("nodeagent/etcd/v1", True, True)
    assert {each["name"] for each in answer["members"] if each["healthy"]} == {"a", "b", "c"}
    assert [each["name"] for each in answer["members"] if each["this"]] == [member.name]
    etcd.leader().server.kill()
    assert main(words) == 4
    assert "EtcdQuorumAtRisk" in capsys.readouterr().out


def put(member: EtcdMember, key: str, value: bytes) -> None:
    encoded = [base64.b64encode(part).decode() for part in (key.encode(), value)]
    member.ask("/v3/kv/put", {"key": encoded[0], "value": encoded[1]})


def save_snapshot(etcd: EtcdCluster, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    member = etcd.members[0]
    for number in range(10):
        put(member, f"key-{number}", b"x" * 50_000)
    # fmt: off
    words = ["etcd", "snapshot", str(path), "--json", "--endpoint", member.client, "--cert", str(member.certificate),
             "--ca", str(etcd.authority.certificate), "--key", str(member.key)]
    # fmt: on
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    data = path.read_bytes()
    assert (answer["schema"], answer["path"], answer["size"]) == ("nodeagent/etcd-snapshot/v1", str(path), len(data))
    assert answer["sha256"] == hashlib.sha256(data[:-32]).hexdigest() == data[-32:].hex()
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"key-9" in data
    running = member.status()["version"]
    assert answer["storage_version"] == ("" if running.startswith("3.5.") else running.rpartition(".")[0] + ".0")


def test_a_snapshot(etcd: EtcdCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_snapshot(etcd, tmp_path / "etcd.snapshot", capsys)


def test_a_snapshot_of_an_older_etcd(older_etcd: Binaries, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = EtcdCluster(older_etcd, tmp_path / "etcd", names=("a",))
    try:
        cluster.start()
        save_snapshot(cluster, tmp_path / "etcd.snapshot", capsys)
    finally:
        cluster.close()
