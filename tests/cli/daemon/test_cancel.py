# SPDX-License-Identifier: Apache-2.0
"""`nodeagent cancel`: what it prints, and its exit status."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from nodeagent.errors import Refused
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from tests.cli.daemon.conftest import Cli
from tests.cli.daemon.fake_daemon import FakeDaemon, entry
from tests.support.golden import Golden

pytestmark = pytest.mark.finding(
    "users: first trial of configs",
    "`cancel` ends an update: at once before the first write, and later without a reboot where what was "
    "done can be taken back.",
)

ANSWER = {
    "schema": "nodeagent/cancel/v1",
    "config": "worker-2",
    "digest": "d" * 64,
    "update_id": "u2",
    "effect": "end",
    "applied": 0,
    "current": "worker-1",
    "desired_by": "file",
}


def cancelled(cli: Cli, daemon: FakeDaemon, *words: str, outcome: str = "cancelled", **answer: str | int) -> Any:
    def method(*_: object) -> str:
        reason = "Cancelled" if outcome == "cancelled" else "Reverted"
        ended = entry(outcome=outcome, reason=reason, message="cancelled by root", to_digest="d" * 64)
        daemon.later((0.2, lambda: daemon.finish(4, **ended)))
        return json.dumps({**ANSWER, **answer})

    daemon.answers["Cancel"] = method
    return cli("cancel", *words)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"effect": "revert"},
        {"desired_by": "cluster"},
        {"current": ""},
        {"applied": 2},
        {"applied": 2, "desired_by": "cluster"},
    ],
    ids=["nothing written", "taken back", "in a cluster", "the first config", "safe parts", "safe parts in a cluster"],
)
def test_what_it_prints(
    cli: Cli, daemon: FakeDaemon, golden: Golden, answer: dict[str, str | int], request: pytest.FixtureRequest
) -> None:
    given = cancelled(cli, daemon, **answer)
    assert (given.code, given.err) == (0, "")
    golden("commands", f"cancel, {request.node.callspec.id}", given.out)


def test_json_has_the_answer_and_the_end(cli: Cli, daemon: FakeDaemon) -> None:
    given = cancelled(cli, daemon, "--json")
    assert given.json["schema"] == "nodeagent/cancel/v1"
    assert (given.json["outcome"], given.json["effect"], given.json["reboots"]) == ("cancelled", "end", 0)


def test_an_end_that_comes_before_the_answer(cli: Cli, daemon: FakeDaemon) -> None:
    """As that of a reboot that waited for its time."""

    async def method(*_: object) -> str:
        await daemon.finished(4, "d" * 64, entry(outcome="cancelled", update_id="u2"))
        await asyncio.sleep(0.2)
        return json.dumps({**ANSWER, "reboot": "reboot requested by root"})

    daemon.answers["Cancel"] = method
    given = cli("cancel")
    assert (given.code, given.out) == (0, "cancelled: the reboot requested by root; nothing was changed\n")


@pytest.mark.parametrize(("outcome", "code"), [("reverted", 0), ("superseded", 0), ("degraded", 1), ("done", 4)])
def test_exit_status(cli: Cli, daemon: FakeDaemon, outcome: str, code: int) -> None:
    def method(*_: object) -> str:
        ended = entry(outcome=outcome, to_digest="d" * 64)
        daemon.later((0.2, lambda: daemon.finish(1 if outcome == "degraded" else 0, **ended)))
        return json.dumps(ANSWER)

    daemon.answers["Cancel"] = method
    assert cli("cancel").code == code


@pytest.mark.parametrize("reason", [Reason.NO_UPDATE, Reason.CANCEL_TOO_LATE])
def test_what_cannot_be_cancelled(cli: Cli, daemon: FakeDaemon, reason: AnyReason) -> None:
    daemon.answers["Cancel"] = Refused("no", reason=reason)
    given = cli("cancel", "--json")
    assert (given.code, given.error["reason"], bool(given.error["hint"])) == (4, reason, True)


def test_the_staging_for_a_plan_has_no_end_to_wait_for(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.answers["Cancel"] = json.dumps({**ANSWER, "effect": "staging", "update_id": ""})
    given = cli("cancel")
    assert (given.code, given.err) == (0, "")
    golden("commands", "cancel, staging", given.out)
    given = cli("cancel", "--json")
    assert (given.code, given.json["effect"], given.json["outcome"]) == (0, "staging", "cancelled")


def test_a_requested_reboot_is_named(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    given = cancelled(cli, daemon, reboot="reboot requested by root: a new kernel")
    assert (given.code, given.err) == (0, "")
    golden("commands", "cancel, reboot", given.out)


def test_an_end_during_a_restart_of_the_daemon_is_read_from_the_history(cli: Cli, daemon: FakeDaemon) -> None:
    """Of the update that was under way when it was asked for."""
    last = entry("u2", outcome="cancelled", reason="Cancelled", to_digest="d" * 64)
    under_way = {"phase": "Waiting", "target": "worker-2", "update_id": "u2"}
    at_rest = {"phase": "Idle", "target": "", "update_id": ""}

    def restart() -> None:
        daemon.stop()
        daemon.history.insert(0, last)
        daemon.status |= at_rest
        daemon.start()

    def go(*_: object) -> str:
        daemon.later((0.2, restart))
        return json.dumps(ANSWER)

    daemon.status |= under_way
    daemon.answers["Cancel"] = go
    given = cli("cancel", "--json")
    assert (given.code, given.json["outcome"]) == (0, "cancelled")
