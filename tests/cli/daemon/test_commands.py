# SPDX-License-Identifier: Apache-2.0
"""The small commands against a fake daemon. Their texts are in ``tests/golden/commands.txt``."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import nodeagent
from nodeagent.cli import settings
from nodeagent.cli._render import ago, clock, duration
from nodeagent.errors import Refused, ServiceUnavailable
from nodeagent.reasons import Reason
from tests.cli.conftest import machine_config
from tests.cli.daemon.conftest import Cli
from tests.cli.daemon.fake_daemon import FakeDaemon, entry
from tests.support.golden import Golden


def test_history(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.history = [
        entry("u3", "worker-3", "reverted", reboots=2, seconds=190, reason="VerifyLate", message="kubelet.service"),
        entry("u2", "worker-2", started="2026-11-20T23:00:00Z"),
    ]
    answer = cli("history")
    assert answer.code == 0
    golden("commands", "history", answer.out)
    as_json = cli("history", "--json", "--limit", "1").json
    assert [update["update_id"] for update in as_json["updates"]] == ["u3"]
    assert as_json["totals"] == {"updates": 2, "reboots": 2, "reboots_avoided": 1}


def test_no_history(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    golden("commands", "history, empty", cli("history").out)


@pytest.mark.parametrize("limit", ["0", "x", "1001"])
def test_history_has_bounds(cli: Cli, limit: str) -> None:
    assert cli("history", "--limit", limit).code == 2


def test_verify(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.answers["Verify"] = json.dumps(
        {"schema": "nodeagent/verify/v1", "config": "w", "ok": True, "drift": [], "not_compared": []}
    )
    answer = cli("verify")
    assert (answer.code, answer.err) == (0, "")
    golden("commands", "verify", answer.out)
    rest = [
        {"entry": "osImageURL:osImageURL", "why": "names no digest, so the booted image cannot be compared with it"}
    ]
    part = {"schema": "nodeagent/verify/v1", "config": "w", "ok": True, "drift": [], "not_compared": rest}
    daemon.answers["Verify"] = json.dumps(part)
    golden("commands", "verify, not compared", cli("verify").out)
    drift = [{"entry": "file:/etc/a", "why": "content differs"}]
    daemon.answers["Verify"] = json.dumps({**part, "ok": False, "drift": drift, "not_compared": []})
    answer = cli("verify")
    assert answer.code == 1
    golden("commands", "verify, drift", answer.out)
    assert cli("verify", "--json").json["drift"] == drift
    drift[0]["diff"] = "--- /etc/a\n+++ /etc/a\n@@ -1 +1 @@\n-one\n+two\n"
    daemon.answers["VerifyDiff"] = json.dumps({**part, "ok": False, "drift": drift, "not_compared": []})
    golden("commands", "verify --diff", cli("verify", "--diff").out)
    assert cli("verify", "--diff", "--json").json["drift"] == drift


@pytest.mark.parametrize("drift", [[], [{"entry": "file:/etc/a", "why": "content differs"}]], ids=["as it is", "drift"])
def test_verify_with_changes_that_wait(
    cli: Cli, daemon: FakeDaemon, golden: Golden, drift: list[dict[str, str]]
) -> None:
    waits = ["file:/etc/unlisted", "osImageURL:osImageURL"]
    found = {"schema": "nodeagent/verify/v1", "config": "w", "waits": waits, "ok": not drift, "drift": drift}
    found["not_compared"] = []
    daemon.answers["Verify"] = json.dumps(found)
    answer = cli("verify")
    assert (answer.code, answer.err) == (len(drift), "")
    golden("commands", f"verify, waits{', drift' if drift else ''}", answer.out)
    assert cli("verify", "--json").json["waits"] == waits


def test_an_error_of_a_service_of_the_host_is_none_of_the_daemon(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["Verify"] = ServiceUnavailable("systemd did not answer in 25 s", reason=Reason.BUS_TIMEOUT)
    answer = cli("verify")
    assert (answer.code, answer.err.splitlines()[0]) == (5, "nodeagent: BusTimeout: systemd did not answer in 25 s")
    daemon.answers["Rollback"] = ServiceUnavailable("polkit does not run", reason=Reason.SERVICE_UNKNOWN)
    answer = cli("rollback")
    assert (answer.code, answer.err.splitlines()[0]) == (5, "nodeagent: ServiceUnknown: polkit does not run")


def test_rollback(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.answers["Rollback"] = "worker-1"
    golden("commands", "rollback", cli("rollback").out)
    assert daemon.calls == [("Rollback", [{}])]
    answer = cli("rollback", "--json").json
    assert (answer["schema"], answer["config"], answer["outcome"]) == ("nodeagent/rollback/v1", "worker-1", "accepted")
    daemon.answers["Rollback"] = Refused("there is no config before the current one", reason=Reason.NO_PREVIOUS)
    assert cli("rollback").code == 4


def test_rollback_follows_the_update(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    def go_back(_options: object) -> str:
        def rest() -> None:
            daemon.change(phase="Idle", current="worker-1", desired="worker-1")
            daemon.finish(0, **entry("u9", "worker-1", reboots=1, reboot_avoided=False))

        daemon.later((0.1, lambda: daemon.change(phase="Staging", desired="worker-1")), (0.3, rest))
        return "worker-1"

    daemon.answers["Rollback"] = go_back
    answer = cli("rollback", "--wait")
    assert answer.code == 0
    golden("commands", "rollback, the end of --wait", answer.out.splitlines()[-1])


LEASE = {
    "backend": "local",
    "holder": "jane (by root)",
    "operation": "maintenance",
    "reason": "disk swap",
    "since": "2026-11-21T03:00:00Z",
    "expires": "2026-11-21T05:00:00Z",
}


def test_lease(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    golden("commands", "lease show, free", cli("lease", "show").out)
    assert cli("lease", "show", "--json").json == {"schema": "nodeagent/lease/v1", "lease": None}


def test_version(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    golden("commands", "version", cli("version").out.replace(nodeagent.__version__, "VERSION"))
    daemon.stop()
    assert cli("version", "--json").json["daemon"] == ""


def test_version_names_the_origin_of_the_interpreter(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert "not the self-contained package" in cli("version", "--verbose").out
    assert cli("version", "--verbose", "--json").json["interpreter"] == ""
    entry = {"name": "zlib", "version": "1.3", "licenses": [{"expression": "Zlib"}], "purl": "pkg:generic/zlib@1.3"}
    other = {**entry, "name": "zlib2", "externalReferences": [{"type": "distribution", "url": "pkg:pypi/zlib"}]}
    metadata = {"component": {}, "properties": [{"name": "nodeagent:interpreter", "value": "standalone"}]}
    (tmp_path / "sbom.cdx.json").write_text(json.dumps({"metadata": metadata, "components": [entry, other]}))
    assert "from python-build-standalone" in cli("version", "--verbose").out
    answer = cli("version", "--verbose", "--json").json
    assert answer["interpreter"] == "standalone"
    assert [each["origin"] for each in answer["components"]] == ["pkg:generic/zlib@1.3", "pkg:pypi/zlib"]


def test_settings_show_has_the_source_of_each_value(cli: Cli, no_settings: Path) -> None:
    (no_settings / "50-mine.yaml").write_text("\nactions: {timeout: 2.5}\nreboot: {allow: false}\n")
    lines = {line.split()[0]: line.split()[1:] for line in cli("settings", "show").out.splitlines()}
    assert lines["actions.timeout"] == ["2.5", f"{no_settings}/50-mine.yaml:2"]
    assert lines["reboot.allow"] == ["false", f"{no_settings}/50-mine.yaml:3"]
    assert lines["on_drift"] == ["report", "default"]
    shown = cli("settings", "show", "--json").json
    assert shown["settings"]["actions.timeout"] == {"value": 2.5, "from": f"{no_settings}/50-mine.yaml:2"}


@pytest.mark.finding(
    "commands: wrapping of settings", "`settings show` fits on a terminal of 80 columns, values whole."
)
def test_settings_on_a_narrow_terminal(
    cli: Cli, no_settings: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(settings, "on_terminal", lambda: True)
    monkeypatch.setattr("nodeagent.cli._render.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    (no_settings / "10-test.yaml").write_text("")
    (no_settings / "50-mine.yaml").write_text(
        f"metrics: {{file: /run/{'long/' * 6}nodeagent.prom}}\nlog: {{level: debug}}"
    )
    lines = cli("settings", "show").out.splitlines()
    # A path is kept whole.
    assert [line for line in lines if len(line) > 80 and " " in line] == []
    assert f"50-mine.yaml: {no_settings}/50-mine.yaml" in " ".join(lines)
    rows = lines[: lines.index(next(line for line in lines if line.startswith("log.level"))) + 1]
    chosen = [line for line in rows if line.startswith(("SETTING", "policy", "metrics.file", "    ", "log.level"))]
    golden("commands", "settings show on a narrow terminal", "\n".join(chosen))


@pytest.mark.finding("users: messages that name no way out", "A policy without actions is a note of the check.")
def test_settings_check_names_entries_without_actions(cli: Cli, no_settings: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("nodeDisruptionPolicy: {files: [{path: /etc/app, actions: []}]}\n")
    answer = cli("settings", "check")
    assert answer.code == 0
    assert "note: /etc/app has no actions, so nothing is reloaded or restarted" in answer.out


def test_settings_check_reads_settings_policy_and_desired_config(cli: Cli, no_settings: Path, tmp_path: Path) -> None:
    answer = cli("settings", "check")
    assert answer.code == 2
    assert f"  {tmp_path}/policy.yaml: does not exist\n" in answer.out
    (tmp_path / "policy.yaml").write_text("files: []\n")
    answer = cli("settings", "check")
    assert answer.code == 0, answer.out
    (tmp_path / "desired.yaml").write_text("kind: Nonsense")
    answer = cli("settings", "check", "--json")
    assert answer.code == 2
    assert [bool(look["problems"]) for look in answer.json["files"]] == [False, False, True]


@pytest.mark.finding(
    "commands: usage errors and hints",
    "`settings check` notes units of the policy that the host lacks, and checks contents of the desired config.",
)
def test_settings_check_notes_units_that_this_host_lacks(
    cli: Cli, no_settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note only: the unit may come with the next config."""
    monkeypatch.setattr(settings, "UNIT_PLACES", (str(tmp_path),))
    (tmp_path / "chronyd.service").touch()
    units = ("chronyd.service", "chronnyd.service")
    actions = [{"type": "Restart", "restart": {"serviceName": unit}} for unit in units]
    (tmp_path / "policy.yaml").write_text(json.dumps({"files": [{"path": "/etc/chrony.conf", "actions": actions}]}))
    answer = cli("settings", "check")
    assert answer.code == 0
    why = "is not on this host: an update that needs it is refused; did you mean chronyd.service?"
    assert f"  note: chronnyd.service {why}\n" in answer.out
    assert answer.out.count("note:") == 1


