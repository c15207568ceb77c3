# SPDX-License-Identifier: Apache-2.0
"""Hooks of the admin: what they get of each event, which of them run, and what becomes of their failures.

Stand-ins for systemd-run and systemctl start the program themselves. The ring of the hosts has the real ones.
"""

from __future__ import annotations

import asyncio
import http.server
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import AgentError, Terminal
from nodeagent.features.hooks import programs
from nodeagent.features.hooks.decide import MAX_MESSAGE, HookEvent, notice_of
from nodeagent.features.hooks.programs import MAX_HOOKS, MAX_NOTICES, Hooks
from nodeagent.features.hooks.reasons import HookReason
from nodeagent.host import programs as host_programs
from nodeagent.host.clock import SystemClock
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.update.ports.events import (
    DaemonStarted,
    Event,
    HostDegraded,
    PhaseEntered,
    UpdateContext,
    UpdateFinished,
    UpdateStarted,
    UpdateWaiting,
)
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.states import Phase
from tests.support.needs import needs
from tests.support.transient import SYSTEMCTL, SYSTEMD_RUN

PAGE = Path(__file__).parents[3] / "docs/usage/hooks.md"
ABOUT = UpdateContext(Phase.LEASING, "u1", "worker-1", "worker-2")
WAITING = UpdateWaiting(ABOUT, "outside of the window", "WindowClosed")
BEGUN = UpdateStarted(ABOUT, "Restart kubelet.service", 2)
DEGRADED = HostDegraded(ABOUT, "the revert failed", "RevertFailed")


def finished(outcome: str = "done", update_id: str = "u1") -> UpdateFinished:
    times = ("2026-11-28T10:00:00+00:00", "2026-11-28T10:00:04+00:00")
    entry = HistoryEntry(update_id, "worker-1", "worker-2", *times, outcome, "restart", seconds=4.21)
    return UpdateFinished(entry, 0)


@dataclass
class Reported:
    """The problems that an admin sees, by topic."""

    problems: dict[str, AgentError] = field(default_factory=dict)

    def problem(self, topic: str, error: AgentError) -> None:
        self.problems[topic] = error

    def solved(self, topic: str, message: str) -> None:
        self.problems.pop(topic, None)

    def emit(self, event: Event) -> None:
        raise NotImplementedError

    def bug(self, words: str, error: Exception) -> None:
        raise NotImplementedError


@dataclass
class FakeEnds:
    """The history, newest first, and the notes of the store."""

    entries: list[HistoryEntry] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    writes: int = 0
    kill_at: int = 0
    full: bool = False

    async def history(self, limit: int) -> list[HistoryEntry]:
        return self.entries[:limit]

    async def note(self, key: str) -> str:
        return self.notes.get(key, "")

    async def keep_note(self, key: str, text: str) -> None:
        self.writes += 1
        if self.writes == self.kill_at:
            raise Killed
        if self.full:
            raise Terminal("no space", reason=Reason.NO_SPACE)
        self.notes[key] = text


class Killed(BaseException):
    pass


@dataclass
class Admin:
    """A host with hooks below ``root``. Each that `keeps` writes what it gets to ``kept``."""

    tmp: Path
    timeout: float = 60.0
    reported: Reported = field(default_factory=Reported)
    ends: FakeEnds = field(default_factory=lambda: FakeEnds())

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """The agent starts."""
        self.hooks = Hooks(self.timeout, self.reported, SystemClock(), self.ends, self.tmp / "hooks")

    def add(self, event: str, name: str = "a", script: str = 'cat >>"$KEPT"', *, mode: int = 0o755) -> Path:
        path = self.tmp / "hooks" / f"{event}.d" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in (path.parent, path.parent.parent):
            parent.chmod(0o755)
        path.write_text(f"#!/bin/sh\nKEPT={self.tmp}/kept\n{script}\n")
        path.chmod(mode)
        return path

    @property
    def kept(self) -> list[dict[str, Any]]:
        path = self.tmp / "kept"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def tell(self, *events: Event) -> None:
        """Report events, and wait until each hook has run."""
        async with asyncio.timeout(60):
            for event in events:
                self.hooks.sink(event, Status())
            running = asyncio.create_task(self.hooks.run())
            await self.hooks.idle()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def problem(self) -> str:
        (error,) = self.reported.problems.values()
        return f"{error.reason}: {error.message}".replace(str(self.tmp), "")


