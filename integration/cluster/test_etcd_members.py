# SPDX-License-Identifier: Apache-2.0
"""Members join, leave and are replaced in real clusters of etcd 3.5 and 3.6, with the agent killed at each step.

The rows of the tables of docs/explanation/etcd-members.md, and the tests that have them:

| the start of etcd | test |
|---|---|
| listed, never started, empty | `..._joins_loses_its_disk_is_replaced_and_leaves` |
| listed, never started, data of another member | `test_the_start_with_data_of_another_member` |
| listed, started, own data | `test_the_start_of_a_member_and_a_host_without_an_operator` |
| listed, started, empty | the same, and the first |
| listed with another address | `test_a_host_that_is_gone_is_replaced_by_another` |
| not listed, data of a removed member | `test_the_start_of_a_member_and_a_host_without_an_operator` |
| not listed, data of another cluster | `test_versions_and_data_of_another_cluster` |
| not listed, empty | `test_the_start_of_a_member_and_a_host_without_an_operator` |
| no answer, data as in the note; empty | the same |
| no answer, other data | `test_the_start_with_data_of_another_member` |

| case | test |
|---|---|
| process gone; data gone | `test_the_start_of_a_member_and_a_host_without_an_operator` |
| the member that leaves leads | `test_a_member_that_leads_hands_on_before_it_leaves` |
| host gone; quorum lost; address changed | `test_a_host_that_is_gone_is_replaced_by_another` |
| named member healthy, on another host | the same |
| one of three dead, another one unhealthy | `test_one_is_dead_and_another_one_is_sick` |
| one voter | `test_what_is_checked_before_a_member_is_added` |
| disk exchanged as planned | the first: left, and joined again |
| version too old; one minor release ahead | `test_versions_and_data_of_another_cluster` |
| two minor releases ahead; 3.6 beside 3.5 before 3.5.26 | `test_versions_that_must_not_join` |
| the name of another member; another one that never started, or is a learner | `test_one_member_is_added_at_a_time` |
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.cluster.etcd import EtcdCluster, EtcdMember
from integration.cluster.member_node import MemberNode
from integration.cluster.pki import Authority
from integration.cluster.programs import Binaries
from integration.cluster.server import free_port
from nodeagent.errors import AgentError
from nodeagent.features.etcd_members.decide.membership import OperationKind

MakeCluster = Callable[..., EtcdCluster]
MakeNode = Callable[..., MemberNode]
PEER_URLS = ("listen-peer-urls", "initial-advertise-peer-urls")


@pytest.fixture(params=["3.6", "3.5"])
def programs(request: pytest.FixtureRequest) -> Binaries:
    found: Binaries = request.getfixturevalue("binaries" if request.param == "3.6" else "older_etcd")
    return found


@pytest.fixture
def make_cluster(programs: Binaries, tmp_path: Path) -> Iterator[MakeCluster]:
    made: list[EtcdCluster] = []

    def make(*names: str) -> EtcdCluster:
        made.append(EtcdCluster(programs, tmp_path / f"etcd{len(made)}", names=names))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.close()


def members(cluster: EtcdCluster) -> dict[str, bool]:
    """Names of the members, and whether each is a learner."""
    return {each.get("name", ""): each.get("isLearner", False) for each in listed(cluster)}


@pytest.mark.parametrize("static_pod", [False, True], ids=["unit", "static-pod"])
def test_a_member_joins_loses_its_disk_is_replaced_and_leaves(make_cluster: MakeCluster, static_pod: bool) -> None:
    cluster = make_cluster("a", "b")
    node = MemberNode(cluster, "n", 5, static_pod=static_pod)
    steps = ("AddLearner", "StartMember", "Promote")
    try:
        assert node.change(OperationKind.JOIN, kills=True).ended == "done"
        assert members(cluster) == {"a": False, "b": False, "n": False}
        assert killed_around(node) >= {*steps, "store etcd-operation set", "store etcd-member set"}
        old = node.member.id

        node.lose_disk()
        if static_pod:
            # The kubelet restarts it without a check, and it does not become the member that it was.
            time.sleep(2)
            assert not node.member.status()
        assert node.change(OperationKind.REPLACE, kills=True).ended == "done"
        assert members(cluster) == {"a": False, "b": False, "n": False}
        assert killed_around(node) >= {*steps, "RemoveMember"}
        assert node.member.id != old

        assert node.change(OperationKind.LEAVE, kills=True).ended == "done"
        assert members(cluster) == {"a": False, "b": False}
        assert killed_around(node) >= {"RemoveMember", "ArchiveData"}
        assert not node.runs
        assert not (node.data / "member").exists()
        # An etcd that the kubelet started on the empty disk has left something as well.
        assert len(list(node.data.glob("member-archive-*"))) == 1 + static_pod
        if static_pod:
            assert not list((node.directory / "etc/kubernetes/manifests").iterdir())

        shutil.rmtree(node.data)
        assert node.change(OperationKind.JOIN).ended == "done"
        assert members(cluster) == {"a": False, "b": False, "n": False}
    finally:
        print("\n".join(node.journal[-60:]))
        print(node.kills.seen)
        node.close()


@pytest.fixture
def make_node() -> Iterator[MakeNode]:
    made: list[MemberNode] = []

    def make(cluster: EtcdCluster, **options: Any) -> MemberNode:
        made.append(MemberNode(cluster, f"n{len(made)}", 5 + len(made), **options))
        return made[-1]

    yield make
    for node in made:
        print("\n".join(node.journal[-60:]))
        print(node.kills.seen)
        node.close()


def refusal(node: MemberNode, kind: OperationKind, member: str = "") -> str:
    with pytest.raises(AgentError) as raised:
        node.change(kind, member)
    return str(raised.value.reason)


@pytest.mark.slow
def test_a_member_that_leads_hands_on_before_it_leaves(make_cluster: MakeCluster, make_node: MakeNode) -> None:
    cluster = make_cluster("a", "b")
    node = make_node(cluster)
    points: set[str] = set()
    # On a busy machine another member may be elected before the step.
    for _attempt in range(5):
        assert node.change(OperationKind.JOIN).ended == "done"
        let_lead(cluster, node)
        assert node.change(OperationKind.LEAVE, kills=True).ended == "done"
        assert members(cluster) == {"a": False, "b": False}
        points = set(node.kills.seen)
        assert killed_around(node) >= {"RemoveMember", "ArchiveData"}
        if "after MoveLeader" in points:
            break
    assert points >= {"before MoveLeader", "after MoveLeader"}


@pytest.mark.slow
def test_the_start_of_a_member_and_a_host_without_an_operator(make_cluster: MakeCluster, make_node: MakeNode) -> None:
    cluster = make_cluster("a", "b")
    node = make_node(cluster)
    assert node.may_start() == "EtcdNotMember"
    assert node.unattended(2) is None
    node.configure(unattended=True)
    joined = node.unattended(60, kills=True)
    assert joined is not None
    assert (joined.operation, joined.ended) == ("join", "done")
    assert killed_around(node) >= {"AddLearner", "StartMember", "Promote"}
    first = node.member.id

    # The process is gone, and its data are there.
    node.server.kill()
    assert node.may_start() == "yes"
    started = node.unattended(30, kills=True)
    assert started is not None
    assert (started.ended, node.member.id) == ("done", first)
    assert killed_around(node) >= {"StartMember"}

    # The disk is lost: etcd must not start with the old id.
    node.lose_disk()
    assert node.may_start() == "EtcdDataLost"
    replaced = node.unattended(60, kills=True)
    assert replaced is not None
    assert (replaced.operation, replaced.ended) == ("replace", "done")
    assert killed_around(node) >= {"RemoveMember", "AddLearner", "StartMember", "Promote"}
    assert members(cluster) == {"a": False, "b": False, "n0": False}
    second = node.member.id
    assert second != first

    # Another actor removes the member.
    wait_until_accepted(cluster, "remove", {"ID": second})
    assert node.may_start() == "EtcdRemoved"
    assert node.unattended(3) is None
    assert members(cluster) == {"a": False, "b": False}
    node.kills.seen.clear()
    assert node.change(OperationKind.JOIN, kills=True).ended == "done"
    assert killed_around(node) >= {"ArchiveData", "AddLearner", "StartMember", "Promote"}
    assert node.member.id not in (first, second)

    # No member answers.
    node.server.kill()
    for member in cluster.members:
        member.server.kill()
    assert node.may_start() == "yes"
    shutil.rmtree(node.data)
    assert node.may_start() == "EtcdUnreachable"
    assert refusal(node, OperationKind.REPLACE) == "EtcdUnreachable"


@pytest.mark.slow
def test_a_host_that_is_gone_is_replaced_by_another(make_cluster: MakeCluster, make_node: MakeNode) -> None:
    cluster = make_cluster("a", "b", "c")
    node = make_node(cluster)
    assert refusal(node, OperationKind.REPLACE, "c") == "EtcdMemberAlive"
    assert refusal(node, OperationKind.REPLACE, "d") == "EtcdNotMember"
    assert refusal(node, OperationKind.LEAVE) == "EtcdNotMember"
    _, b, c = cluster.members
    for dead in (b, c):
        dead.server.kill()
    # The quorum is lost: nothing is possible, and nothing is tried.
    assert refusal(node, OperationKind.REPLACE, "c") == "EtcdQuorumAtRisk"
    b.server.start()
    b.server.wait_ready(30)
    assert refusal(node, OperationKind.JOIN) == "EtcdQuorumAtRisk"
    assert node.change(OperationKind.REPLACE, "c", kills=True).ended == "done"
    assert members(cluster) == {"a": False, "b": False, "n0": False}
    assert killed_around(node) >= {"RemoveMember", "AddLearner", "StartMember", "Promote"}

    # Another address: the cluster has to know it before the start.
    same = node.member.id
    node.server.kill()
    peer = f"https://{node.member.address}:{free_port()}"
    node.configure(**dict.fromkeys(PEER_URLS, peer))
    assert node.may_start() == "EtcdAddressDiffers"
    assert node.change(OperationKind.JOIN, kills=True).ended == "done"
    assert killed_around(node) >= {"UpdateAddress", "StartMember"}
    assert [each["peerURLs"] for each in listed(cluster) if each["ID"] == same] == [[peer]]


@pytest.mark.slow
def test_the_start_with_data_of_another_member(make_cluster: MakeCluster, make_node: MakeNode) -> None:
    cluster, other = make_cluster("a", "b"), make_cluster("x")
    foreign = make_node(other)
    assert foreign.change(OperationKind.JOIN).ended == "done"
    foreign.server.kill()

    # An operator has added the host, whose disk is that of another one.
    node = make_node(cluster)
    wait_until_accepted(cluster, "add", {"peerURLs": [node.member.peer], "isLearner": True})
    shutil.copytree(foreign.data, node.data)
    assert node.may_start() == "EtcdDataForeign"
    assert node.change(OperationKind.JOIN, kills=True).ended == "done"
    assert members(cluster) == {"a": False, "b": False, node.name: False}
    assert killed_around(node) >= {"ArchiveData", "StartMember", "Promote"}
    assert len(list(node.data.glob("member-archive-*"))) == 1

    # No member answers, and the disk is that of another host.
    node.server.kill()
    for member in cluster.members:
        member.server.kill()
    shutil.rmtree(node.data)
    shutil.copytree(foreign.data, node.data)
    assert node.may_start() == "EtcdDataForeign"


@pytest.mark.slow
def test_one_is_dead_and_another_one_is_sick(make_cluster: MakeCluster, make_node: MakeNode) -> None:
    cluster = make_cluster("a", "b", "c")
    node = make_node(cluster)
    _, b, c = cluster.members
    c.server.kill()
    sick = {"memberID": b.id, "alarm": "NOSPACE"}
    set_alarm(cluster.members[:2], "ACTIVATE", sick)
    assert refusal(node, OperationKind.REPLACE, "c") == "EtcdAlarm"
    assert refusal(node, OperationKind.JOIN) in ("EtcdAlarm", "EtcdQuorumAtRisk")
    assert set(members(cluster)) == {"a", "b", "c"}
    set_alarm(cluster.members[:2], "DEACTIVATE", sick)
    assert node.change(OperationKind.REPLACE, "c", kills=True).ended == "done"
    assert members(cluster) == {"a": False, "b": False, node.name: False}
    assert killed_around(node) >= {"RemoveMember", "AddLearner", "StartMember", "Promote"}


@pytest.mark.slow
def test_the_access_to_the_members(make_cluster: MakeCluster, make_node: MakeNode, tmp_path: Path) -> None:
    """All members require a certificate of clients, and TLS."""
    cluster = make_cluster("a", "b")
    node = make_node(cluster)
    own = yaml.safe_load((node.directory / "etcd.yaml").read_text())["client-transport-security"]
    other = Authority(tmp_path / "other", "other")
    certificate, key = other.member("n0", f"IP:{node.member.address}", "IP:127.0.0.1")
    for tls in (
        {"trusted-ca-file": own["trusted-ca-file"]},
        {**own, "cert-file": str(certificate), "key-file": str(key)},
        {**own, "trusted-ca-file": str(other.certificate)},
        {**own, "key-file": str(key)},
    ):
        node.configure(**{"client-transport-security": tls})
        with pytest.raises(AgentError) as raised:
            node.change(OperationKind.JOIN)
        assert raised.value.reason == "EtcdCredentials", raised.value.message
        assert node.may_start() == "EtcdCredentials"
    node.configure(**{"client-transport-security": own})
    node.configure(endpoints=[member.client.replace("https", "http") for member in cluster.members])
    assert refusal(node, OperationKind.JOIN) == "EtcdUnreachable"
    node.configure(endpoints=[member.client for member in cluster.members])
    assert members(cluster) == {"a": False, "b": False}

    # Users of etcd: a certificate is not enough any more.
    a = cluster.members[0]
    requests: dict[str, dict[str, Any]] = {
        "user/add": {"name": "root", "password": "secret-word"},
        "role/add": {"name": "root"},
        "user/grant": {"user": "root", "role": "root"},
        "enable": {},
    }
    for path, body in requests.items():
        a.ask(f"/v3/auth/{path}", body)
    with pytest.raises(AgentError) as raised:
        node.change(OperationKind.JOIN)
    assert raised.value.reason == "EtcdCredentials", raised.value.message


@pytest.mark.slow
def test_what_is_checked_before_a_member_is_added(
    make_cluster: MakeCluster, make_node: MakeNode, tmp_path: Path
) -> None:
    cluster = make_cluster("a")
    node = make_node(cluster)
    own = yaml.safe_load((node.directory / "etcd.yaml").read_text())

    # Another authority; a certificate without the address; a key of another certificate.
    other = Authority(tmp_path / "other", "other")
    for certificate, key in (
        other.member("n0", f"IP:{node.member.address}", "IP:127.0.0.1"),
        cluster.authority.member("elsewhere", "IP:127.0.0.99"),
        (node.member.certificate, cluster.members[0].key),
        cluster.authority.server("no-client", f"IP:{node.member.address}"),
    ):
        tls = {**own["peer-transport-security"], "cert-file": str(certificate), "key-file": str(key)}
        node.configure(**{"peer-transport-security": tls})
        assert refusal(node, OperationKind.JOIN) == "EtcdCertificates"
    # Valid, and of an authority that the members do not trust.
    files = {"cert-file": "n0.crt", "key-file": "n0.key", "trusted-ca-file": "other.crt"}
    tls = {name: str(tmp_path / "other" / file) for name, file in files.items()}
    node.configure(**{"peer-transport-security": tls})
    assert refusal(node, OperationKind.JOIN) == "EtcdCertificates"
    assert members(cluster) == {"a": False}

    # Its etcd ends at once: the learner is removed again.
    node.configure(**{"peer-transport-security": own["peer-transport-security"]})
    node.configure(**{"quota-backend-bytes": "no number"})
    assert node.change(OperationKind.JOIN, give_up=4).ended.startswith("JobFailed: ")
    assert members(cluster) == {"a": False}
    # The same with kills, of which the last one may take the answer along.
    node.change(OperationKind.JOIN, give_up=4, kills=True)
    assert members(cluster) == {"a": False}
    # A start that fails has no end.
    assert set(node.kills.seen) >= {"after AddLearner", "before StartMember", "after RemoveMember"}
    node.kills.seen.clear()

    node.configure(**{"quota-backend-bytes": 0})
    assert node.change(OperationKind.JOIN, kills=True).ended == "done"
    assert members(cluster) == {"a": False, "n0": False}
    assert killed_around(node) >= {"AddLearner", "StartMember", "Promote"}
    assert refusal(node, OperationKind.LEAVE) == "EtcdNotRedundant"


@pytest.mark.slow
def test_versions_and_data_of_another_cluster(
    binaries: Binaries, older_etcd: Binaries, tmp_path: Path, make_node: MakeNode
) -> None:
    old, new = (EtcdCluster(each, tmp_path / each.etcd.parent.name, names=("a",)) for each in (older_etcd, binaries))
    try:
        old.start()
        new.start()
        assert refusal(make_node(new, etcd=older_etcd.etcd), OperationKind.JOIN) == "EtcdVersion"
        joiner = make_node(old, etcd=binaries.etcd)
        assert joiner.change(OperationKind.JOIN, kills=True).ended == "done"
        assert members(old) == {"a": False, joiner.name: False}

        # The disk of a member of another cluster.
        node = make_node(new)
        shutil.copytree(joiner.data, node.data)
        assert node.may_start() == "EtcdDataForeign"
        assert node.change(OperationKind.JOIN, kills=True).ended == "done"
        assert members(new) == {"a": False, node.name: False}
        assert killed_around(node) >= {"ArchiveData", "AddLearner", "StartMember", "Promote"}
        assert len(list(node.data.glob("member-archive-*"))) == 1
    finally:
        old.close()
        new.close()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.4.35", "3.5.25"])
def test_versions_that_must_not_join(
    binaries: Binaries, older_etcd: Binaries, make_node: MakeNode, tmp_path: Path, version: str
) -> None:
    """Two minor releases ahead, and 3.6 beside a 3.5 that forgets promotions."""
    older = replace(older_etcd, etcd=reporting(older_etcd.etcd, version, tmp_path / "etcd"))
    cluster = EtcdCluster(older, tmp_path / "cluster", names=("a",))
    try:
        cluster.start()
        node = make_node(cluster, etcd=binaries.etcd)
        assert refusal(node, OperationKind.JOIN) == "EtcdVersion"
        assert members(cluster) == {"a": False}
    finally:
        cluster.close()


@pytest.mark.slow
def test_one_member_is_added_at_a_time(make_cluster: MakeCluster, make_node: MakeNode) -> None:
    cluster = make_cluster("a", "b")
    node = make_node(cluster)
    for learner, reason in ((True, "EtcdLearner"), (False, "EtcdUnstarted")):
        # Another host was added, and did not start.
        elsewhere = f"https://127.0.0.99:{cluster.peer_port}"
        wait_until_accepted(cluster, "add", {"peerURLs": [elsewhere], "isLearner": learner})
        assert refusal(node, OperationKind.JOIN) == reason
        (added,) = [each["ID"] for each in listed(cluster) if each["peerURLs"] == [elsewhere]]
        wait_until_accepted(cluster, "remove", {"ID": added})

    node.configure(name="b")
    assert refusal(node, OperationKind.JOIN) == "EtcdConfigInvalid"
    # An operator has added it all the same: etcd would not start with this list.
    wait_until_accepted(cluster, "add", {"peerURLs": [node.member.peer], "isLearner": True})
    assert node.may_start() == "EtcdConfigInvalid"
    node.configure(name=node.name)
    assert node.change(OperationKind.JOIN, kills=True).ended == "done"
    assert members(cluster) == {"a": False, "b": False, node.name: False}


def reporting(program: Path, version: str, directory: Path) -> Path:
    """The same etcd, with another version of the same length in its text: it says so to members and clients."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    own = said.splitlines()[0].removeprefix("etcd Version: ")
    assert len(own) == len(version)
    directory.mkdir()
    made = directory / "etcd"
    made.write_bytes(program.read_bytes().replace(own.encode(), version.encode()))
    made.chmod(0o755)
    return made


