# SPDX-License-Identifier: Apache-2.0
"""`nodeagent selfcheck`: its text, its JSON, its exit status, and a host without systemd, bus and daemon."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodeagent import installed
from nodeagent.core.self_check import NotRead, SelfCheck, failed, ok, skipped
from nodeagent.door import Door, InstallationCheck
from nodeagent.errors import Terminal
from nodeagent.features.selfcheck.cli import _survey
from nodeagent.features.selfcheck.decide.versions import interpreter_check
from nodeagent.reasons import Reason
from nodeagent.settings.schema import Settings
from tests.cli.daemon.conftest import Cli
from tests.support.golden import Golden
from tests.support.removed import removed

WELL = [ok("unit.file", "/usr/lib/systemd/system/nodeagent.service"), skipped("reach.lease", "not configured")]
BAD = failed("journal.catalog", "journalctl finds no entry", "journalctl --update-catalog")


def with_results(monkeypatch: pytest.MonkeyPatch, checks: Sequence[SelfCheck]) -> None:
    async def survey() -> Sequence[SelfCheck]:
        return checks

    monkeypatch.setattr("nodeagent.features.selfcheck.cli.selfcheck.survey", survey)


def test_an_installation_that_is_well(cli: Cli, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    with_results(monkeypatch, WELL)
    answer = cli("selfcheck")
    assert answer.code == 0
    golden("commands", "selfcheck", answer.out)
    as_json = cli("selfcheck", "--json").json
    assert (as_json["schema"], as_json["ok"]) == ("nodeagent/selfcheck/v1", True)
    assert [check["result"] for check in as_json["checks"]] == ["ok", "skipped"]


def test_an_installation_with_a_warning(cli: Cli, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    with_results(monkeypatch, [*WELL, interpreter_check("testing")])
    answer = cli("selfcheck")
    assert answer.code == 0
    golden("commands", "selfcheck, interpreter of tests", answer.out)
    as_json = cli("selfcheck", "--json").json
    assert (as_json["ok"], as_json["checks"][-1]["result"]) == (True, "warning")


def test_an_installation_that_is_broken(cli: Cli, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    with_results(monkeypatch, [*WELL, BAD])
    answer = cli("selfcheck")
    assert answer.code == 1
    golden("commands", "selfcheck, broken", answer.out)
    answer = cli("selfcheck", "--json")
    assert (answer.code, answer.json["ok"]) == (1, False)
    assert answer.json["checks"][-1] == {
        "id": BAD.id,
        "result": "failed",
        "message": BAD.message,
        "remedy": BAD.remedy,
    }


def test_without_systemd_bus_and_daemon(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_settings: Path
) -> None:
    """As in the build of an image; each other reader still reads."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/missing")
    monkeypatch.setattr(_survey.unit, "is_booted", lambda: False)
    found = {check["id"]: check["result"] for check in cli("selfcheck", "--json").json["checks"]}
    assert found["settings"] == "ok"
    assert {found[name] for name in ("dbus.name", "polkit.actions", "versions.daemon", "reach.api-server")} == {
        "skipped"
    }
    # A bus that does not answer is a failure where systemd runs.
    monkeypatch.setattr(_survey.unit, "is_booted", lambda: True)
    found = {check["id"]: check["result"] for check in cli("selfcheck", "--json").json["checks"]}
    assert {found[name] for name in ("unit.file", "dbus.name", "polkit.actions")} == {"failed"}
    (no_settings / "90-bad.yaml").write_text("actions: {timeuot: 3}\n")
    answer = cli("selfcheck", "--json")
    assert answer.code == 1
    assert answer.json["checks"][0]["result"] == "failed"


def test_the_reference_lists_each_check(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/missing")
    page = (Path(__file__).parents[3] / "docs/reference/selfcheck.md").read_text().partition("## JSON")[0]
    listed = re.findall(r"^\| `([a-z.-]+)` \|", page, re.MULTILINE)
    checks = [check["id"] for check in cli("selfcheck", "--json").json["checks"]]
    # The page still has the checks of a feature that was removed.
    assert [name for name in listed if name in checks or not removed()] == checks


async def test_each_reader_has_a_deadline_and_its_own_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_survey, "DEADLINE", 0.05)

    async def fail(error: Exception) -> Any:
        raise error

    late = await _survey._bounded(asyncio.sleep(60))
    broken = await _survey._bounded(fail(Terminal("no", reason=Reason.READ_ONLY)))
    unreadable = await _survey._bounded(fail(OSError(5, "Input/output error")))
    for found in (late, broken, unreadable):
        assert isinstance(found, NotRead)
        assert (found.fault, bool(found.remedy)) == (True, True)


async def test_a_feature_adds_its_checks() -> None:
    async def well(settings: Settings) -> SelfCheck:
        return ok("reach.spare", settings.desired_config)

    async def broken(settings: Settings) -> SelfCheck:
        raise Terminal("no", reason=Reason.READ_ONLY, hint="mount it")

    checks = (InstallationCheck("reach.spare", well), InstallationCheck("spare", broken))
    with installed.replaced([Door(title="Spare", page="", self_checks=checks)]):
        found = await _survey._added(Settings())
    assert found == [ok("reach.spare", Settings().desired_config), failed("spare", "no", "mount it")]
