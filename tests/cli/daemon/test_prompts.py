# SPDX-License-Identifier: Apache-2.0
"""`apply`, `rollback` and `reboot` on a terminal: the plan, the question, and its answers."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from nodeagent.errors import Refused
from nodeagent.reasons import Reason
from tests.cli.daemon.conftest import Cli
from tests.cli.daemon.fake_daemon import FakeDaemon
from tests.cli.daemon.test_apply import CONFIG, config
from tests.support.golden import Golden

__all__ = ["config"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Interrupted(Terminal):
    def readline(self, *_: object) -> str:
        raise KeyboardInterrupt


def plan(*actions: str) -> str:
    listed = [{"type": action} | ({} if action == "Reboot" else {"unit": "app.service"}) for action in actions]
    change = {"domain": "file", "key": "/etc/app", "change": "modified", "policy": "user", "actions": listed}
    named = [{**each, "because": ["file:/etc/app"]} for each in listed]
    answer: dict[str, Any] = {"schema": "nodeagent/plan/v1", "from": "worker-1", "to": "worker-2", "drain": False}
    answer |= {"removal": {"removed": 0, "total": 3}, "counts": {"added": 0, "changed": 1, "removed": 0, "total": 3}}
    return json.dumps({**answer, "changes": [change], "actions": named, "disruption": "restart", "notes": []})


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    def typed(text: str | Terminal) -> None:
        monkeypatch.setattr(sys, "stdin", text if isinstance(text, Terminal) else Terminal(text))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("NO_COLOR", "1")

    return typed


def applied(daemon: FakeDaemon) -> list[Any]:
    return [call[1][1] for call in daemon.calls if call[0] == "Apply"]


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_yes_applies_what_was_shown_and_no_more(
    cli: Cli, daemon: FakeDaemon, config: str, terminal: Any, answer: str
) -> None:
    daemon.answers["Plan"] = plan("Restart")
    terminal(answer)
    given = cli("apply", config)
    assert given.code == 0
    assert "Restart app.service" in given.out
    assert "Apply worker-2? Services restart. [y/N] " in given.out
    assert applied(daemon)[0]["planned_disruption"].value == "restart"


@pytest.mark.parametrize(
    "answer", ["\n", "n\n", "yess\n", "", Interrupted()], ids=["enter", "n", "typo", "eof", "ctrl-c"]
)
def test_anything_else_is_no(cli: Cli, daemon: FakeDaemon, config: str, terminal: Any, answer: str | Terminal) -> None:
    daemon.answers["Plan"] = plan("Reboot")
    terminal(answer)
    given = cli("apply", config)
    assert (given.code, applied(daemon)) == (6, [])
    assert given.out.endswith("not applied: nothing was changed\n")


def test_what_does_not_disrupt_is_not_a_question(cli: Cli, daemon: FakeDaemon, config: str, terminal: Any) -> None:
    daemon.answers["Plan"] = plan("Reload")
    terminal("")
    assert cli("apply", config).code == 0
    assert applied(daemon)


@pytest.mark.parametrize("words", [("--yes",), ("--json",)])
def test_no_question_is_asked(cli: Cli, daemon: FakeDaemon, config: str, terminal: Any, words: tuple[str, ...]) -> None:
    terminal("")
    assert cli("apply", config, *words).code == 0
    assert [call[0] for call in daemon.calls if call[0] == "Plan"] == []


def test_during_an_update_the_plan_is_not_known(cli: Cli, daemon: FakeDaemon, config: str, terminal: Any) -> None:
    daemon.answers["Plan"] = Refused("an update is under way (Writing)", reason=Reason.UPDATE_UNDER_WAY)
    terminal("y\n")
    given = cli("apply", config)
    assert given.code == 0
    assert "an update is under way (Writing), so the plan is not known yet. Apply worker-2 after it?" in given.out


def test_more_than_allowed_is_refused_before_the_question(
    cli: Cli, daemon: FakeDaemon, config: str, terminal: Any
) -> None:
    daemon.answers["Plan"] = plan("Reboot")
    terminal("y\n")
    given = cli("apply", config, "--max-disruption", "restart")
    assert (given.code, applied(daemon)) == (4, [])
    assert "DisruptionExceeded" in given.err


@pytest.mark.finding("configs: refused before the question", "What apply refuses is refused before its question.")
@pytest.mark.parametrize(("removes", "code"), [("0", 4), ("10", 4), ("11", 0)])
def test_an_unconfirmed_removal_is_refused_before_the_question(
    cli: Cli, daemon: FakeDaemon, config: str, terminal: Any, removes: str, code: int
) -> None:
    answer = json.loads(plan("Reboot")) | {"removal": {"removed": 11, "total": 12}, "by_cluster": False}
    daemon.answers["Plan"] = json.dumps(answer)
    terminal("y\n")
    given = cli("apply", config, "--remove", removes)
    assert (given.code, len(applied(daemon))) == (code, code == 0)
    assert ("[y/N]" in given.out) == (code == 0)
    assert ("RemovesMost" in given.err and "--remove 11" in given.err) == (code != 0)


@pytest.mark.finding("configs: refused before the question", "What apply refuses is refused before its question.")
def test_a_host_of_a_cluster_is_refused_before_the_question(
    cli: Cli, daemon: FakeDaemon, config: str, terminal: Any
) -> None:
    daemon.answers["Plan"] = json.dumps(json.loads(plan("Reboot")) | {"by_cluster": True})
    terminal("y\n")
    given = cli("apply", config)
    assert (given.code, applied(daemon), "[y/N]" in given.out) == (4, [], False)
    assert "ClusterDecides" in given.err


def test_a_reboot_is_held_back(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    assert cli("apply", config, "--no-reboot", "--json").json["no_reboot"] is True
    assert applied(daemon)[0]["no_reboot"].value is True


ROLLBACK = pytest.mark.finding(
    "users: the plan of a rollback", "A rollback shows its plan and prompts, with the options of apply."
)


def rolled_back(daemon: FakeDaemon) -> list[Any]:
    return [call[1][0] for call in daemon.calls if call[0] == "Rollback"]


@ROLLBACK
def test_a_rollback_shows_its_plan_and_prompts(cli: Cli, daemon: FakeDaemon, terminal: Any, golden: Golden) -> None:
    daemon.answers |= {"Plan": plan("Reboot"), "Rollback": "worker-1"}
    terminal("y\n")
    given = cli("rollback")
    assert given.code == 0
    golden("commands", "rollback, confirmed", given.out)
    assert rolled_back(daemon)[0]["planned_disruption"].value == "reboot"
    assert [call[1][1]["rollback"].value for call in daemon.calls if call[0] == "Plan"] == [True]
    terminal("n\n")
    given = cli("rollback")
    assert (given.code, len(rolled_back(daemon))) == (6, 1)


@ROLLBACK
@pytest.mark.parametrize("words", [("--yes",), ("--json",)])
def test_a_rollback_without_a_question(cli: Cli, daemon: FakeDaemon, terminal: Any, words: tuple[str, ...]) -> None:
    daemon.answers["Rollback"] = "worker-1"
    terminal("")
    assert cli("rollback", *words).code == 0
    assert [call[0] for call in daemon.calls] == ["Rollback"]


@ROLLBACK
def test_a_rollback_has_the_options_of_apply(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers |= {"Plan": plan("Reboot"), "Rollback": "worker-1"}
    given = cli("rollback", "--no-reboot", "--boot-staged", "--allow-lockout", "--max-disruption", "drain")
    assert (given.code, given.out.splitlines()[-1]) == (
        0,
        "going back to worker-1; nodeagent status --watch follows the update; a reboot waits for nodeagent reboot",
    )
    sent = {name: value.value for name, value in rolled_back(daemon)[0].items()}
    assert sent == {"no_reboot": True, "boot_staged": True, "allow_lockout": True, "max_disruption": "drain"}
    given = cli("rollback", "--dry-run", "--max-disruption", "drain")
    assert (given.code, len(rolled_back(daemon))) == (4, 1)
    assert "DisruptionExceeded" in given.err
    assert cli("rollback", "--dry-run", "--json").json["schema"] == "nodeagent/plan/v1"


@pytest.mark.finding("users: plans of large configs", "Outside of a cluster, a plan names no drain and no workload.")
def test_a_host_without_a_cluster_drains_nothing(
    cli: Cli, daemon: FakeDaemon, config: str, terminal: Any, golden: Golden
) -> None:
    answer = json.loads(plan("Restart")) | {"in_cluster": False, "disruption": "drain"}
    for actions in (answer["actions"], answer["changes"][0]["actions"]):
        actions.insert(0, {"type": "Drain", "because": ["file:/etc/app"]})
    del answer["changes"][0]["actions"][0]["because"]
    daemon.answers["Plan"] = json.dumps(answer)
    terminal("y\n")
    given = cli("apply", config)
    assert given.code == 0
    golden("commands", "apply, in no cluster", given.out)
    # A limit counts the word of the plan.
    assert applied(daemon)[0]["planned_disruption"].value == "drain"


WAITING = {
    "phase": "Leasing",
    "reason": "RebootRequired",
    "message": "this host must be rebooted for worker-2; root holds the reboot back",
}


def reboots(config: str) -> str:
    return json.dumps({"schema": "nodeagent/reboot/v1", "config": config, "digest": "d" * 64, "update_id": "u2"})


def test_reboot(cli: Cli, daemon: FakeDaemon, terminal: Any, golden: Golden) -> None:
    daemon.answers["Reboot"] = reboots("worker-2")
    daemon.status |= WAITING
    terminal("y\n")
    given = cli("reboot")
    assert given.code == 0
    golden("commands", "reboot, confirmed", given.out)
    terminal("n\n")
    given = cli("reboot")
    assert (given.code, [call[0] for call in daemon.calls].count("Reboot")) == (6, 1)
    golden("commands", "reboot, not confirmed", given.out)


def test_nothing_waits_for_a_reboot(cli: Cli, daemon: FakeDaemon, terminal: Any) -> None:
    daemon.answers["Reboot"] = reboots("")
    terminal("")
    given = cli("reboot")
    assert (given.code, given.out) == (0, "no update waits for a reboot: nothing to do\n")


def test_the_text_is_sent_as_it_is(cli: Cli, daemon: FakeDaemon, config: str, terminal: Any) -> None:
    daemon.answers["Plan"] = plan("Restart")
    terminal("y\n")
    cli("apply", config)
    assert [call[1][0] for call in daemon.calls if call[0] == "Apply"] == [CONFIG]