def listed(cluster: EtcdCluster) -> list[dict[str, Any]]:
    answer = cluster.members[0].ask("/v3/cluster/member/list", {"linearizable": True})
    found: list[dict[str, Any]] = answer["members"]
    return found


def wait_until_accepted(cluster: EtcdCluster, what: str, body: dict[str, Any]) -> None:
    """etcd refuses changes for five seconds after each change."""
    deadline = time.monotonic() + 90
    while "members" not in cluster.members[0].ask(f"/v3/cluster/member/{what}", body):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def set_alarm(members: list[EtcdMember], action: str, alarm: dict[str, Any]) -> None:
    """Until each of these members knows it: they may have to elect a leader first, and a follower learns it later."""
    deadline = time.monotonic() + 90
    for member in members:
        while bool(member.ask("/v3/maintenance/alarm", {"action": "GET"}).get("alarms")) != (action == "ACTIVATE"):
            assert time.monotonic() < deadline
            members[0].ask("/v3/maintenance/alarm", {"action": action, **alarm})
            time.sleep(0.2)


def let_lead(cluster: EtcdCluster, node: MemberNode) -> None:
    """Move the leadership to the member of this host. Only the leader takes the request."""
    deadline = time.monotonic() + 90
    while node.member.status().get("leader") != node.member.id:
        assert time.monotonic() < deadline
        for member in cluster.members:
            member.ask("/v3/maintenance/transfer-leadership", {"targetID": node.member.id})
        time.sleep(0.2)


def killed_around(node: MemberNode) -> set[str]:
    """The effects before and after which the agent was killed, since the last call."""
    seen, node.kills.seen = node.kills.seen, []
    points = [point.partition(" ")[::2] for point in seen]
    before, after = ({what for when, what in points if when == side} for side in ("before", "after"))
    # A removed etcd ends without help, sometimes before it is stopped; another leader may be elected in the meantime.
    needless = {"StopMember", "MoveLeader"}
    assert before - needless == after - needless
    return before
