# SPDX-License-Identifier: Apache-2.0
"""`nodeagent maintenance`, and what other commands say about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import Refused
from nodeagent.features.maintenance import cli as command
from nodeagent.features.maintenance.cli import seconds_of
from nodeagent.features.maintenance.reasons import MaintenanceReason
from nodeagent.reasons import Reason, hint
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
from tests.cli.daemon.test_status import store
from tests.support.golden import Golden

__all__ = [
    "bus_address",
    "cli",
    "daemon",
    "loop_of_the_test",
    "no_settings",
    "private_bus",
    "store",
    "three_in_the_morning",
]

LEASE = {
    "backend": "local",
    "holder": "jane (by root)",
    "operation": "maintenance",
    "reason": "disk swap",
    "since": "2026-11-21T03:00:00Z",
    "expires": "2026-11-21T05:00:00Z",
}
NOTE = {
    "id": "3f2b",
    "state": "under way",
    "requester": "jane (by root)",
    "reason": "disk swap",
    "since": "2026-11-21T03:00:00Z",
    "until": "2026-11-21T05:00:00Z",
    "drain": True,
    "drained": "2026-11-21T03:05:00Z",
    "power_off": False,
    "message": "",
}


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "local_now", lambda: NOW)


def test_maintenance(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    golden("commands", "maintenance status, none", cli("maintenance", "status").out)
    daemon.answers["StartMaintenance"] = lambda *_: daemon.change(lease=LEASE, maintenance=NOTE)
    asked = ("--requester", "jane", "--for", "2h", "--drain")
    answer = cli("maintenance", "start", "--reason", "disk swap", *asked)
    assert answer.code == 0
    assert answer.err == ""
    ((_, (reason, options)),) = daemon.calls
    assert reason == "disk swap"
    assert {name: option.value for name, option in options.items()} == {
        "requester": "jane",
        "seconds": 7200,
        "drain": True,
        "power_off": False,
        "wait": False,
    }
    golden("commands", "maintenance start", answer.out)
    # One line for the maintenance and its lease.
    rows = [line for line in cli("status").out.splitlines() if "disk swap" in line]
    assert [row.split()[0] for row in rows] == ["maintenance"]
    # Another holder is shown as well.
    daemon.change(lease={**LEASE, "holder": "node-a", "operation": "update", "reason": "update to worker-2"})
    assert "\nlease  " in cli("status").out
    daemon.change(lease=LEASE)
    assert cli("maintenance", "status", "--json").json == {
        "schema": "nodeagent/maintenance/v1",
        "active": True,
        "lease": LEASE,
        "maintenance": NOTE,
    }
    daemon.answers["StopMaintenance"] = Refused("no maintenance is under way", reason=MaintenanceReason.NO_MAINTENANCE)
    refused = cli("maintenance", "stop")
    assert (refused.code, refused.out) == (4, "")
    assert refused.err.startswith("nodeagent: NoMaintenance: no maintenance is under way\nhint: ")


def test_maintenance_warns_of_an_update_and_waits_for_it(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.change(phase="Acting", desired="worker-2")
    held = Refused("nodeagent holds the lease for the update to worker-2", reason=Reason.LEASE_HELD)
    daemon.answers["StartMaintenance"] = held
    refused = cli("maintenance", "start", "--reason", "disk swap")
    assert refused.code == 4
    assert refused.err.startswith("warning: an update to worker-2 is in progress (Acting)\nnodeagent: LeaseHeld: ")
    assert "--wait" in refused.err

    def plan(*_: object) -> None:
        planned = {**NOTE, "state": "planned", "message": "LeaseHeld: an update"}
        daemon.change(maintenance=planned)
        daemon.later((0.3, lambda: daemon.change(maintenance=NOTE, lease=LEASE)))

    daemon.answers["StartMaintenance"] = plan
    answer = cli("maintenance", "start", "--reason", "disk swap", "--wait")
    assert answer.code == 0
    golden("commands", "maintenance start during an update", answer.err)
    assert answer.out.startswith("this host is in maintenance")


def test_a_planned_maintenance_that_is_stopped(cli: Cli, daemon: FakeDaemon) -> None:
    def plan(*_: object) -> None:
        daemon.change(maintenance={**NOTE, "state": "planned"})
        daemon.later((0.3, lambda: daemon.change(maintenance=None)))

    daemon.answers["StartMaintenance"] = plan
    answer = cli("maintenance", "start", "--reason", "disk swap", "--wait", "--json")
    assert (answer.json["active"], answer.json["maintenance"], answer.err) == (False, None, "")


@pytest.mark.parametrize(
    ("state", "words", "active"),
    [
        ("planned", "it begins when the lease is free", False),
        ("draining", "its pods are being moved", True),
        ("powering off", "it is about to power off", True),
        ("ending", "not everything is restored", False),
    ],
)
def test_states_of_a_maintenance(cli: Cli, daemon: FakeDaemon, state: str, words: str, active: bool) -> None:
    daemon.change(maintenance={**NOTE, "state": state, "until": "", "drained": "", "message": "KubeUnreachable: no"})
    out = cli("maintenance", "status").out
    assert words in out.splitlines()[0]
    assert "until      stopped by an operator\nmessage    KubeUnreachable: no\n" in out
    assert cli("maintenance", "status", "--json").json["active"] is active


@pytest.mark.parametrize("duration", ["", "0s", "2", "h", "2 weeks", "-2h", "1.5h", "²h"])
def test_invalid_durations(cli: Cli, daemon: FakeDaemon, duration: str) -> None:
    answer = cli("maintenance", "start", "--reason", "x", f"--for={duration}")
    if duration:
        assert (answer.code, "BadDuration" in answer.err, daemon.calls) == (2, True, [])


def test_durations_of_a_maintenance() -> None:
    assert [seconds_of(text) for text in ("90s", "30min", "2h", "3d")] == [90, 1800, 7200, 259200]


def test_apply_warns_of_a_maintenance(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    config = tmp_path / "worker-2.yaml"
    config.write_text(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\n"
        "metadata: {name: worker-2}\nspec: {config: {ignition: {version: 3.4.0}}}\n"
    )
    flag = "maintenance is under way: jane (by root): disk swap (since 03:00:00, 12 min ago, until 05:00:00)"
    assert cli("apply", str(config)).err == ""
    daemon.change(maintenance=NOTE, lease=LEASE)
    answer = cli("apply", str(config))
    assert (answer.code, answer.err) == (0, f"warning: {flag}; the update begins after it\n")
    as_json = cli("apply", str(config), "--json")
    assert (as_json.json["maintenance"], as_json.err) == (NOTE, "")
    rows = cli("status").out.splitlines()
    assert any(row.startswith("maintenance") and "under way: jane (by root): disk swap" in row for row in rows)


def test_maintenance_needs_a_reason(cli: Cli) -> None:
    assert cli("maintenance", "start").code == 2


def test_without_a_daemon_the_store_is_read(cli: Cli, bus_address: str, store: Path) -> None:
    before = store.read_bytes()
    assert cli("maintenance", "status", "--json").json["active"] is True
    assert "reason     disk swap\n" in cli("maintenance", "status").out, (
        "that of the lease, without a note in the store"
    )
    assert store.read_bytes() == before


@pytest.mark.mistake("`maintenance strat`", "a list of choices in the words of Python", "`hint: did you mean start?`")
@pytest.mark.mistake(
    "`maintenance start --reason x --for 5`",
    "no hint",
    "`hint: use 90s, 30min, 2h or 3d, or omit it to keep maintenance until it is stopped`",
)
@pytest.mark.finding(
    "commands: usage errors and hints",
    "Usage errors name the command, close names, and what there is instead of foreign options.",
)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["strat"],
            ["has no command 'strat', only start, stop and status", "hint: did you mean start?"],
        ),
        (
            ["start", "--reason", "x", "--for", "5"],
            ["BadDuration: '5' is not a duration", f"hint: {hint('BadDuration')}"],
        ),
    ],
)
def test_usage_errors_have_a_hint(words: list[str], said: list[str], cli: Cli) -> None:
    answer = cli("maintenance", *words)
    assert answer.code == 2
    for words_of_hint in said:
        assert words_of_hint in answer.err
    assert "_count" not in answer.err
