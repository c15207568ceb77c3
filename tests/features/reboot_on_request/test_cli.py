# SPDX-License-Identifier: Apache-2.0
"""`nodeagent reboot --now`, `--request` and `--at`, and what the status has about requests."""

from __future__ import annotations

import json

import pytest

from nodeagent import installed
from nodeagent.commands import Option
from nodeagent.errors import InvalidInput, Refused
from nodeagent.features.reboot_on_request import cli as command
from nodeagent.features.reboot_on_request.door import start_of
from nodeagent.reasons import Reason
from tests.cli.daemon.conftest import (
    NOW,
    Cli,
    bus_address,
    cli,
    daemon,
    loop_of_the_test,
    no_settings,
    private_bus,
    three_in_the_morning,
)
from tests.cli.daemon.fake_daemon import FakeDaemon
from tests.support.golden import Golden

__all__ = ["bus_address", "cli", "daemon", "loop_of_the_test", "no_settings", "private_bus", "three_in_the_morning"]

ANSWER = json.dumps({"request": "r1", "source": "operator"})
REQUEST = {
    "id": "r1",
    "source": "operator",
    "requester": "root",
    "reason": "a new kernel",
    "since": "2026-11-21T03:00:00Z",
    "at_once": False,
    "boot_staged": False,
    "options": {},
    "message": "WindowClosed: no window is open; the next one opens 2026-11-22T02:00:00Z",
}


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "local_now", lambda: NOW)


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (["--now"], {"at_once": True}),
        (["--request", "--boot-staged"], {"boot_staged": True}),
        (["--at", "sat 02:00 60"], {"window": "sat 02:00 60"}),
    ],
)
def test_a_request(cli: Cli, daemon: FakeDaemon, options: list[str], sent: dict[str, object]) -> None:
    daemon.answers["RequestReboot"] = ANSWER
    answer = cli("reboot", *options, "--reason", "a new kernel", "--yes", "--json")
    ((method, (reason, given)),) = daemon.calls
    assert (method, reason) == ("RequestReboot", "a new kernel")
    assert {name: option.value for name, option in given.items()} == sent
    assert answer.code == 0
    assert answer.json == {
        "schema": "nodeagent/reboot-request/v1",
        "request": "r1",
        "source": "operator",
        "outcome": "accepted",
        "reason": "",
        "message": "",
    }


def test_its_words(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.answers["RequestReboot"] = ANSWER
    golden("commands", "reboot --now", cli("reboot", "--now", "--yes").out)
    golden("commands", "reboot --at", cli("reboot", "--at", "sat 02:00 60", "--yes").out)
    daemon.change(reboot_request=REQUEST, reboot_required={"packages": ["linux", "dbus", "libc6", "a", "b", "c"]})
    rows = [line for line in cli("status").out.splitlines() if line.startswith(("reboot ", "required "))]
    golden("commands", "status", "\n".join(rows) + "\n")


def test_without_a_time_the_command_of_the_base_runs(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["Reboot"] = json.dumps(
        {"schema": "nodeagent/reboot/v1", "config": "", "digest": "", "update_id": ""}
    )
    assert cli("reboot", "--yes").out == "no update waits for a reboot: nothing to do\n"
    assert [method for method, _ in daemon.calls] == ["Reboot"]


@pytest.mark.parametrize(
    "options", [["--reason", "x"], ["--boot-staged"], ["--now", "--request"], ["--now", "--at", "02:00"], ["--at", "x"]]
)
def test_wrong_options(cli: Cli, daemon: FakeDaemon, options: list[str]) -> None:
    answer = cli("reboot", *options, "--yes")
    assert (answer.code, answer.out) == (2, "")
    assert daemon.calls == []


def test_a_start_at_any_time_is_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no request of a file, which waits for a window, replaces it."""
    option = Option("--from", "TIME", "begin then", "none", (("then", "a time"), ("soon", "yes")), at_once="soon")
    monkeypatch.setattr(installed, "options", lambda: [option])
    assert start_of({"soon": "yes"}, at_once=False) == start_of({}, at_once=True) == (True, {})
    assert start_of({"then": "02:00"}, at_once=False) == (False, {"then": "02:00"})
    for options, at_once in (({"soon": "yes", "then": "02:00"}, False), ({"then": "02:00"}, True)):
        with pytest.raises(InvalidInput, match="no later start"):
            start_of(options, at_once=at_once)


def test_a_refused_request(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["RequestReboot"] = Refused("the settings allow no reboot", reason=Reason.REBOOT_NOT_ALLOWED)
    answer = cli("reboot", "--now", "--yes")
    assert (answer.code, answer.out) == (4, "")
    assert "RebootNotAllowed" in answer.err
