from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli import progress
from nodeagent.cli.progress import Ending, ending
from nodeagent.errors import InvalidInput, Problem, Refused, Terminal, Unreconcilable
from tests.cli.daemon.conftest import Cli
from tests.cli.daemon.fake_daemon import IDLE, FakeDaemon, entry

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


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", 1.0)


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
        (Terminal("no space", reason="NoSpace"), 1),
        (InvalidInput("no", problems=[Problem("spec", "is bad")]), 2),
        (Unreconcilable("no", hint="install anew"), 3),
        (Refused("node-b has it", reason="LeaseHeld"), 4),
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


def test_no_daemon(cli: Cli, bus_address: str, config: str) -> None:
    answer = cli("apply", config)
    assert answer.code == 5
    assert answer.err.startswith("nodeagent: ServiceUnknown: the daemon does not run\nhint: systemctl status nodeagent")


def update(daemon: FakeDaemon, outcome: str = "done", **more: Any) -> None:
    """What a daemon does after Apply: some phases, then rest."""
    step = {"name": "reload crio.service", "index": 1, "count": 2, "percent": 50}

    def rest() -> None:
        daemon.history.insert(0, entry("u2", "worker-2", outcome, **more))
        phase = "Idle" if outcome.startswith("done") else "Degraded"
        daemon.change(phase=phase, step=None, current="worker-2", desired="worker-2", reason=more.get("reason", ""))

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
                "what now: systemctl list-jobs and --failed show what does not come up; "
                "raise verify.timeout if it is slow",
            ],
        ),
    ],
)
def test_wait_shows_the_way_and_the_end(
    cli: Cli, daemon: FakeDaemon, config: str, outcome: str, more: dict[str, Any], code: int, last: list[str]
) -> None:
    daemon.history = [entry("u1", "worker-2")]  # an older update to a config of the same name is not ours
    daemon.answers["Apply"] = lambda *_: update(daemon, outcome, **more) or "d" * 64
    answer = cli("apply", config, "--wait")
    lines = [line.partition("  ")[2] or line for line in answer.out.splitlines()]
    assert "Writing" in lines
    assert "Acting: 1/2 reload crio.service" in lines
    assert lines[-len(last) :] == last
    assert answer.code == code


def test_wait_survives_a_restart_of_the_daemon(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    def go(*_: object) -> str:
        daemon.later((0.2, lambda: daemon.change(phase="Acting")), (0.2, daemon.stop), (1.5, daemon.start))
        daemon.later((2.5, lambda: update(daemon)))
        return "d" * 64

    daemon.answers["Apply"] = go
    answer = cli("apply", config, "--wait", "--json")
    assert (answer.code, answer.json["outcome"], answer.json["seconds"]) == (0, "done", 12.5)


def test_wait_with_nothing_to_do(cli: Cli, daemon: FakeDaemon, config: str) -> None:
    daemon.status["current"] = daemon.status["desired"] = "worker-2"
    answer = cli("apply", config, "--wait")
    assert answer.code == 0
    assert answer.out.endswith("nothing to do: worker-2 is the current config\n")


def test_a_reboot_of_the_host_ends_the_waiting_with_an_answer(daemon: FakeDaemon, config: str) -> None:
    """systemd sends SIGTERM to everybody at a shutdown."""
    daemon.answers["Apply"] = lambda *_: daemon.change(phase="Rebooting", desired="worker-2") or "d" * 64
    process = subprocess.Popen(
        [sys.executable, "-m", "nodeagent", "apply", "--wait", config],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    timer = threading.Timer(20, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        assert "Rebooting" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=10)
        assert process.returncode == 4
        assert err.startswith("nodeagent: StillUnderWay: stopped while the update goes on; the host may be rebooting\n")
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


NONE: frozenset[str] = frozenset()
DEGRADED = {**IDLE, "phase": "Degraded", "desired": "worker-2", "reason": "NoSpace", "message": "full"}


@pytest.mark.parametrize(
    ("status", "history", "known", "quiet", "expected"),
    [
        (IDLE | {"phase": "Acting"}, [entry()], NONE, 99, None),
        (IDLE | {"phase": "Leasing", "reason": "LeaseHeld"}, [], NONE, 99, None),
        (IDLE, [entry()], NONE, 0, Ending("done", seconds=12.5, reboot_avoided=True)),
        (IDLE, [entry()], frozenset({"u2"}), 0, None),
        (IDLE, [entry(to="other")], NONE, 99, None),
        (IDLE, [entry("u3", "other"), entry("u2")], frozenset({"u1"}), 0, Ending("done", "", "", 12.5, 0, True)),
        (IDLE | {"current": "worker-2"}, [], NONE, 0.9, None),
        (IDLE | {"current": "worker-2"}, [], NONE, 1.0, Ending("unchanged")),
        (DEGRADED, [], NONE, 0, None),
        (DEGRADED, [], NONE, 1.9, None),  # it may look again
        (DEGRADED, [], NONE, 2.0, Ending("degraded", "NoSpace", "full")),
        (DEGRADED | {"desired": "worker-1"}, [], NONE, 9.9, None),  # that is about another one
        (DEGRADED | {"desired": "worker-1"}, [], NONE, 10.0, Ending("degraded", "NoSpace", "full")),
        (DEGRADED | {"reason": "Drifted"}, [], NONE, 2.0, Ending("refused", "Drifted", "full")),
    ],
)
def test_when_it_is_over(
    status: dict[str, Any],
    history: list[dict[str, Any]],
    known: frozenset[str],
    quiet: float,
    expected: Ending | None,
) -> None:
    assert ending("worker-2", status, history, known, quiet) == expected


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
    ],
)
def test_exit_codes(result: Ending, code: int) -> None:
    assert result.exit_code == code
