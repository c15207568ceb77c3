# SPDX-License-Identifier: Apache-2.0
"""`nodeagent etcd status`: the answer of the daemon, or of the command without a daemon."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodeagent.errors import Terminal
from nodeagent.features.etcd_guard.quorum import QuorumCheck, QuorumReport
from nodeagent.reasons import Reason
from tests.cli.daemon.conftest import Cli
from tests.cli.daemon.fake_daemon import FakeDaemon

FOUND: dict[str, Any] = {
    "schema": "nodeagent/etcd/v1",
    "source": "daemon",
    "member": True,
    "signs": ["process 61"],
    "allowed": False,
    "refusals": [{"reason": "EtcdUnreachable", "message": "no member answers", "hint": "is it up?"}],
    "leader_to": None,
    "members": [],
    "alarms": [],
}


@pytest.fixture
def none_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    async def survey(_guard: QuorumCheck) -> QuorumReport:
        return QuorumReport()

    monkeypatch.setattr(QuorumCheck, "survey", survey)


@pytest.mark.finding("etcd: processes that look like a member", "`nodeagent etcd status` shows what the daemon sees.")
@pytest.mark.usefixtures("none_is_here")
def test_the_answer_of_the_daemon(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["EtcdStatus"] = json.dumps(FOUND)
    answer = cli("etcd", "status", "--json")
    assert (answer.code, answer.json, answer.err) == (4, FOUND, "")
    shown = cli("etcd", "status")
    assert "process 61" in shown.out
    assert "EtcdUnreachable: no member answers" in shown.out
    assert "hint: is it up?" in shown.out


@pytest.mark.usefixtures("none_is_here", "bus_address")
def test_without_a_daemon_the_command_surveys_etcd(cli: Cli) -> None:
    answer = cli("etcd", "status", "--json")
    assert (answer.code, answer.json["source"], answer.json["allowed"]) == (0, "command", True)
    assert "no answer from the daemon (ServiceUnknown" in answer.err


@pytest.mark.usefixtures("none_is_here")
def test_a_daemon_that_does_not_know_the_method(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["EtcdStatus"] = Terminal("no method EtcdStatus", reason=Reason.UNKNOWN_METHOD)
    answer = cli("etcd", "status", "--json")
    assert (answer.code, answer.json["source"]) == (0, "command")


@pytest.mark.usefixtures("none_is_here")
def test_addresses_of_the_caller_are_not_the_daemons(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("etcd", "status", "--endpoint", "http://127.0.0.1:1", "--json").json["source"] == "command"
    assert not daemon.calls
