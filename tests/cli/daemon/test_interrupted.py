# SPDX-License-Identifier: Apache-2.0
"""Each command while the daemon, or the bus, is lost in the middle: one clear error, the way out, and exit status 5."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from nodeagent.cli import _client, _follow
from nodeagent.cli.main import COMMANDS
from nodeagent.reasons import Reason, hint
from tests.cli.daemon.conftest import Cli
from tests.cli.daemon.fake_daemon import FakeDaemon, entry
from tests.cli.daemon.test_apply import CONFIG, config
from tests.support import examples
from tests.support.fixtures import PrivateBus

__all__ = ["config"]

# Commands that request a change, and the methods of D-Bus in the course of which the loss is.
REQUESTS: Final = {
    "apply FILE": ("Get", "Apply"),
    "apply --wait FILE": ("Get", "History", "Apply"),
    "cancel": ("History", "Get", "Cancel"),
    "rollback": ("Rollback",),
    "rollback --wait": ("History", "Get", "Rollback"),
    "reboot": ("Get", "Reboot"),
    **examples.joined("REQUESTS"),
}
# Commands that read. Most of them read the store if they get no answer.
READS: Final = {
    "plan FILE": ("Plan",),
    "plan --stage FILE": ("Plan",),
    "apply --dry-run FILE": ("Plan",),
    "status": ("Get",),
    "history": ("History",),
    "history show": ("Update",),
    "history diff u1 u2": ("Update",),
    "logs": ("Update",),
    "verify": ("Verify",),
    "lease show": ("Get",),
    "config current": ("Config",),
    "policy suggest FILE": ("Plan",),
    **examples.joined("READS"),
}
# The daemon is not involved, or its absence is a part of the answer, or the command waits for the daemon (a service
# of systemd, which has a deadline).
WITHOUT: Final = (
    "boot-complete",
    "daemon",
    "explain",
    "fleet",
    "render",
    "settings",
    "version",
    *examples.listed("WITHOUT"),
)
# All of its commands are of features.
GROUPS: Final = {"etcd"}
CHANGES: Final = (
    "Apply",
    "Cancel",
    "Rollback",
    "Reboot",
    *examples.listed("CHANGES"),
)
CASES: Final = [
    (words, member, lost)
    for words, members in {**REQUESTS, **READS}.items()
    for member in members
    for lost in ("bus", "daemon")
]
# What was lost, as the error names it. A command that follows the status meets the loss there first, and learns at its
# next call that nothing is there.
REASONS: Final = {
    "bus": (Reason.BUS_CONNECTION_LOST, Reason.BUS_UNREACHABLE),
    "daemon": (Reason.NO_REPLY, Reason.SERVICE_UNKNOWN),
}


@pytest.fixture
def breaks(daemon: FakeDaemon, private_bus: PrivateBus) -> Callable[[str, str], None]:
    """Let the next call of a member be the last: the bus, or the daemon, is lost before the answer."""
    losses = {"bus": private_bus.stop, "daemon": daemon.stop}

    def arm(member: str, lost: str) -> None:
        async def never(*_: object) -> None:
            daemon.later((0.0, losses[lost]))
            await asyncio.Event().wait()

        daemon.answers[member] = never

    return arm


def test_every_command_is_listed() -> None:
    listed = {words.split()[0] for words in (*REQUESTS, *READS)}
    assert listed | set(WITHOUT) | GROUPS == {command.name for command in COMMANDS}
    assert not listed & set(WITHOUT)


@pytest.mark.parametrize(("words", "member", "lost"), CASES, ids=[" ".join(case) for case in CASES])
def test_a_loss_in_the_middle_is_one_clear_error(
    cli: Cli,
    daemon: FakeDaemon,
    breaks: Callable[[str, str], None],
    config: str,
    words: str,
    member: str,
    lost: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    daemon.history = [entry("u1", "worker-1")]
    daemon.answers["Update"] = json.dumps({**entry("u1", "worker-1"), "reboots": 0})
    daemon.answers["Cancel"] = json.dumps({"config": "worker-2", "digest": "d" * 64, "effect": "end"})
    breaks(member, lost)
    answer = cli(*words.replace("FILE", config).split())
    assert answer.code == 5
    assert not Path("page.html").exists()
    error, *hints = [line for line in answer.err.splitlines() if not line.startswith(("warning:", "staging the OS"))]
    assert error.split(": ")[1] in REASONS[lost]
    assert "org.nodeagent" not in error, "a name of the interface is no explanation"
    assert len(hints) == 1
    assert hints[0].startswith("hint: ")
    # Whether to repeat a request depends on what became of it.
    assert ("it is not known whether it accepted the request" in error) is (member in CHANGES)
    assert ("nodeagent status shows" in hints[0]) is (member in CHANGES)


@pytest.mark.parametrize("words", ["apply --wait FILE", "cancel", "rollback --wait"])
def test_a_daemon_that_stays_away_ends_the_wait(
    cli: Cli, daemon: FakeDaemon, config: str, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(_follow, "ABSENCE", 0.2)
    monkeypatch.setattr(_client, "POLL", 0.05)

    def go(*_: object) -> Any:
        daemon.later((0.1, daemon.stop))
        return json.dumps({"config": "worker-2", "digest": "d" * 64, "effect": "end"}) if words == "cancel" else "x"

    daemon.status["update_id"] = "u2"
    daemon.answers |= {"Apply": go, "Cancel": go, "Rollback": go}
    answer = cli(*words.replace("FILE", config).split())
    assert answer.code == 5
    error, way_out = answer.err.splitlines()
    assert error == "nodeagent: ServiceUnknown: the daemon has not answered for 0.2 s: the daemon does not run"
    assert way_out == f"hint: {hint('Unreachable')}; nodeagent status shows what became of the request"


def test_a_bus_that_is_lost_before_the_request_ends_the_wait(
    cli: Cli,
    daemon: FakeDaemon,
    private_bus: PrivateBus,
    config: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_follow, "LISTENING", 0.2)
    connected = _client.Client.history

    async def history(client: _client.Client, limit: int) -> Any:
        found = await connected(client, limit)
        await asyncio.to_thread(private_bus.stop)
        return found

    monkeypatch.setattr(_client.Client, "history", history)
    answer = cli("apply", "--wait", config)
    assert answer.code == 5
    assert "the system bus was lost before the request was sent; nothing was requested" in answer.err
    assert ("Apply", [CONFIG, {}]) not in daemon.calls


@pytest.mark.parametrize("lost", ["bus", "daemon"])
def test_a_wait_survives_the_loss_and_learns_the_end(
    cli: Cli, daemon: FakeDaemon, private_bus: PrivateBus, config: str, lost: str
) -> None:
    """The end is in the history: its signal was not heard by this client."""

    def restart() -> None:
        daemon.stop()
        if lost == "bus":
            private_bus.stop()
            private_bus.start()
        daemon.history.insert(0, entry("u2", "worker-2", to_digest="d" * 64))
        daemon.start()

    daemon.answers["Apply"] = lambda *_: daemon.later((0.1, restart)) or "d" * 64
    answer = cli("apply", config, "--wait", "--json")
    assert (answer.code, answer.json["outcome"]) == (0, "done")