@pytest.fixture
def admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Admin:
    monkeypatch.setitem(host_programs.ENVIRONMENT, "PATH", f"{tmp_path}/bin:{host_programs.ENVIRONMENT['PATH']}")
    (tmp_path / "bin").mkdir()
    for name, script in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)):
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    return Admin(tmp_path)


def keys_of_the_page() -> set[str]:
    rows = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", PAGE.read_text(), re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`([a-z_]+)`", row)}


async def test_each_event_has_the_keys_of_the_page(admin: Admin) -> None:
    for event in HookEvent:
        admin.add(event)
    await admin.tell(WAITING, BEGUN, DEGRADED, finished("degraded"))
    waiting, begun, degraded, ended = admin.kept
    same = {"schema", "event", "time", "host", "update_id", "from", "to", "reason", "message"}
    assert [each["event"] for each in admin.kept] == ["waiting", "begun", "degraded", "finished"]
    assert waiting.keys() == degraded.keys() == same
    assert begun.keys() == same | {"actions"}
    assert ended.keys() == same | {"outcome", "disruption", "reboots", "seconds"}
    assert ended.keys() | begun.keys() == keys_of_the_page()
    (example,) = re.findall(r"^    ({.*})$", PAGE.read_text(), re.MULTILINE)
    assert json.loads(example).keys() == ended.keys()
    assert (waiting["update_id"], waiting["from"], waiting["to"]) == ("u1", "worker-1", "worker-2")
    assert (waiting["reason"], waiting["message"]) == ("WindowClosed", "outside of the window")
    assert (ended["outcome"], ended["seconds"], begun["actions"]) == ("degraded", 4.2, "Restart kubelet.service")
    assert admin.reported.problems == {}


def test_no_hook_gets_other_events() -> None:
    assert notice_of(DaemonStarted("1.0")) is None
    assert notice_of(PhaseEntered(ABOUT)) is None
    # Nothing was begun, and the same config is tried again.
    assert notice_of(finished("unchanged")) is None
    assert notice_of(finished("postponed")) is None
    assert notice_of(finished("refused")) is not None


async def test_a_wait_is_one_event_for_each_reason(admin: Admin) -> None:
    admin.add("waiting")
    other = UpdateWaiting(ABOUT, "2 pods are left", "DrainTimeout")
    counted = UpdateWaiting(ABOUT, "1 pod is left", "DrainTimeout")
    quiet = UpdateWaiting(ABOUT, "1 pod is left", "SlotsTaken", routine=True)
    await admin.tell(WAITING, WAITING, other, counted, quiet, BEGUN, WAITING)
    assert [each["reason"] for each in admin.kept] == ["WindowClosed", "DrainTimeout", "WindowClosed"]


async def test_hooks_run_in_the_order_of_names_in_units_of_their_own(admin: Admin) -> None:
    for name in ("20-b", "10-a", ".hidden", "10-a~"):
        admin.add("begun", name, 'echo "{\\"name\\": \\"${0##*/} $NODEAGENT_EVENT $NODEAGENT_CONFIG\\"}" >>"$KEPT"')
    await admin.tell(BEGUN)
    assert [each["name"] for each in admin.kept] == ["10-a begun worker-2", "20-b begun worker-2"]
    calls = (admin.tmp / "bin/calls").read_text().splitlines()
    assert calls[0] == "systemctl stop --quiet nodeagent-hook-begun-10-a.service", "of one that a killed agent left"
    assert "--unit=nodeagent-hook-begun-10-a.service" in calls[1]


async def test_a_failure_is_a_problem_until_hooks_end_without_one(admin: Admin) -> None:
    admin.add("begun", script="echo token=abcdef >&2; exit 3")
    admin.add("begun", "b")
    await admin.tell(BEGUN)
    assert admin.problem() == "HookFailed: the hook begun/a failed with exit status 3: token=[redacted]"
    assert len(admin.kept) == 1, "the others run"
    await admin.tell(WAITING)
    assert admin.reported.problems, "no hook ran"
    admin.add("begun")
    await admin.tell(BEGUN)
    assert admin.reported.problems == {}