def test_settings_check_checks_contents_too(cli: Cli, no_settings: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("files: []\n")
    users = [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAnotakey me"]}]
    wrong = machine_config("a", {}, ignition={"passwd": {"users": users}})
    (tmp_path / "desired.yaml").write_text(json.dumps(wrong))
    answer = cli("settings", "check")
    assert (answer.code, "is not base64" in answer.out) == (2, True)


@pytest.mark.parametrize("hidden", ["configs", "configs/host.d", "configs/a.json", "configs/host.d/b.json"])
def test_settings_check_skips_a_directory_that_only_root_may_read(
    cli: Cli, no_settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    (tmp_path / "policy.yaml").write_text("files: []\n")
    (tmp_path / "configs/host.d").mkdir(parents=True)
    for name in ("a", "host.d/b"):
        (tmp_path / f"configs/{name}.json").write_text(json.dumps(machine_config(name[-1], {})))
    (no_settings / "60-x.yaml").write_text(f"desired_config: {tmp_path}/configs\n")
    assert f"desired config {tmp_path}/configs: good" in cli("settings", "check").out
    monkeypatch.setattr(os, "access", lambda path, _mode: str(path) != str(tmp_path / hidden))
    answer = cli("settings", "check")
    assert answer.code == 0
    assert f"desired config {tmp_path}/configs: only root may read it; run this as root to check it" in answer.out


def test_settings_check_checks_consistency(cli: Cli, no_settings: Path) -> None:
    for text, words in (
        ("cluster: {source: cluster}\n", "cluster.source: cluster needs a cluster"),
        ("verify: {timeout: 5}\n", "actions.settle"),
    ):
        (no_settings / "60-x.yaml").write_text(text)
        answer = cli("settings", "check")
        assert answer.code == 2
        assert words in answer.out


def test_settings_check_with_wrong_settings(cli: Cli, no_settings: Path, golden: Golden) -> None:
    (no_settings / "50-mine.yaml").write_text("on_drift: ignore\nlog: {levle: info}\n")
    answer = cli("settings", "check")
    assert answer.code == 2
    golden("commands", "settings check, bad settings", answer.out.replace(str(no_settings), "CONFIG.D"))
    assert cli("settings", "show", "--json").error["reason"] == "SettingsInvalid"


NOW = datetime(2026, 11, 21, 3, 0, 0, tzinfo=timezone(timedelta(hours=2)))


def test_times_are_local() -> None:
    assert clock("2026-11-21T00:59:00.123Z", NOW) == "02:59:00"
    assert clock("2026-11-20T12:00:00Z", NOW) == "2026-11-20 14:00:00"
    assert clock("", NOW) == "-"
    assert clock("soon", NOW) == "soon"
    assert ago("2026-11-21T00:59:00Z", NOW) == "1 min ago"
    assert ago("2026-11-21T01:00:00Z", NOW) == "just now"
    assert ago("", NOW.astimezone(UTC)) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0 s"),
        (0.42, "0.4 s"),
        (9.96, "10 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (18120, "5 h 2 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_boot_complete_waits_for_the_verification(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.status = {**daemon.status, "phase": "Verifying", "update_id": "u2"}
    daemon.later((0.2, lambda: daemon.change(phase="Releasing")))
    answer = cli("boot-complete")
    assert (answer.code, answer.out) == (0, "this boot is verified\n")


def test_boot_complete_fails_for_a_host_that_is_half_way(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.status = {**daemon.status, "phase": "Degraded", "reason": "VerifyFailed", "update_id": "u2"}
    answer = cli("boot-complete")
    assert answer.code == 1
    assert "Degraded: VerifyFailed" in answer.out
