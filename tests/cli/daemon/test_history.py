# SPDX-License-Identifier: Apache-2.0
"""`nodeagent history show`, `history diff` and `nodeagent logs`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli.history import update_lines
from nodeagent.errors import InvalidInput
from nodeagent.reasons import Reason
from nodeagent.update.history.trail import Boot, Span, Trail, trail_to_dict
from tests.cli.daemon.conftest import NOW, Cli
from tests.cli.daemon.fake_daemon import FakeDaemon, entry
from tests.support.golden import Golden

RECOMMENDED = Path(__file__).parents[3] / "systemd/usr/lib/nodeagent/policy-recommended.yaml"


def at(second: int) -> str:
    return f"2026-11-21T03:00:{second:02}.000Z"


# A lease that another holder had, a restart that failed, a fallback reboot of 12 s, and a verification.
TRAIL = Trail(
    boots=(
        Boot("b1", 100.0, 120.0, 1000.0, accepted=119.0),
        Boot("b2", 5.0, 15.0, 1127.0, clock_steps=((6.0, 30.0),)),
    ),
    phases=(
        Span("Leasing", at(0), 0, 100.0, 10.0),
        Span("Writing", at(10), 0, 110.0, 1.0),
        Span("Acting", at(11), 0, 111.0, 4.0),
        Span("Rebooting", at(15), 0, 115.0, 5.0, reason="ActionFailed", message="a.service failed"),
        Span("Verifying", at(32), 1, 5.0, 9.5),
        Span("Releasing", at(42), 1, 14.5, 0.5),
    ),
    steps=(
        Span("daemon-reload", at(11), 0, 111.0, 0.5, "done", phase="Acting"),
        Span("restart a.service", at(12), 0, 112.0, 3.0, "failed", message="exit-code", phase="Acting"),
    ),
    waits=(
        Span("", at(1), 0, 101.0, 9.0, reason="LeaseHeld", message=f"jane since {at(0)}: disk swap", phase="Leasing"),
    ),
    writes=3,
)
PLAN = {
    "changes": [
        {
            "domain": "file",
            "key": "/etc/a",
            "change": "modified",
            "policy": "user",
            "actions": ["Restart a.service"],
            "details": [
                {"what": "content", "added": 2, "removed": 1},
                {"what": "mode", "before": "0644", "after": "0600"},
            ],
        },
        {"domain": "osImageURL", "key": "osImageURL", "change": "modified", "policy": "none", "actions": ["Reboot"]},
    ],
    "more": 2,
    "os": "packages 2 upgraded, 1 added; kernel 6.1.0-30 same; 12.5 MB pulled",
    "actions": ["DaemonReload", "Restart a.service"],
    "drain": False,
}


def update(update_id: str = "6d891485" + 24 * "0", **more: Any) -> dict[str, Any]:
    found = entry(update_id, outcome="done-after-fallback", reboots=1, disruption="restart", reason="ActionFailed")
    extra = {
        "message": "restart a.service: exit-code",
        "fallback": True,
        "failed_unit": "a.service",
    }
    found |= {**extra, "plan": PLAN, "trail": trail_to_dict(TRAIL), **more}
    answer: dict[str, Any] = json.loads(json.dumps({"schema": "nodeagent/update/v1", **found}))
    return answer


def test_one_update(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.answers["Update"] = json.dumps(update())
    answer = cli("history", "show", "6d89")
    assert (answer.code, daemon.calls[-1][1]) == (0, ["6d89"])
    golden("history", "an update with a fallback", answer.out)
    assert cli("history", "show", "--json").json == update()
    assert daemon.calls[-1][1] == [""]


@pytest.mark.finding("commands: changes of a long update", "`history show` groups equal changes, as `plan` does.")
def test_an_update_of_many_files(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    file = {"domain": "file", "change": "added", "policy": "none", "actions": ["Drain", "Reboot"]}
    files = [
        {**file, "key": f"/etc/kubernetes/static-pod-resources/{n}.yaml", "details": [{"what": "content", "added": n}]}
        for n in range(60)
    ]
    other = {"domain": "unit", "key": "a.service", "change": "from a newer agent", "policy": "user", "actions": []}
    plan = {**PLAN, "changes": [*files[:30], other, *files[30:]], "more": 200}
    daemon.answers["Update"] = json.dumps(update(plan=plan))
    lines = [line for line in cli("history", "show").out.splitlines() if line.startswith(("change", "      "))]
    golden("history", "an update of many files", "\n".join(lines))


@pytest.mark.parametrize(
    ("reboots", "soft", "words"),
    [(1, 1, "1 reboot (a fallback, a soft one)"), (2, 1, "2 reboots (a fallback, 1 of them soft)")],
)
def test_an_update_with_a_soft_reboot(cli: Cli, daemon: FakeDaemon, reboots: int, soft: int, words: str) -> None:
    daemon.answers["Update"] = json.dumps(update(reboots=reboots, soft_reboots=soft))
    assert words in cli("history", "show").out


@pytest.mark.parametrize(
    ("reboots", "soft", "shown"), [(1, 0, "1"), (1, 1, "1 (soft)"), (2, 1, "2 (1 soft)"), (2, 2, "2 (soft)")]
)
def test_the_list_has_the_kinds_of_the_reboots(
    cli: Cli, daemon: FakeDaemon, reboots: int, soft: int, shown: str
) -> None:
    daemon.history = [entry(outcome="reverted", reboots=reboots, soft_reboots=soft, boots=reboots)]
    assert cli("history").out.splitlines()[1].endswith(f" {shown}")


@pytest.mark.finding("history: boots of others", "The list and one update show boots that the agent did not request.")
@pytest.mark.parametrize(
    ("reboots", "soft", "boots", "avoided", "shown"),
    [
        (0, 0, 1, False, "0 (1 not requested)"),
        (1, 1, 3, False, "1 (soft, 2 not requested)"),
        (0, 0, 1, True, "0 (1 avoided, 1 not requested)"),
    ],
)
def test_boots_that_were_not_requested(
    cli: Cli, daemon: FakeDaemon, golden: Golden, reboots: int, soft: int, boots: int, avoided: bool, shown: str
) -> None:
    counts = {"reboots": reboots, "soft_reboots": soft, "boots": boots, "reboot_avoided": avoided}
    daemon.history = [entry(outcome="done", **counts)]
    assert cli("history").out.splitlines()[1].endswith(f" {shown}")
    daemon.answers["Update"] = json.dumps(update(fallback=False, **counts))
    golden("history", f"one update, with {shown}", cli("history", "show").out.splitlines()[1])
    daemon.answers["Update"] = lambda which: json.dumps(update(which, **counts | ({"boots": reboots} if which else {})))
    found = cli("history", "diff", "", "x", "--json").json["differences"]
    assert {"what": "boots not requested", "a": str(boots - reboots), "b": "0"} in found


def test_the_policy_that_avoids_the_last_reboot(cli: Cli, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of the updates has no plans, and an update that was cancelled disrupted nothing."""
    monkeypatch.setattr("nodeagent.cli._plan_inputs.RECOMMENDED", str(RECOMMENDED))
    changed = {"domain": "file", "key": "/etc/motd", "change": "modified", "policy": "none"}
    plan = {"changes": [{**changed, "actions": ["Drain", "Reboot"]}], "more": 0}
    daemon.history = [
        entry("u4", "latest", "cancelled", disruption="reboot"),
        entry("u3", "quiet", disruption="restart"),
        entry("u2", "loud", disruption="reboot", reboots=1),
        entry("u1", "first", disruption="drain"),
    ]
    daemon.answers["Update"] = json.dumps(update("u2", to_name="loud", plan=plan))
    answer = cli("policy", "suggest", "--json").json
    assert daemon.calls[-1][1] == ["u2"]
    assert (answer["update"], answer["avoidable"]) == ("loud", True)
    assert [each["path"] for each in answer["entries"]] == ["/etc/motd"]
    del daemon.history[2:]
    assert cli("policy", "suggest").out == "no update has drained or rebooted\n"