async def test_a_hook_that_does_not_end_is_killed(admin: Admin) -> None:
    admin.hooks.use(1.0)
    admin.add("begun", script="exec sleep 600")
    await admin.tell(BEGUN)
    assert admin.problem() == "HookFailed: the hook begun/a did not end within 1 s"
    assert (admin.tmp / "bin/calls").read_text().splitlines()[-1].startswith("systemctl stop")


async def test_a_hook_that_reads_nothing_is_no_failure(admin: Admin) -> None:
    admin.add("begun", script="exec true")
    await admin.tell(UpdateStarted(ABOUT, "Restart a.service, " * 100, 1))
    assert admin.reported.problems == {}


@pytest.mark.parametrize(
    ("name", "mode", "why"),
    [
        ("a", 0o775, "/hooks/begun.d/a is writable for users other than root"),
        ("a", 0o644, "/hooks/begun.d/a is not executable"),
        ("a b", 0o755, "/hooks/begun.d/a b has a name with other characters"),
    ],
)
async def test_an_unsafe_hook_does_not_run(admin: Admin, name: str, mode: int, why: str) -> None:
    admin.add("begun", "0")
    admin.add("begun", name, mode=mode)
    await admin.tell(BEGUN)
    assert admin.problem().startswith(f"{HookReason.HOOK_UNSAFE}: {why}")
    assert admin.kept == []


async def test_links_stay_in_the_directories_of_hooks(admin: Admin) -> None:
    admin.add("finished")
    link = admin.add("begun", "b").with_name("a")
    link.symlink_to("../finished.d/a")
    await admin.tell(BEGUN)
    assert len(admin.kept) == 2
    link.unlink()
    link.symlink_to("/bin/true")
    await admin.tell(BEGUN)
    assert "a is a link to a file outside of its directory" in admin.problem()
    link.unlink()
    (admin.tmp / "hooks/finished.d").chmod(0o777)
    await admin.tell(BEGUN)
    assert "finished.d is writable" in admin.problem()


async def test_there_is_a_bound_on_hooks_notices_and_messages(admin: Admin) -> None:
    for number in range(MAX_HOOKS):
        admin.add("begun", f"n{number}")
    for event in (UpdateWaiting(ABOUT, "x" * 100_000, "WindowClosed"), UpdateStarted(ABOUT, "x" * 100_000, 1)):
        notice = notice_of(event)
        assert notice is not None
        assert len(notice.text("host", "now")) < MAX_MESSAGE + 1000
    admin.add("begun")
    await admin.tell(BEGUN)
    assert f"has {MAX_HOOKS + 1} hooks, more than {MAX_HOOKS}" in admin.problem()
    for _ in range(MAX_NOTICES + 10):
        admin.hooks.sink(BEGUN, Status())
    assert admin.hooks._notices.qsize() == MAX_NOTICES


