# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli import _client, _plan_inputs
from nodeagent.cli._follow import Ending, ending_without_signal
from nodeagent.cli._plan_view import FALLBACK
from nodeagent.cli._render import Screen
from nodeagent.core.plan.plan import DISRUPTION_WORDS
from nodeagent.errors import InvalidInput, Problem, Refused, Terminal, Unreconcilable
from nodeagent.reasons import Reason, hint
from nodeagent.update.history.outcome import exit_code
from tests.cli.daemon.conftest import Cli
from tests.cli.daemon.fake_daemon import IDLE, FakeDaemon, entry
from tests.support.golden import Golden

CONFIG = """\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: worker-2
spec:
  config:
    ignition:
      version: 3.4.0
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "worker-2.yaml"
    path.write_text(CONFIG)
    return str(path)


def test_apply_sends_the_text_and_returns(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    answer = cli("apply", config)
    assert answer.code == 0
    assert answer.out == "worker-2 is the desired config now; nodeagent status --watch follows the update\n"
    assert daemon.calls == [("Apply", [CONFIG, {}])]
    assert cli("apply", config, "--json").json["outcome"] == "accepted"


@pytest.mark.parametrize(
    ("before", "nothing"),
    [
        ({}, True),
        ({"current_digest": "e" * 64}, False),
        ({"phase": "Degraded"}, False),
        ({"phase": "Leasing", "desired": "other"}, False),
        ({"drift": [{"entry": "file:/etc/a", "why": "content differs", "since": "", "by": ""}]}, False),
    ],
)
def test_apply_of_the_current_config(
    cli: Cli, daemon: FakeDaemon, config: str, before: dict[str, Any], *, nothing: bool
) -> None:
    daemon.answers["Apply"] = lambda *_: "d" * 64
    daemon.status |= {"current": "worker-2", "desired": "worker-2", "current_digest": "d" * 64, **before}
    said = cli("apply", config).out
    assert (said == "nothing to do: worker-2 is the current config\n") is nothing
    assert nothing or "follows the update" in said


def test_a_bad_config_is_refused_without_the_daemon(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(CONFIG.replace("MachineConfig\n", "Machineconfig\n"))
    answer = cli("apply", str(bad), "--json")
    assert answer.code == 2
    assert answer.error["errors"]
    assert daemon.calls == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Terminal("no space", reason=Reason.NO_SPACE), 1),
        (InvalidInput("no", problems=[Problem("spec", "is bad")]), 2),
        (Unreconcilable("no", hint="reinstall"), 3),
        (Refused("node-b has it", reason=Reason.LEASE_HELD), 4),
    ],
)
def test_errors_of_the_daemon_keep_their_kind(cli: Cli, daemon: FakeDaemon, config: str, error: Any, code: int) -> None:
    daemon.answers["Apply"] = error
    answer = cli("apply", config, "--json")
    assert answer.code == code
    assert answer.error["reason"] == error.reason
    assert answer.error["message"] == error.message
    assert answer.error["errors"] == [{"path": p.path, "message": p.message} for p in error.problems]
    assert answer.error["hint"]


@pytest.mark.finding("users: paths that cannot be written", "The hint without a daemon is to start it.")
def test_no_daemon(cli: Cli, bus_address: str, config: str) -> None:
    answer = cli("apply", config)
    assert answer.code == 5
    assert answer.err.startswith("nodeagent: ServiceUnknown: the daemon does not run\nhint: systemctl start nodeagent")


@pytest.mark.parametrize("words", [["plan"], ["apply", "--dry-run"], ["policy", "suggest"]])
def test_a_plan_without_a_bus(words: list[str], cli: Cli, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/run/none")
    answer = cli(*words, config)
    assert (answer.code, answer.out) == (5, "")
    # Nothing is tried that needs the bus again, and no address of a socket is shown.
    error, way_out = answer.err.splitlines()
    assert error == "nodeagent: BusUnreachable: the system bus cannot be reached"
    assert way_out.endswith("nodeagent plan --from A --to B needs neither the daemon nor root")


def update(daemon: FakeDaemon, outcome: str = "done", **more: Any) -> None:
    """Play a daemon after Apply: some phases, then rest."""
    step = {"name": "reload crio.service", "index": 1, "count": 2, "percent": 50}

    def rest() -> None:
        last = entry("u2", "worker-2", outcome, **more)
        daemon.history.insert(0, last)
        phase = "Idle" if outcome.startswith("done") else "Degraded"
        daemon.change(phase=phase, step=None, current="worker-2", desired="worker-2", reason=more.get("reason", ""))
        daemon.finish(exit_code(outcome), **last)

    daemon.later(
        (0.1, lambda: daemon.change(phase="Writing", desired="worker-2", update_id="u2")),
        (0.2, lambda: daemon.change(phase="Acting", step=step)),
        (0.2, rest),
    )


@pytest.mark.parametrize(
    ("outcome", "more", "code", "last"),
    [
        ("done", {}, 0, ["done: worker-2 is the current config in 12 s; a reboot was avoided"]),
        (
            "done-after-fallback",
            {"reboots": 1, "reason": "ActionLate", "message": "crio.service hangs"},
            0,
            ["done: worker-2 is the current config in 12 s, but it needed a reboot: ActionLate: crio.service hangs"],
        ),
        (
            "reverted",
            {"reason": "VerifyLate", "message": "kubelet.service after 300 s"},
            1,
            [
                "reverted: worker-2 is not in force in 12 s: VerifyLate: kubelet.service after 300 s",
                f"what now: {hint('VerifyLate')}",
            ],
        ),
    ],
)
def test_wait_shows_progress_and_end(
    cli: Cli,
    daemon: FakeDaemon,
    config: str,
    outcome: str,
    more: dict[str, Any],
    code: int,
    last: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Signals arrive in their order. The answer to a poll may arrive after the end, and phases before it are not shown.
    monkeypatch.setattr(_client, "POLL", 3600.0)
    daemon.history = [entry("u1", "worker-2")]  # an older update to a config of the same name is not ours
    daemon.answers["Apply"] = lambda *_: update(daemon, outcome, **more) or "d" * 64
    answer = cli("apply", config, "--wait")
    lines = [line.partition("  ")[2] or line for line in answer.out.splitlines()]
    assert "Writing" in lines
    assert "Acting: 1/2 reload crio.service" in lines
    assert lines[-len(last) :] == last
    assert answer.code == code


@pytest.mark.finding(
    "commands: rest in the progress", "Progress begins with the first phase, not with the rest before the request."
)
@pytest.mark.parametrize("on_terminal", [True, False])
def test_progress_begins_with_the_first_phase(
    cli: Cli, daemon: FakeDaemon, config: str, monkeypatch: pytest.MonkeyPatch, *, on_terminal: bool
) -> None:
    """Also where the host rests with the reason of an earlier update."""
    monkeypatch.setattr(_client, "POLL", 3600.0)
    monkeypatch.setattr("nodeagent.cli._follow.on_terminal", lambda: on_terminal)
    monkeypatch.setattr(Screen, "draw", lambda _, drawn: print(*drawn))
    daemon.status |= {"phase": "Degraded", "reason": "Reverted", "message": "worker-0 was taken back"}
    daemon.answers["Apply"] = lambda *_: update(daemon) or "d" * 64
    answer = cli("apply", config, "--wait", "--yes")
    assert "Writing" in answer.out
    assert "Degraded" not in answer.out.partition("Writing")[0]
    assert "Idle" not in answer.out


def test_wait_survives_a_restart_of_the_daemon(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    def go(*_: object) -> str:
        daemon.later((0.2, lambda: daemon.change(phase="Acting")), (0.2, daemon.stop), (1.5, daemon.start))
        daemon.later((2.5, lambda: update(daemon)))
        return "d" * 64

    daemon.answers["Apply"] = go
    answer = cli("apply", config, "--wait", "--json")
    assert (answer.code, answer.json["outcome"], answer.json["seconds"]) == (0, "done", 12.5)


def test_wait_with_nothing_to_do(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    nothing = {"reboot_avoided": False, "seconds": 0.0}
    daemon.answers["Apply"] = lambda *_: daemon.finish(0, **entry("", "worker-2", "unchanged", **nothing)) or "d" * 64
    answer = cli("apply", config, "--wait")
    assert answer.code == 0
    assert answer.out.endswith("nothing to do: worker-2 is the current config\n")


@pytest.mark.finding(
    "users: first trial of updates",
    "In a pipe, steps are at most one line a second; Ctrl-C says that the update goes on.",
)
@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGTERM, 4, "stopped while the update goes on; the host may be rebooting"),  # at each shutdown
        (signal.SIGINT, 130, "stopped while the update goes on"),  # Ctrl-C
    ],
)
def test_a_signal_ends_the_wait_with_an_answer(
    daemon: FakeDaemon, config: str, number: signal.Signals, code: int, words: str
) -> None:
    daemon.answers["Apply"] = lambda *_: daemon.change(phase="Rebooting", desired="worker-2") or "d" * 64
    process = subprocess.Popen(
        [sys.executable, "-m", "nodeagent", "apply", "--wait", config],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    timer = threading.Timer(240, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        assert "Rebooting" in process.stdout.readline()
        process.send_signal(number)
        _, err = process.communicate(timeout=240)
        assert process.returncode == code
        assert err.startswith(f"nodeagent: StillUnderWay: {words}\nhint: nodeagent status --watch")
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


def test_the_end_of_the_try_that_ran_before_the_request_is_ignored(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    daemon.change(phase="Reverting", desired="worker-2", update_id="u1")
    reverted = entry("u1", "worker-2", "reverted")

    def end() -> None:
        daemon.history.insert(0, reverted)
        daemon.finish(1, **reverted, tried_again=True)

    daemon.answers["Apply"] = lambda *_: daemon.later((0.2, end), (0.2, lambda: update(daemon))) or "d" * 64
    answer = cli("apply", config, "--wait", "--json")
    assert (answer.code, answer.json["outcome"]) == (0, "done")


def test_the_end_of_an_earlier_request_is_ignored(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    """The signal arrives right before the answer to our request, that of our update right after it."""

    async def go(*_: object) -> str:
        await daemon.finished(1, OURS, entry("u1", "worker-2", "reverted"))
        daemon.later(
            (0.3, lambda: daemon.finish(0, digest=OTHER, **entry("u3", "worker-3"))),
            (0.1, lambda: daemon.finish(0, **entry("u2", "worker-2"))),
        )
        return OURS

    daemon.answers["Apply"] = go
    answer = cli("apply", config, "--wait", "--json")
    assert (answer.code, answer.json["outcome"]) == (0, "done")


@pytest.mark.finding(
    "updates: each end has an outcome",
    "An update that another config replaces before anything was written ends `superseded` (4) with the name of that "
    "config, also over a kill, a restart and a reboot.",
)
@pytest.mark.parametrize(
    ("outcome", "message", "successor", "line"),
    [
        (
            "superseded",
            "worker-3 is desired instead; nothing was changed",
            "worker-3",
            "superseded: worker-2 is not in force: worker-3 is desired instead; nothing was changed",
        ),
        (
            "withdrawn",
            "the current config worker-1 is desired again; nothing was changed",
            "",
            "withdrawn: worker-2 is not in force: the current config worker-1 is desired again; nothing was changed",
        ),
    ],
)
def test_a_superseded_or_withdrawn_update_ends_the_wait(
    cli: Cli, daemon: FakeDaemon, config: str, outcome: str, message: str, successor: str, line: str
) -> None:
    last = entry("u2", "worker-2", outcome, reason=outcome.capitalize(), message=message, successor=successor)

    def go(*_: object) -> str:
        # The daemon goes on to another update at once, and never is at rest with ours.
        daemon.later((0.2, lambda: daemon.change(phase="Acting")), (0.0, lambda: daemon.finish(4, **last)))
        return "d" * 64

    daemon.answers["Apply"] = go
    answer = cli("apply", config, "--wait")
    assert answer.code == 4
    assert answer.out.splitlines()[-1] == line
    as_json = cli("apply", config, "--wait", "--json")
    assert (as_json.code, as_json.json["outcome"], as_json.json["successor"]) == (4, outcome, successor)


def test_an_end_during_a_restart_of_the_daemon_is_read_from_the_history(
    cli: Cli, daemon: FakeDaemon, config: str
) -> None:
    """The restart is as short as possible: between two reads of the status, and without a signal of the end."""
    last = entry("u2", "worker-2", "superseded", reason="Superseded", to_digest="d" * 64, successor="worker-3")

    def restart() -> None:
        daemon.stop()
        daemon.history.insert(0, last)
        daemon.status |= {"phase": "Acting", "desired": "worker-3", "target": "worker-3", "update_id": "u3"}
        daemon.start()

    def go(*_: object) -> str:
        daemon.later((0.2, lambda: daemon.change(phase="Leasing", update_id="u2")), (0.2, restart))
        return "d" * 64

    daemon.answers["Apply"] = go
    answer = cli("apply", config, "--wait", "--json")
    assert (answer.code, answer.json["outcome"], answer.json["successor"]) == (4, "superseded", "worker-3")


@pytest.mark.finding(
    "users: first trial of updates",
    "In a pipe, steps are at most one line a second; Ctrl-C says that the update goes on.",
)
def test_a_pipe_gets_no_line_for_each_file(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    def go(*_: object) -> str:
        last = (0.005, lambda: daemon.finish(0, **entry("u2", "worker-2")))
        daemon.later(*[(0.005, partial(write, index)) for index in range(1, 101)], last)
        return "d" * 64

    def write(index: int) -> None:
        step = {"name": f"write /etc/{index}", "index": index, "count": 110, "percent": index}
        daemon.change(phase="Writing", step=step, desired="worker-2", update_id="u2")

    daemon.answers["Apply"] = go
    answer = cli("apply", config, "--wait")
    assert answer.code == 0
    written = [line for line in answer.out.splitlines() if "Writing" in line]
    assert 1 <= len(written) <= 10, "one in a second"


NONE: frozenset[str] = frozenset()
DEGRADED = {**IDLE, "phase": "Degraded", "desired": "worker-2", "reason": "NoSpace", "message": "full"}
OURS, OTHER = "d" * 64, "e" * 64
NEWER = {"desired": "worker-3", "desired_digest": OTHER, "current_digest": "c" * 64}


@pytest.mark.parametrize(
    ("status", "history", "known", "expected"),
    [
        (IDLE | {"phase": "Acting", "update_id": "u2"}, [entry()], NONE, None),
        (IDLE | {"phase": "Leasing", "reason": "LeaseHeld"}, [], NONE, None),
        (IDLE, [entry()], NONE, Ending("done", seconds=12.5, reboot_avoided=True)),
        (IDLE, [entry()], frozenset({"u2"}), None),
        (IDLE, [entry(to="other")], NONE, None),
        (IDLE, [entry(to_digest=OTHER)], NONE, None),  # another config of the same name
        (IDLE, [entry("u3", "other"), entry("u2")], frozenset({"u1"}), Ending("done", "", "", 12.5, 0, True)),
        (IDLE | {"current": "worker-2"}, [], NONE, Ending("unchanged")),
        (IDLE | {"current": "worker-2", "current_digest": OTHER}, [], NONE, None),
        (IDLE | {"current": "worker-2", "current_digest": OURS}, [], NONE, Ending("unchanged")),
        (DEGRADED, [], NONE, None),  # the daemon reports a refusal again
        (IDLE | NEWER | {"phase": "Acting", "target": "worker-2"}, [], NONE, None),
        (
            IDLE | NEWER | {"phase": "Acting", "target": "worker-3"},
            [],
            NONE,
            Ending("superseded", "Superseded", "worker-3 is desired instead", successor="worker-3"),
        ),
        (
            IDLE | NEWER | {"current_digest": OTHER},
            [],
            NONE,
            Ending("withdrawn", "Withdrawn", "the current config worker-3 is desired again"),
        ),
    ],
)
def test_the_end_without_a_signal(
    status: dict[str, Any], history: list[dict[str, Any]], known: frozenset[str], expected: Ending | None
) -> None:
    assert ending_without_signal("worker-2", OURS, status, history, known) == expected


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (Ending("done"), 0),
        (Ending("done-after-fallback", "ActionFailed"), 0),
        (Ending("unchanged"), 0),
        (Ending("reverted", "VerifyFailed"), 1),
        (Ending("degraded", "RevertFailed"), 1),
        (Ending("degraded", "RebootBlocked"), 1),
        (Ending("refused", "Drifted"), 4),
        (Ending("refused", "Unreconcilable"), 3),
        (Ending("superseded", "Superseded"), 4),
        (Ending("withdrawn", "Withdrawn"), 4),
        (Ending("postponed", "LeaseHeld"), 4),
        (Ending("postponed", "NoSpace"), 1),
        (Ending("refused", "Drifted", code=1), 1),
    ],
)
def test_exit_codes(result: Ending, code: int) -> None:
    assert result.exit_code == code


def test_a_limit_of_the_disruption_is_checked_by_the_daemon(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    assert cli("apply", config, "--max-disruption", "reload").code == 0
    ((member, (text, options)),) = daemon.calls
    assert (member, text, options["max_disruption"].value) == ("Apply", CONFIG, "reload")
    assert cli("apply", config, "--max-disruption", "much").code == 2
    daemon.answers["Apply"] = Refused("the change needs a reboot", reason=Reason.DISRUPTION_EXCEEDED)
    answer = cli("apply", config, "--max-disruption", "reload", "--json")
    assert (answer.code, answer.error["reason"]) == (4, "DisruptionExceeded")


def test_the_words_are_those_of_the_plan() -> None:
    parser = ArgumentParser()
    _plan_inputs.add_max_disruption(parser)
    assert parser._actions[-1].choices == DISRUPTION_WORDS


PLAN = {
    "schema": "nodeagent/plan/v1",
    "from": "worker-1",
    "to": "worker-2",
    "changes": [
        {
            "domain": "file",
            "key": "/etc/a",
            "change": "modified",
            "policy": "none",
            "actions": [{"type": "Drain"}, {"type": "Reboot"}],
            "details": [
                {"what": "content", "added": 3, "removed": 0},
                {"what": "mode", "before": "0644", "after": "0600"},
            ],
        }
    ],
    "actions": [{"type": "Drain", "because": ["file:/etc/a"]}, {"type": "Reboot", "because": ["file:/etc/a"]}],
    "drain": True,
    "disruption": "reboot",
    "counts": {"added": 0, "changed": 1, "removed": 0, "total": 3},
    "removal": {"removed": 0, "total": 3, "part": False},
    "notes": ["warning: /etc/b has Windows line endings"],
    "drifted": ["file:/etc/c"],
    "drift": [
        {"entry": "file:/etc/c", "why": "has other content", "then": "kept"},
        {"entry": "unit:d.service", "why": "is disabled", "then": "overwritten"},
    ],
    "daemon": "running",
}


@pytest.mark.parametrize("words", [("plan",), ("apply", "--dry-run")], ids=["plan FILE", "apply --dry-run"])
def test_the_plan_for_this_host(
    cli: Cli, daemon: FakeDaemon, config: str, golden: Golden, words: tuple[str, ...]
) -> None:
    daemon.answers["Plan"] = json.dumps(PLAN)
    answer = cli(*words, config)
    assert (answer.code, answer.err, daemon.calls) == (0, "", [("Plan", [CONFIG, {}])])
    golden("commands", "plan FILE", answer.out)
    assert cli(*words, config, "--json").json == PLAN
    assert cli(*words, config, "--max-disruption", "reboot").code == 0
    answer = cli(*words, config, "--max-disruption", "drain", "--json")
    assert (answer.code, answer.json, answer.error["reason"]) == (4, PLAN, "DisruptionExceeded")
    assert {call for call, _ in daemon.calls} == {"Plan"}


@pytest.mark.finding(
    "users: units that exist nowhere", "With --strict, a plan with a unit that exists nowhere is an error."
)
@pytest.mark.parametrize("words", [("plan",), ("apply", "--dry-run")], ids=["plan FILE", "apply --dry-run"])
def test_a_strict_plan_rejects_units_from_nowhere(
    cli: Cli, daemon: FakeDaemon, config: str, words: tuple[str, ...]
) -> None:
    missing = [{"entry": "unit:chronnyd.service", "message": "there is no unit chronnyd.service"}]
    daemon.answers["Plan"] = json.dumps({**PLAN, "unit_warnings": missing})
    assert cli(*words, config).code == 0
    answer = cli(*words, config, "--strict", "--json")
    assert (answer.code, answer.json["unit_warnings"], answer.error["reason"]) == (2, missing, "UnitMissing")
    daemon.answers["Plan"] = json.dumps(PLAN)
    assert cli(*words, config, "--strict").code == 0
    assert cli("plan", "--from", config, "--to", config, "--strict").code == 2


def test_the_daemon_checks_strictly(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    assert cli("apply", config, "--strict").code == 0
    ((_, (_, options)),) = daemon.calls
    assert options["strict"].value is True


def test_a_plan_with_diffs(cli: Cli, daemon: FakeDaemon, config: str, golden: Golden) -> None:
    change = {**PLAN["changes"][0], "diff": "--- /etc/a\n+++ /etc/a\n@@ -1 +1 @@\n-x\x1b[2J\n+y\n"}  # type: ignore[index,dict-item]
    daemon.answers["Plan"] = json.dumps({**PLAN, "changes": [change]})
    answer = cli("plan", config, "--diff")
    ((_, (_, options)),) = daemon.calls
    assert (answer.code, options["diff"].value) == (0, True)
    golden("commands", "plan FILE --diff", answer.out)


STAGED_OS: dict[str, Any] = {
    "staged": "os-bbbb.1",
    "summary": "packages 1 upgraded, 1 added; the merge of /etc replaces /etc/os; 1.0 MB pulled",
    "counts": {"added": 1, "removed": 0, "upgraded": 201, "downgraded": 0},
    "packages": [
        {"name": "crun", "kind": "added", "before": "", "after": "1.8-1"},
        {"name": "bash\x1b", "kind": "upgraded", "before": "5.1-2", "after": "5.2-1"},
    ],
    "files": None,
    "kernel": None,
    "same_initramfs": None,
    "same_selinux_policy": None,
    "kernel_arguments": {"added": [], "removed": []},
    "merged": ["/etc/os"],
    "merged_count": 3,
    "fetched_bytes": 1_000_000,
}
UNREAD = {"packages": None, "counts": None, "merged": None, "merged_count": None}


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"staged": True, "os": STAGED_OS}, ""),
        ({"staged": True, "os": {**STAGED_OS, **UNREAD}}, " without packages"),
        ({"staged": True}, " that cannot be compared"),
        ({"staged": False}, " without an OS"),
    ],
)
def test_a_plan_that_stages(
    cli: Cli, daemon: FakeDaemon, config: str, golden: Golden, more: dict[str, Any], name: str
) -> None:
    shows_a_staged_plan(cli, daemon, config, golden, more, name)


def shows_a_staged_plan(
    cli: Cli, daemon: FakeDaemon, config: str, golden: Golden, more: dict[str, Any], name: str
) -> None:
    """Check what `plan --stage` requests and shows, against its golden text."""
    daemon.answers["Plan"] = json.dumps({**PLAN, **more})
    answer = cli("plan", config, "--stage")
    ((_, (_, options)),) = daemon.calls
    assert (answer.code, {name: option.value for name, option in options.items()}) == (0, {"stage": True})
    assert answer.err == "staging the OS; nodeagent status --watch shows the progress, Ctrl-C ends it\n"
    golden("commands", f"plan --stage{name}", answer.out[answer.out.index("staged OS") :])
    assert cli("plan", config, "--stage", "--json").json == {**PLAN, **more}


def test_a_plan_that_stages_the_desired_config(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    daemon.answers["Plan"] = json.dumps({**PLAN, "staged": True, "os": STAGED_OS})
    assert cli("plan", "--stage").code == 0
    ((_, (text, _)),) = daemon.calls
    assert text == ""
    for words in (["plan"], ["plan", "--stage", "--policy", config], ["plan", "--stage", "--from", config]):
        assert cli(*words, "--json").error["reason"] == "Usage"


def test_a_plan_that_stages_and_cannot_be_read(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    daemon.answers["Plan"] = json.dumps({**PLAN, "staged": True, "os": {"summary": "x"}})
    answer = cli("plan", config, "--stage", "--json")
    assert (answer.code, answer.error["reason"]) == (1, "UnexpectedReply")


def test_a_staging_needs_a_host_and_its_daemon(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    answer = cli("plan", "--from", config, "--to", config, "--stage", "--json")
    assert (answer.code, answer.error["reason"]) == (2, "Usage")
    daemon.stop()
    answer = cli("plan", config, "--stage", "--json")
    assert (answer.code, answer.error["reason"]) == (5, "ServiceUnknown")


@pytest.mark.parametrize(
    ("fallback", "line"),
    [
        ({"kind": "soft"}, "if an action fails: a soft reboot, then a full one\n"),
        (
            {"kind": "full", "reason": "NextRootPrepared", "why": "another\x1b system"},
            "if an action fails: a full reboot, not a soft one: NextRootPrepared: another\\x1b system\n",
        ),
        ({"kind": "full", "why": "reboot.soft is never"}, f"{FALLBACK}\n"),
        ({"kind": "kexec"}, f"{FALLBACK}\n"),
        (None, ""),
    ],
)
def test_a_plan_names_the_kind_of_its_fallback(
    cli: Cli, daemon: FakeDaemon, config: str, fallback: dict[str, str] | None, line: str
) -> None:
    """Also where the setting decides, and for a kind of a newer daemon, which has no words here."""
    daemon.answers["Plan"] = json.dumps(PLAN if fallback is None else {**PLAN, "fallback": fallback})
    answer = cli("plan", config)
    assert [found for found in answer.out.splitlines(keepends=True) if "if an action fails" in found] == [line][
        : bool(line)
    ]


@pytest.mark.parametrize(
    ("reboot", "line"),
    [
        ({"kind": "soft"}, "the reboot: a soft one; if the host is not well after it, a full one\n"),
        (
            {"kind": "soft", "saves_seconds": 143.2},
            "the reboot: a soft one, which saves about 143 s of firmware and kernel; if the host is not well after it,"
            " a full one\n",
        ),
        (
            {"kind": "full", "reason": "KernelStartNeeded", "why": "another\x1b kernel"},
            "the reboot: a full reboot, not a soft one: KernelStartNeeded: another\\x1b kernel\n",
        ),
        (
            {"kind": "full", "reason": "KernelStartNeeded", "why": "another kernel", "saves_seconds": 95.0},
            "the reboot: a full reboot, not a soft one: KernelStartNeeded: another kernel, of which firmware and kernel"
            " take about 95 s\n",
        ),
        (
            {"kind": "full", "why": "reboot.soft is not auto", "saves_seconds": 95.0},
            "the reboot: a full one, of which firmware and kernel take about 95 s\n",
        ),
        ({"kind": "undecided", "why": "later"}, "the reboot: a soft one if the new OS allows it; later\n"),
        ({"kind": "full", "why": "reboot.soft is not auto"}, ""),
        ({"kind": "kexec"}, ""),
        (None, ""),
    ],
)
def test_a_plan_names_the_kind_of_its_reboot(
    cli: Cli, daemon: FakeDaemon, config: str, reboot: dict[str, str] | None, line: str
) -> None:
    daemon.answers["Plan"] = json.dumps(PLAN if reboot is None else {**PLAN, "reboot": reboot})
    answer = cli("plan", config)
    assert [found for found in answer.out.splitlines(keepends=True) if "the reboot: " in found] == [line][: bool(line)]


def test_a_plan_that_cannot_be_read(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    daemon.answers["Plan"] = json.dumps({**PLAN, "schema": "nodeagent/plan/v9"})
    answer = cli("plan", config, "--json")
    assert (answer.code, answer.error["reason"]) == (1, "UnexpectedReply")


@pytest.mark.parametrize("words", [(), ("--from", "a"), ("x", "--from", "a"), ("x", "--policy", "p")])
def test_a_plan_has_one_file_or_two_sides(cli: Cli, daemon: FakeDaemon, words: tuple[str, ...]) -> None:
    answer = cli("plan", *words, "--json")
    assert (answer.code, answer.error["reason"], daemon.calls) == (2, "Usage", [])
