# SPDX-License-Identifier: Apache-2.0
"""`nodeagent etcd join`, `leave` and `replace`: what the daemon is asked, and how the command ends."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.errors import Refused
from nodeagent.reasons import Reason
from tests.cli.daemon.conftest import Cli, bus_address, cli, daemon, loop_of_the_test, no_settings, private_bus
from tests.cli.daemon.fake_daemon import FakeDaemon

__all__ = ["bus_address", "cli", "daemon", "loop_of_the_test", "no_settings", "private_bus"]

PROGRESS = {
    "id": "1f2e3d4c",
    "operation": "join",
    "requester": "root",
    "since": "2026-11-21T03:00:00.000Z",
    "message": "requested by root",
    "ended": "",
    "reason": "",
}


def progress(**changed: str) -> dict[str, str]:
    return {**PROGRESS, **changed}


def ends(daemon: FakeDaemon, **end: str) -> None:
    """The operation has a step, and then this end."""

    def begin(*_: Any) -> None:
        daemon.change(etcd_member=progress())
        daemon.later(
            (0.2, lambda: daemon.change(etcd_member=progress(message="starting member 5"))),
            (0.2, lambda: daemon.change(etcd_member=progress(**end))),
        )

    daemon.answers["ChangeEtcdMember"] = begin


def test_a_join_is_followed_to_its_end(cli: Cli, daemon: FakeDaemon) -> None:
    ends(daemon, message="done", ended="done")
    answer = cli("etcd", "join")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == ["requested by root", "starting member 5", "join: done"]
    assert [(name, body) for name, body in daemon.calls if name == "ChangeEtcdMember"] == [
        ("ChangeEtcdMember", ["join", {}])
    ]


def test_json(cli: Cli, daemon: FakeDaemon) -> None:
    ends(daemon, message="done", ended="done")
    answer = cli("etcd", "join", "--json")
    assert answer.json == {"schema": "nodeagent/etcd-member/v1", **progress(message="done", ended="done")}


def test_an_operation_that_fails(cli: Cli, daemon: FakeDaemon) -> None:
    ends(daemon, message="failed", ended="EtcdCertificates: no member accepts it", reason="EtcdCertificates")
    answer = cli("etcd", "join")
    assert answer.code == 4
    assert answer.err.startswith("nodeagent: EtcdCertificates: no member accepts it\nhint: ")


def test_a_refusal(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["ChangeEtcdMember"] = Refused("one of three", reason=Reason.ETCD_QUORUM_AT_RISK)
    answer = cli("etcd", "leave")
    assert answer.code == 4
    assert "EtcdQuorumAtRisk" in answer.err


def test_the_member_to_replace(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["ChangeEtcdMember"] = lambda *_: daemon.change(etcd_member=progress(operation="replace"))
    assert cli("etcd", "replace", "--member", "cp-2", "--no-wait").code == 0
    ((_, (operation, options)),) = [call for call in daemon.calls if call[0] == "ChangeEtcdMember"]
    assert (operation, options["member"].value) == ("replace", "cp-2")


def test_an_operation_that_ended_while_the_daemon_restarted(cli: Cli, daemon: FakeDaemon) -> None:
    def begin(*_: Any) -> None:
        daemon.change(etcd_member=progress())
        daemon.later((0.2, lambda: daemon.change(etcd_member=None)))

    daemon.answers["ChangeEtcdMember"] = begin
    answer = cli("etcd", "join")
    assert answer.code == 0
    assert "the operation has ended" in answer.out


@pytest.mark.usefixtures("bus_address")
def test_without_a_daemon(cli: Cli) -> None:
    assert cli("etcd", "join").code == 5