def test_an_update_without_a_trail(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    """The store has dropped the details of this entry."""
    daemon.answers["Update"] = json.dumps({**update(), "plan": {}, "trail": {}})
    golden("history", "an update without a trail", cli("history", "show").out)


def test_the_time_line_is_to_scale() -> None:
    lines = update_lines(update(), NOW)
    bars = {line[46:].split()[0]: line[10:34] for line in lines if "█" in line}
    assert len(bars) == 6
    # 42 s in 24 columns: the first 10 s, and the last half second.
    assert bars["Leasing"].count("█") == 6
    assert bars["Releasing"].strip("·") == "█"
    assert bars["Releasing"].endswith("█")
    assert bars["Verifying"].index("█") > bars["Rebooting"].rindex("█") + 5, "the host was down in between"


def test_the_time_line_of_another_day_has_no_dates() -> None:
    """The date is in the line "started" already."""
    later = NOW.replace(day=25)
    lines = update_lines(update(), later)
    assert any(line.startswith("started") and "2026-11-21 03:00:00" in line for line in lines)
    assert [line[:8] for line in lines if "█" in line][:2] == ["03:00:00", "03:00:10"]


def test_texts_of_others_do_not_control_the_terminal() -> None:
    trail = trail_to_dict(Trail(TRAIL.boots[:1], (Span("Leasing", at(0), 0, 100.0, message="\x1b[31m"),)))
    assert "\x1b" not in "\n".join(update_lines(update(message="\x1b]0;x", trail=trail), NOW))


def test_an_unknown_update(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["Update"] = InvalidInput("the update x is not in the history", reason=Reason.NO_SUCH_UPDATE)
    for words in (("history", "show", "x"), ("history", "diff", "x", "y"), ("logs", "x")):
        answer = cli(*words, "--json")
        assert (answer.code, answer.error["reason"]) == (2, "NoSuchUpdate")


def test_two_updates(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    quick = Trail(TRAIL.boots[:1], TRAIL.phases[1:3], TRAIL.steps[:1], writes=3)
    other = update("aaaa" + 28 * "0", outcome="done", reboots=0, reason="", message="", trail=trail_to_dict(quick))
    daemon.answers["Update"] = lambda update_id: json.dumps(update() if update_id == "6d" else other)
    answer = cli("history", "diff", "6d", "aa")
    golden("history", "two updates", answer.out)
    assert "took" not in answer.out, "only what differs"
    found = cli("history", "diff", "6d", "aa", "--json").json
    assert {"what": "reboots", "a": "1", "b": "0"} in found["differences"]
    assert cli("history", "diff", "6d", "6d").out == "the two updates do not differ\n"


@pytest.fixture
def journalctl(tmp_path: Path) -> Path:
    """A stand-in that prints its arguments."""
    program = tmp_path / "bin/journalctl"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    program.chmod(0o755)
    return program


def run_logs(path: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nodeagent", "logs", *words]
    return subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60, check=False
    )


def test_logs_are_those_of_journalctl(daemon: FakeDaemon, journalctl: Path) -> None:
    daemon.answers["Update"] = json.dumps(update("abc; rm -rf /"))
    path = str(journalctl.parent)
    done = run_logs(path)
    assert (done.returncode, done.stdout) == (3, "NODEAGENT_UPDATE_ID=abc; rm -rf / --no-pager\n")
    assert run_logs(path, "ab", "-f").stdout.split()[-3:] == ["--follow", "--no-tail", "--no-pager"]
    assert daemon.calls[-1][1] == ["ab"]
    assert "--output=json" in run_logs(path, "--json").stdout
    missing = run_logs(f"{path}/nowhere")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("nodeagent: ToolMissing: journalctl: No such file")
