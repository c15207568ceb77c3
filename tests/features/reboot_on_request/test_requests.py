# SPDX-License-Identifier: Apache-2.0
"""Requests of operators and of files: in the store before they take effect, and read again after a kill."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeagent import typed
from nodeagent.errors import AgentError, Cause, Terminal
from nodeagent.features.reboot_on_request import requests as module
from nodeagent.features.reboot_on_request.decide import (
    NOTE,
    RebootRequestChanged,
    RebootRequiredChanged,
    RequestSource,
    from_text,
)
from nodeagent.features.reboot_on_request.reasons import RebootRequestReason
from nodeagent.features.reboot_on_request.requests import REQUIRED_TOPIC, TOPIC, KeptRequests
from nodeagent.features.reboot_on_request.settings import RebootRequestSettings
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import Event

ONE, TWO = "kernel-1", "kernel-2"
FILE = "/run/nodeagent/reboot"


@dataclass
class Notes:
    texts: dict[str, str] = field(default_factory=dict)
    broken: bool = False

    async def note(self, key: str) -> str:
        return self.texts.get(key, "")

    async def keep_note(self, key: str, text: str) -> None:
        if self.broken:
            raise Terminal("the disk is full")
        self.texts[key] = text


@dataclass
class Reported:
    events: list[Event] = field(default_factory=list)
    problems: dict[str, AgentError] = field(default_factory=dict)

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def bug(self, words: str, error: Exception) -> None:
        raise AssertionError(words) from error

    def problem(self, topic: str, error: AgentError) -> None:
        self.problems[topic] = error

    def solved(self, topic: str, _message: str) -> None:
        self.problems.pop(topic, None)


@dataclass
class Clock:
    time: str = "2026-01-01T00:00:00.000Z"

    def now(self) -> str:
        return self.time

    def monotonic(self) -> float:
        return 0.0


@dataclass
class World:
    """A host whose /run is a directory of the test."""

    root: Path
    notes: Notes = field(default_factory=Notes)
    clock: Clock = field(default_factory=Clock)
    reported: Reported = field(default_factory=Reported)
    changes: list[str] = field(default_factory=list)

    async def start(self, boot: str = ONE, **settings: object) -> KeptRequests:
        started = KeptRequests(
            self.notes,
            self.reported,
            self.clock,
            boot,
            settings=RebootRequestSettings(**settings),  # type: ignore[arg-type]
            on_change=lambda: self.changes.append(boot),
            root=str(self.root),
        )
        await started.load()
        return started

    def file(self, text: str = "", path: str = FILE) -> Path:
        place = self.root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o644)
        return place


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "run/nodeagent").mkdir(parents=True)
    return World(tmp_path)


async def test_a_request_outlives_the_process_and_not_the_boot(world: World) -> None:
    requests = await world.start()
    held = await requests.request(RequestSource.OPERATOR, "root", "a new kernel", at_once=True)
    assert world.changes == [ONE]
    again = await world.start()
    pending = again.pending()
    assert pending is not None
    assert (pending.id, pending.at_once, pending.words) == (held.id, True, "reboot requested by root: a new kernel")
    after = await world.start(TWO)
    assert after.pending() is None
    assert from_text(world.notes.texts[NOTE]).pending is None
    (answered,) = [e for e in world.reported.events if isinstance(e, RebootRequestChanged) and "rebooted" in e.message]
    assert answered.request is None


async def test_a_store_that_takes_nothing_takes_no_request(world: World) -> None:
    requests = await world.start()
    world.notes.broken = True
    with pytest.raises(Terminal):
        await requests.request(RequestSource.OPERATOR, "root")
    assert requests.pending() is None
    assert world.changes == []


async def test_a_request_that_is_dropped_is_gone_and_another_one_stays(world: World) -> None:
    requests = await world.start()
    held = await requests.request(RequestSource.OPERATOR, "root")
    await requests.drop("another", "cancelled")
    assert requests.pending() is not None
    await requests.drop(held.id, "cancelled by root")
    assert requests.pending() is None
    assert (await world.start()).pending() is None


async def test_what_it_waits_for_is_reported_once(world: World) -> None:
    requests = await world.start()
    await requests.request(RequestSource.OPERATOR, "root")
    for _ in range(2):
        requests.waits(Cause(Reason.REBOOT_NOT_ALLOWED, "the settings allow no reboot"))
    waits = [e.waits for e in world.reported.events if isinstance(e, RebootRequestChanged) and e.waits]
    assert waits == ["RebootNotAllowed: the settings allow no reboot"]


@pytest.mark.finding(
    "units: a reboot on request", "A file below /run is one request, which is stored before the file is removed."
)
async def test_a_file_is_one_request_and_is_removed(world: World) -> None:
    requests = await world.start()
    path = world.file("driver update\nmore\n")
    await requests.look()
    await requests.look()
    assert not path.exists()
    pending = requests.pending()
    assert pending is not None
    assert pending.words == f"reboot requested by {FILE}: driver update"
    assert world.changes == [ONE]


async def test_a_kill_between_the_store_and_the_removal_is_no_second_reboot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = await world.start()
    path = world.file()

    def killed(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(module, "remove_request", killed)
        await requests.look()
    first = requests.pending()
    again = await world.start()
    await again.look()
    assert not path.exists()
    assert first is not None
    assert again.pending() == first


async def test_a_file_that_cannot_be_removed_is_not_obeyed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = await world.start()
    world.file()

    def refuse(path: str, **_: object) -> None:
        raise Terminal(f"{path}: Read-only file system", reason=RebootRequestReason.REBOOT_FILE_UNSAFE)

    monkeypatch.setattr(module, "remove_request", refuse)
    for _ in range(3):
        await requests.look()
        assert requests.pending() is None
        assert world.reported.problems[TOPIC].reason == RebootRequestReason.REBOOT_FILE_UNSAFE
    assert len(world.changes) == 1
    (world.root / FILE[1:]).unlink()
    await requests.look()
    assert TOPIC not in world.reported.problems


def _writable(world: World) -> None:
    world.file().chmod(0o666)


def _in_a_shared_directory(world: World) -> None:
    world.file().parent.chmod(0o1777)


def _link(world: World) -> None:
    target = world.file(path="/run/other")
    (world.root / FILE[1:]).symlink_to(target)


def _pipe(world: World) -> None:
    os.mkfifo(world.root / FILE[1:])


def _directory(world: World) -> None:
    (world.root / FILE[1:]).mkdir()


@pytest.mark.parametrize("make", [_writable, _in_a_shared_directory, _link, _pipe, _directory])
async def test_a_file_that_others_could_have_made_is_refused(world: World, make: object) -> None:
    requests = await world.start()
    make(world)  # type: ignore[operator]
    await requests.look()
    assert requests.pending() is None
    assert world.reported.problems[TOPIC].reason == RebootRequestReason.REBOOT_FILE_UNSAFE
    assert os.path.lexists(world.root / FILE[1:])


async def test_a_file_that_each_boot_makes_again_is_no_loop(world: World) -> None:
    requests = await world.start()
    world.file()
    await requests.look()
    for boot in (TWO, "kernel-3"):
        requests = await world.start(boot)
        world.file()
        await requests.look()
        assert requests.pending() is None
        assert world.reported.problems[TOPIC].reason == RebootRequestReason.REBOOT_TOO_SOON
    world.clock.time = "2026-01-01T02:00:00.000Z"
    await requests.look()
    assert requests.pending() is not None


async def test_no_path_no_request(world: World) -> None:
    requests = await world.start(request_file="")
    world.file()
    await requests.look()
    assert requests.pending() is None


@pytest.mark.finding(
    "units: a reboot on request", "/run/reboot-required is reported, and obeyed where a setting says so."
)
async def test_what_the_host_requires_is_shown_and_obeyed_where_a_setting_says_so(world: World) -> None:
    requests = await world.start()
    world.file("linux\nlinux\n\x1b[31m\ndbus\n", "/run/reboot-required.pkgs")
    path = world.file(path="/run/reboot-required")
    await requests.look()
    assert requests.pending() is None
    (shown,) = [event for event in world.reported.events if isinstance(event, RebootRequiredChanged)]
    assert shown.requirement is not None
    assert shown.requirement.packages == ("linux", "dbus")
    requests.use(RebootRequestSettings(when_required="obey"))
    await requests.look()
    pending = requests.pending()
    assert pending is not None
    assert pending.words == "reboot requested by /run/reboot-required: linux, dbus"
    # An operator takes it back: not before the next boot again.
    await requests.drop(pending.id, "cancelled by root")
    await requests.look()
    assert requests.pending() is None
    path.unlink()
    await requests.look()
    assert world.reported.events[-1] == RebootRequiredChanged(None)
    path.symlink_to("/etc/hostname")
    await requests.look()
    assert world.reported.problems[REQUIRED_TOPIC].reason == RebootRequestReason.REBOOT_FILE_UNSAFE


@pytest.mark.parametrize(
    ("path", "valid"), [("", True), ("/run/x", True), ("/run/a/b.c", True), ("/etc/x", False), ("/run/../etc/x", False)]
)
def test_the_file_is_below_run(path: str, valid: bool) -> None:
    if valid:
        assert typed.convert({"request_file": path}, RebootRequestSettings).request_file == path
    else:
        with pytest.raises(ValueError):
            typed.convert({"request_file": path}, RebootRequestSettings)