async def test_what_could_not_be_started_is_started_again(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.add("begun")
    monkeypatch.setattr(programs, "PAUSES", (0.0, 0.0))
    spawn, lacks = asyncio.create_subprocess_exec, [OSError(11, "no process"), OSError(12, "no memory")]

    async def scarce(program: str, *arguments: Any, **options: Any) -> Any:
        if program == "systemd-run" and lacks:
            raise lacks.pop()
        return await spawn(program, *arguments, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", scarce)
    await admin.tell(BEGUN)
    assert (len(admin.kept), admin.reported.problems) == (1, {})
    lacks += [OSError(11, "no process")] * 3
    await admin.tell(BEGUN)
    assert admin.problem().startswith("HookFailed: the hook begun/a: systemd-run cannot be started")


def test_a_host_without_hooks(admin: Admin) -> None:
    asyncio.run(admin.tell(BEGUN, finished()))
    assert admin.reported.problems == {}


@needs("curl")
async def test_the_webhook_of_the_page(admin: Admin, receiver: tuple[str, list[dict[str, Any]]]) -> None:
    address, received = receiver
    (admin.tmp / "webhook-url").write_text(address)
    shebang, *command = re.findall(r"^    (#!/bin/sh|exec curl .*)$", PAGE.read_text(), re.MULTILINE)
    assert shebang == "#!/bin/sh"
    script = "\n".join(command).replace("/etc/nodeagent/webhook-url", f"{admin.tmp}/webhook-url")
    admin.add("finished", script=script)
    await admin.tell(finished())
    assert [each["outcome"] for each in received] == ["done"]
    assert admin.reported.problems == {}
    (admin.tmp / "webhook-url").write_text(f"{address}missing")
    await admin.tell(finished())
    assert "the hook finished/a failed with exit status 22" in admin.problem()


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server, and the objects that it was sent."""
    received: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            found = self.path == "/" and self.headers["Content-Type"] == "application/json"
            if found:
                received.append(json.loads(text))
            self.send_response(200 if found else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}/", received
        serving.shutdown()
        thread.join()


def ended(admin: Admin, *update_ids: str) -> None:
    """Updates end, oldest first, and no hook has run."""
    admin.ends.entries[:0] = [finished(update_id=update_id).entry for update_id in reversed(update_ids)]


async def test_the_first_start_knows_of_no_end(admin: Admin) -> None:
    admin.add("finished")
    ended(admin, "u1", "u2")
    await admin.hooks.load()
    await admin.tell()
    assert admin.kept == []


async def test_ends_that_a_killed_agent_did_not_deliver_follow_the_next_start(admin: Admin) -> None:
    admin.add("finished")
    ended(admin, "u1")
    await admin.hooks.load()
    ended(admin, "u2", "u3")
    admin.start()
    await admin.hooks.load()
    await admin.tell()
    assert [each["update_id"] for each in admin.kept] == ["u2", "u3"]
    assert admin.kept[0]["time"] == "2026-11-28T10:00:04+00:00", "that of the event"
    admin.start()
    await admin.hooks.load()
    await admin.tell()
    assert len(admin.kept) == 2, "once"


async def test_a_hook_that_ends_the_agent_runs_twice_at_most(admin: Admin) -> None:
    admin.add("finished", script='cat >>"$KEPT"; exec sleep 600')
    await admin.hooks.load()
    ended(admin, "u1")
    for runs in (1, 2):
        admin.start()
        await admin.hooks.load()
        running = asyncio.create_task(admin.hooks.run())
        async with asyncio.timeout(60):
            while len(admin.kept) < runs:
                await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    admin.start()
    await admin.hooks.load()
    assert admin.hooks._notices.empty()


@pytest.mark.parametrize("kill_at", [1, 2, 3, 4])
async def test_killed_at_each_write_of_the_note(admin: Admin, kill_at: int) -> None:
    admin.add("finished")
    await admin.hooks.load()
    ended(admin, "u1", "u2")
    admin.start()
    await admin.hooks.load()
    admin.ends.writes, admin.ends.kill_at = 0, kill_at
    running = asyncio.create_task(admin.hooks.run())
    async with asyncio.timeout(60):
        with pytest.raises(Killed):
            await running
    admin.ends.kill_at = 0
    admin.start()
    await admin.hooks.load()
    await admin.tell()
    got = [each["update_id"] for each in admin.kept]
    assert list(dict.fromkeys(got)) == ["u1", "u2"], "each, in order"
    assert len(got) <= 3


async def test_a_store_that_takes_no_note_keeps_no_hook_from_running(admin: Admin) -> None:
    admin.add("finished")
    admin.ends.full = True
    await admin.hooks.load()
    await admin.tell(finished())
    assert len(admin.kept) == 1
    assert admin.reported.problems == {}


@pytest.mark.parametrize("note", ["", "{", "[]", '{"tries": 1}'])
async def test_a_damaged_note_begins_again(admin: Admin, note: str) -> None:
    admin.add("finished")
    admin.ends.notes["hooks"] = note
    ended(admin, "u1")
    await admin.hooks.load()
    await admin.tell()
    assert admin.kept == []
