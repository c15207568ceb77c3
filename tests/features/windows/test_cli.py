# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply --at`."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.cli.daemon.conftest import NOW, Cli
from tests.cli.daemon.fake_daemon import FakeDaemon
from tests.cli.daemon.test_apply import config
from tests.cli.daemon.test_prompts import applied
from tests.support.golden import Golden

__all__ = ["config"]


@pytest.fixture(autouse=True)
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.features.windows.cli.here", lambda: NOW.astimezone(ZoneInfo("Europe/Berlin")))


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
