# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli._render import BAD, WARN
from nodeagent.cli.status import _style, last_lines, view
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.errors import Terminal
from nodeagent.host.store.store import SqliteStore
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.record import Record
from nodeagent.update.states import Apply, Phase
from tests.cli.daemon.conftest import NOW, Cli
from tests.cli.daemon.fake_daemon import IDLE, FakeDaemon, entry
from tests.support.golden import Golden

BUSY = {
    "phase": "Acting",
    "desired": "worker-2",
    "update_id": "u2",
    "step": {"name": "restart crio.service", "index": 3, "count": 9, "percent": 40},
    "lease": {
        "backend": "local",
        "holder": "node-a",
        "operation": "u2",
        "reason": "update to worker-2",
        "since": "2026-11-21T03:11:30.000Z",
        "expires": "",
    },
}


def test_json_is_the_status_of_the_daemon(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.status |= BUSY
    answer = cli("status", "--json")
    assert answer.code == 0
    assert answer.json == {**IDLE, **BUSY}


def test_idle(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    golden("status", "idle", cli("status").out)


def test_in_an_update(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.status |= BUSY
    golden("status", "in an update", cli("status").out)


def test_an_update_to_a_config_that_is_no_longer_desired(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.status |= {**BUSY, "desired": "worker-1", "target": "worker-2"}
    lines = cli("status").out.splitlines()
    assert [
        line.split("  ")[-1].strip() for line in lines if line.startswith(("current", "desired", "updating to"))
    ] == [
        "worker-1",
        "worker-1",
        "worker-2",
    ]


def test_degraded_shows_the_remedy_and_exits_with_1(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.status |= {"phase": "Degraded", "reason": "UnitUnhealthy", "message": "crio.service did\x1b[2J not stay up"}
    answer = cli("status")
    assert answer.code == 1
    assert "\x1b" not in answer.out, "text from outside cannot control the terminal"
    assert "#unitunhealthy" in answer.out
    golden("status", "degraded", answer.out)


DEPLOYMENTS = {
    "deployments": [
        {"checksum": "ab" * 32, "version": "42.1", "booted": True, "staged": False, "locked": None},
        {"checksum": "cd" * 32, "version": "42.2", "booted": False, "staged": True, "locked": True},
    ],
    "os_changes": {"summary": "packages 2 added, 14 upgraded; kernel 6.1 -> 6.2; kernel arguments same"},
    "lease": {"backend": "kubernetes", "holder": "nhc", "reason": "", "expires": "2026-11-21T04:00:00Z"},
}


def test_everything_that_the_contract_allows(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.status |= DEPLOYMENTS
    golden("status", "deployments", cli("status").out)


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    path = tmp_path / "state/state.db"
    text = b"kind: MachineConfig"
    digest = hashlib.sha256(text).hexdigest()
    since = "2026-11-21T03:00:00.000Z"
    async with SqliteStore(path) as store:
        await store.put_config(ConfigSource("worker-1", digest, text))
        await store.promote(Record(phase=Phase.IDLE, since=since), digest, HistoryEntry(**entry("u1", "worker-1")))
        await store.save(Record(Phase.ACTING, Apply(), since=since, update_id="u2", to_name="worker-2", boot_id="b1"))
        await store.take_lease(Holder("node-a", "maintenance", "disk swap", "2026-11-21T02:00:00.000Z"))
    return path


@pytest.mark.finding(
    "users: the status without a daemon", "Without a daemon, the status says that first and exits with 5."
)
def test_without_a_daemon_the_store_is_read(cli: Cli, bus_address: str, store: Path, golden: Golden) -> None:
    before = store.read_bytes()
    status = cli("status", "--json")
    assert status.code == 5
    assert status.json["daemon"] == "stopped"
    assert (status.json["phase"], status.json["current"], status.json["desired"]) == ("Acting", "worker-1", "worker-2")
    shown = cli("status")
    assert (shown.code, shown.out.splitlines()[0].split()[0]) == (5, "daemon")
    golden("status", "the daemon is stopped", shown.out)
    assert cli("history", "--json").json["totals"] == {"updates": 1, "reboots": 0, "reboots_avoided": 1}
    assert cli("lease", "show", "--json").json["lease"]["reason"] == "disk swap"
    assert store.read_bytes() == before


def test_without_a_bus_either(cli: Cli, monkeypatch: pytest.MonkeyPatch, store: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    assert cli("status", "--json").json["daemon"] == "stopped"


def test_invalid_settings_do_not_hide_the_status(
    cli: Cli, bus_address: str, no_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The machine that runs the tests may have a store there.
    def no_store(path: Path) -> None:
        raise Terminal(f"there is no store at {path}", reason=Reason.NO_STORE)

    monkeypatch.setattr("nodeagent.host.store.opening.read_only_open", no_store)
    (no_settings / "20-bad.yaml").write_text("nonsense: true")
    answer = cli("status", "--json")
    assert answer.code == 5
    assert "/var/lib/nodeagent/state.db" in answer.error["message"]


def test_neither_daemon_nor_store(cli: Cli, bus_address: str, tmp_path: Path) -> None:
    answer = cli("status")
    assert answer.code == 5
    assert answer.err.splitlines() == [
        f"nodeagent: ServiceUnknown: the daemon does not run, and there is no store at {tmp_path}/state/state.db",
        "hint: systemctl start nodeagent; journalctl -u nodeagent shows why it ended",
    ]


@pytest.mark.finding("users: messages that name no way out", "Where nodeagent is not installed, the hint says so.")
def test_neither_bus_nor_store(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    answer = cli("status")
    assert answer.code == 5
    assert answer.err.splitlines()[1].startswith("hint: run it on a host where nodeagent is installed")


def test_a_damaged_store_is_reported(cli: Cli, bus_address: str, store: Path) -> None:
    store.write_bytes(store.read_bytes()[:5000])
    answer = cli("status", "--json")
    assert (answer.code, answer.error["reason"]) == (1, "StoreCorrupt")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT interrupt: a shell starts background jobs, and all of their children, with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_watch_follows_and_survives_a_restart_of_the_daemon(daemon: FakeDaemon) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "nodeagent", "status", "--watch", "--json"], stdout=subprocess.PIPE, text=True
    )
    timer = threading.Timer(240, process.kill)
    timer.start()
    assert process.stdout is not None
    lines = (json.loads(line) for line in process.stdout)
    try:
        assert next(lines) == IDLE
        daemon.change(phase="Writing", update_id="u2")
        assert next(lines)["phase"] == "Writing"
        daemon.change(phase="Acting", step={"name": "reload a.service", "index": 1, "count": 2, "percent": 50})
        assert next(lines)["step"]["percent"] == 50
        daemon.stop()
        gone = next(lines)
        assert (gone["daemon"], gone["phase"]) == ("stopped", "Acting")
        daemon.status = dict(IDLE)
        daemon.start()
        assert next(lines) == IDLE
        process.send_signal(signal.SIGINT)
        assert process.wait(240) == 0
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("interruptible")
def test_watch_on_a_terminal_draws(daemon: FakeDaemon) -> None:
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nodeagent", "status", "--watch"],
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(slave)
    seen = b""
    timer = threading.Timer(240, process.kill)
    timer.start()
    try:
        while b"worker-1" not in seen:
            seen += os.read(master, 4096)
        daemon.change(**BUSY)
        while b"restart crio.service" not in seen:
            seen += os.read(master, 4096)
        assert "█".encode() in seen
        process.send_signal(signal.SIGINT)
        while True:
            try:
                if not os.read(master, 4096):
                    break
            except OSError:
                break
        assert process.wait(240) == 0
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        os.close(master)


HEAVY = ("nodeagent.agent", "nodeagent.cli._offline", "nodeagent.kube", "nodeagent.settings", "kubernetes", "structlog")


def test_status_imports_neither_the_daemon_nor_the_store(daemon: FakeDaemon) -> None:
    code = f"""
import sys
from nodeagent.cli.main import main
assert main(["status", "--json"]) == 0
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert done.stderr.strip() == "[]"


# What a status of the store does not need: the daemon, the domains and the cluster.
NOT_FOR_THE_STORE = ("nodeagent.agent", "nodeagent.domains", "nodeagent.kube", "kubernetes", "structlog")


def test_the_status_of_the_store_does_not_import_the_daemon(
    monkeypatch: pytest.MonkeyPatch, store: Path, no_settings: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    code = f"""
import sys
from nodeagent.settings.load import load
load.__defaults__ = ((sys.argv[1],),)
from nodeagent.cli.main import main
assert main(["status", "--json"]) == 5
print([name for name in {NOT_FOR_THE_STORE!r} if name in sys.modules], file=sys.stderr)
"""
    words = [sys.executable, "-c", code, str(no_settings)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=True)
    assert json.loads(done.stdout)["daemon"] == "stopped"
    assert done.stderr.strip() == "[]"


REVERTED = {
    "phase": "Degraded",
    "reason": "Reverted",
    "message": "the host runs worker-1 again; worker-2 was taken back because of: a.service failed (exit-code)",
    "desired": "worker-2",
    "failed_unit": {"name": "a.service", "at": "2026-11-21T03:10:00.000Z"},
}


def test_a_reverted_host_is_not_red(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.status |= REVERTED
    answer = cli("status")
    assert answer.code == 1
    golden("status", "reverted", answer.out)
    assert _style("Degraded", "Reverted") == WARN
    assert _style("Degraded", "VerifyLate") == BAD


def test_what_now_names_the_unit_and_shows_its_last_lines() -> None:
    status = {**IDLE, **REVERTED, "reason": "UnitUnhealthy"}
    lines = view(status, NOW, log=["cannot open /etc/a", "exiting"])
    (at,) = [number for number, line in enumerate(lines) if line.startswith("unit ")]
    assert lines[at].endswith("a.service, 03:10:00; its journal until then:")
    assert [line.strip() for line in lines[at + 1 : at + 3]] == ["cannot open /etc/a", "exiting"]
    assert any("journalctl -u a.service shows why" in line for line in lines)


def journal_of(directory: Path, monkeypatch: pytest.MonkeyPatch, *entries: dict[str, Any]) -> None:
    """A stand-in for journalctl."""
    (directory / "entries").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    program = directory / "journalctl"
    program.write_text(f'#!/bin/sh\necho "$@" > {directory}/args\ncat {directory}/entries\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def line(seconds: float, message: Any, invocation: str, key: str = "_SYSTEMD_INVOCATION_ID") -> dict[str, Any]:
    """An entry of a journal so many seconds after the failure."""
    return {"__REALTIME_TIMESTAMP": str(int((FAILED_AT + seconds) * 1e6)), "MESSAGE": message, key: invocation}


FAILED_AT = 1795230600
FAILED: dict[str, Any] = {"name": "a.service", "at": "2026-11-21T03:10:00.000Z"}


def test_last_lines_of_a_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments, and no secret and no control character of the output."""
    red = line(-1, [27, *b"[31mred"], "a")
    journal_of(tmp_path, monkeypatch, line(-2, "password=hunter2", "a"), red, line(-1, None, "a"), {})
    assert last_lines(FAILED) == ["password=[redacted]", "\\x1b[31mred"]
    args = (tmp_path / "args").read_text().split()
    assert "--unit=a.service" in args
    assert "--until=@1795230601.000" in args
    assert last_lines({**FAILED, "at": ""}) == last_lines(FAILED), "as older versions recorded it"
    assert last_lines(None) == []
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert last_lines(FAILED) == []


@pytest.mark.finding(
    "commands: journal of a failed unit", "`status` shows its lines until the failure, and none of the start after it."
)
def test_last_lines_without_those_of_the_revert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = line(0.2, "a.service: Failed with result 'exit-code'", "bad", "INVOCATION_ID")
    again = [line(0.3, "Started a.service", "good", "INVOCATION_ID"), line(0.4, "ready", "good")]
    journal_of(tmp_path, monkeypatch, line(-1, "cannot open /etc/a", "bad"), line(0.1, "bye", "bad"), ended, *again)
    assert last_lines(FAILED) == ["cannot open /etc/a", "bye", "a.service: Failed with result 'exit-code'"]


def test_times_of_messages_are_local(cli: Cli, daemon: FakeDaemon) -> None:
    until = "the reboot waits until 2026-11-21T04:00:00Z for backup; then it is overridden"
    daemon.status |= {"phase": "Rebooting", "reason": "RebootBlocked", "message": until}
    assert "the reboot waits until 04:00:00 UTC for backup" in cli("status").out
    assert cli("status", "--json").json["message"] == until
