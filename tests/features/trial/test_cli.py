# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply --try` and `nodeagent keep`, and the trial in other answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import Refused
from nodeagent.features.trial.reasons import TrialReason
from tests.cli.daemon.conftest import Cli
from tests.cli.daemon.fake_daemon import FakeDaemon
from tests.cli.daemon.test_apply import config
from tests.cli.daemon.test_prompts import applied, plan, terminal
from tests.support.golden import Golden

__all__ = ["config", "terminal"]

ANSWER = (
    '{"schema": "nodeagent/keep/v1", "effect": "%s", "config": "worker-2", "digest": "d", "update_id": "u2", '
    '"back": "worker-1"}'
)
TRIAL = {
    "config": "worker-2",
    "back": "worker-1",
    "seconds": 600.0,
    "since": "2026-11-21T03:10:00.000Z",
    "until": "2026-11-21T03:20:00Z",
    "requester": "root",
    "kept_by": "",
}


def test_the_time_is_sent_in_seconds(cli: Cli, daemon: FakeDaemon, config: str, golden: Golden) -> None:
    given = cli("apply", config, "--try", "10m")
    assert (given.code, applied(daemon)[0]["trial"].value) == (0, "600")
    golden("commands", "apply --try", given.out)
    assert cli("apply", config, "--try", "2h", "--json").json["trial"] == "7200"
    assert cli("apply", config, "--json").json["trial"] == ""


@pytest.mark.parametrize("text", ["10", "59s", "25h", "soon", ""])
def test_a_bad_time_is_refused_before_anything_is_sent(cli: Cli, daemon: FakeDaemon, config: str, text: str) -> None:
    given = cli("apply", config, "--try", text)
    if text:
        assert (given.code, applied(daemon)) == (2, [])
        assert given.err.startswith("nodeagent: BadTrial: --try: ")


def test_the_plan_says_what_follows(cli: Cli, daemon: FakeDaemon, config: str, terminal: Any, golden: Golden) -> None:
    for action in ("Restart", "Reboot"):
        daemon.answers["Plan"] = plan(action)
        terminal("y\n")
        given = cli("apply", config, "--try", "10m")
        golden("commands", f"apply --try on a terminal, {action}", given.out)
    daemon.answers["Plan"] = plan("Reboot")
    given = cli("apply", config, "--try", "10m", "--dry-run")
    assert "goes back to worker-1, with a reboot, unless" in given.out
    assert cli("apply", config, "--try", "10m", "--dry-run", "--json").json["trial"] == {
        "seconds": 600.0,
        "back": "worker-1",
        "reboot": True,
    }
    daemon.answers["Plan"] = plan("Restart")
    assert cli("rollback", "--try", "1h", "--dry-run", "--json").json["trial"]["reboot"] is False
    assert "trial" not in cli("apply", config, "--dry-run", "--json").json
    assert len(applied(daemon)) == 2
    daemon.answers["Plan"] = plan("Reboot")
    terminal("n\n")
    assert "on trial for 1 h? This host reboots." in cli("rollback", "--try", "1h").out


def test_keep(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.answers["Keep"] = ANSWER % "kept"
    given = cli("keep")
    golden("commands", "keep", given.out)
    assert {name: flag.value for name, flag in daemon.calls[-1][1][0].items()} == {
        "revert": False,
        "without_login": False,
    }
    assert cli("keep", "--without-login", "--json").json["effect"] == "kept"
    assert daemon.calls[-1][1][0]["without_login"].value is True
    daemon.answers["Keep"] = ANSWER % "reverting"
    golden("commands", "keep --revert", cli("keep", "--revert").out)
    assert cli("keep", "--revert", "--without-login").code == 2


def test_an_old_session_is_refused_with_the_way_out(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["Keep"] = Refused("session 2 is older than the trial", reason=TrialReason.OLD_LOGIN)
    given = cli("keep")
    assert (given.code, given.out) == (4, "")
    assert given.err.startswith("nodeagent: OldLogin: session 2 is older than the trial\nhint: log in again")


def test_the_status_shows_how_much_time_is_left(
    cli: Cli, daemon: FakeDaemon, no_settings: Path, golden: Golden
) -> None:
    message = "worker-2 is on trial until 2026-11-21T03:20:00Z"
    daemon.change(phase="Verifying", reason="OnTrial", message=message, desired="worker-2", trial=TRIAL)
    golden("status", "a trial", cli("status").out)
    assert cli("status", "--json").json["trial"] == TRIAL
    daemon.change(trial={**TRIAL, "kept_by": "jane"})
    assert "kept by jane" in cli("status").out
