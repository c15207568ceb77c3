# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply --at`."""

from __future__ import annotations

import json
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from nodeagent.features.windows import OPTIONS
from nodeagent.features.windows.cli.at import read
from tests.cli.daemon.conftest import NOW, Cli
from tests.cli.daemon.fake_daemon import FakeDaemon
from tests.cli.daemon.test_apply import config
from tests.cli.daemon.test_prompts import applied
from tests.support.golden import Golden

__all__ = ["config"]


@pytest.fixture(autouse=True)
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.features.windows.cli.at.here", lambda: NOW.astimezone(ZoneInfo("Europe/Berlin")))


def test_a_time_is_resolved_and_sent(cli: Cli, daemon: FakeDaemon, config: str, golden: Golden) -> None:
    given = cli("apply", config, "--at", "2026-11-24T02:00Z")
    assert given.code == 0
    assert applied(daemon)[0]["not_before"].value == "2026-11-24T02:00:00Z"
    golden("commands", "apply --at a time", given.out)
    given = cli("apply", config, "--at", "sat 02:00 60", "--no-reboot")
    assert (applied(daemon)[1]["window"].value, applied(daemon)[1]["no_reboot"].value) == ("sat 02:00 60", True)
    golden("commands", "apply --at a window --no-reboot", given.out)
    given = cli("apply", config, "--at", "sat 02:00 60", "--json").json
    assert (given["not_before"], given["window"], given["no_reboot"]) == ("", "sat 02:00 60", False)
    given = cli("apply", config, "--at", "2nd tue 02:00 60", "--json").json
    assert (given["window"], given["any_time"]) == ("2nd tue 02:00 60", "")
    given = cli("apply", config, "--at", "now")
    assert applied(daemon)[-1]["any_time"].value == "yes"
    golden("commands", "apply --at now", given.out)


@pytest.mark.finding(
    "commands: zone of a time and of a window",
    "The answer and `settings show` name the time zone that counts, with the summer time of the start.",
)
def test_each_answer_names_the_zone_that_counts(
    cli: Cli, daemon: FakeDaemon, config: str, no_settings: Path, golden: Golden
) -> None:
    (no_settings / "20-windows.yaml").write_text("windows: {zone: Asia/Tokyo}")
    # The summer time of the start, not that of the request.
    for text, name in (
        ("2027-07-01T02:00", "a time in the summer"),
        ("sat 02:00 60", "a window of the settings' zone"),
    ):
        golden("commands", f"apply --at {name}", cli("apply", config, "--at", text).out)
    assert applied(daemon)[0]["not_before"].value == "2027-07-01T00:00:00Z"
    shown = cli("settings", "show").out.splitlines()[-2:]
    assert shown[0].split("time zone ")[1].startswith("Asia/Tokyo")
    assert shown[1].endswith("of this host.")


def test_a_window_by_its_name(cli: Cli, daemon: FakeDaemon, config: str, no_settings: Path) -> None:
    (no_settings / "20-windows.yaml").write_text('windows: {open: ["02:00 30", "nights = sat,sun 02:00 60"]}')
    assert cli("apply", config, "--at", "nights").code == 0
    assert applied(daemon)[0]["window"].value == "sat,sun 02:00 60"
    assert cli("apply", config, "--at", "days", "--json").error["reason"] == "BadTime"


def test_now_is_the_start_for_which_nothing_waits() -> None:
    (option,) = OPTIONS
    assert [name for name, value in read("now").items() if value] == [option.at_once]


def test_a_time_that_is_none(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    given = cli("apply", config, "--at", "noon", "--json")
    assert (given.code, given.error["reason"], applied(daemon)) == (2, "BadTime", [])


def test_a_config_of_which_a_part_waits(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.status |= {
        "phase": "Leasing",
        "reason": "WindowClosed",
        "message": "no window is open; the next one opens 2026-11-23T03:00:00Z",
        "desired": "worker-2",
        "partial": {
            "config": "worker-2",
            "digest": "d2",
            "since": "2026-11-21T03:11:30.000Z",
            "reason": "WindowClosed",
            "message": "no window is open; the next one opens 2026-11-23T03:00:00Z",
            "applied": ["sshkey:core", "file:/etc/containers/policy.json"],
            "waits": [{"change": f"file:/etc/{number}", "for": "Drain, Reboot"} for number in range(22)],
        },
    }
    golden("status", "partly applied", cli("status").out)


SETTINGS = """
windows:
  open: ["sat 02:00 120", "2nd tue 02:00 60"]
  freeze: ["fair = 2026-11-28", "2026-12-20..2027-01-03"]
  spread: 30
  end_inside: true
"""


@pytest.fixture
def second_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host with an id, at the time of the tests."""
    (tmp_path / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr("nodeagent.features.windows.cli.windows.MACHINE_ID", tmp_path / "machine-id")
    monkeypatch.setattr("nodeagent.host.clock.SystemClock.now", lambda _: "2026-11-21T03:12:00.000Z")


@pytest.mark.usefixtures("bus_address", "second_boot")
def test_without_a_daemon_the_settings_answer(cli: Cli, no_settings: Path, golden: Golden) -> None:
    (no_settings / "20-windows.yaml").write_text(SETTINGS)
    answer = cli("windows", "--limit", "3", "--json")
    assert (answer.code, answer.json["source"], answer.json["spread"]) == (0, "command", 30)
    begins = [window["begins"] for window in answer.json["windows"]]
    assert begins == ["2026-11-21T02:00:00Z", "2026-12-05T02:00:00Z", "2026-12-08T02:00:00Z"]
    assert "no answer from the daemon (ServiceUnknown" in answer.err
    golden("commands", "windows", cli("windows", "--limit", "3").out)


def test_the_answer_of_the_daemon(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    works = ("restart", "drain", "reboot", "os")
    given = {
        "schema": "nodeagent/windows/v1",
        "source": "daemon",
        "zone": "Europe/Prague",
        "now": "2026-11-21T03:12:00Z",
        "open": False,
        "frozen": {"name": "fair", "begins": "2026-11-20T23:00:00Z", "ends": "2026-11-22T23:00:00Z"},
        "spread": 0,
        "end_inside": False,
        "windows": [{"begins": "2026-11-22T23:00:00Z", "ends": "", "host_begins": dict.fromkeys(works, "")}],
        "freezes": [{"name": "fair", "begins": "2026-11-20T23:00:00Z", "ends": "2026-11-22T23:00:00Z"}],
        "estimates": {work: {"seconds": 300.0, "slowest": 240.0, "updates": 2, "fits": True} for work in works},
    }
    daemon.answers["Windows"] = json.dumps(given)
    answer = cli("windows", "--json")
    assert (answer.code, answer.json, daemon.calls) == (0, given, [("Windows", [10])])
    golden("commands", "windows in a freeze", cli("windows").out)


@pytest.mark.parametrize("limit", ["0", "101", "-1", "x", "٣"])
def test_a_number_of_windows_that_is_none(cli: Cli, limit: str) -> None:
    assert cli("windows", f"--limit={limit}", "--json").error["reason"] == "Usage"
