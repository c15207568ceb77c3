# SPDX-License-Identifier: Apache-2.0
"""Follow the status of the daemon, wait for the end of an update, and report how it ended.

The daemon reports the end of each update with the signal ``UpdateFinished``. Only when that may have been missed,
because the daemon or the bus was restarted, the end is read from the history and the status.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from nodeagent.cli._client import ABSENCE, LISTENING, Client, Subscribed, UpdateEnd
from nodeagent.cli._io import printable
from nodeagent.cli._render import (
    BAD,
    GOOD,
    WARN,
    Screen,
    bar,
    clock,
    counted,
    duration,
    local_now,
    local_times,
    on_terminal,
    paint,
)
from nodeagent.errors import Refused, Unreachable
from nodeagent.reasons import Reason, hint
from nodeagent.update.history.outcome import UpdateOutcome, exit_code
from nodeagent.update.states import Phase

# Draws a status; None: the daemon does not run.
Show = Callable[[dict[str, Any] | None], None]

# Requests an update. The answer has the name of its config, and its digest, "" where that is not known; or as
# ``request`` the id of the update.
Send = Callable[[], Awaitable[dict[str, Any]]]

# Updates of the history that are compared before and after.
RECENT: Final = 50

# Seconds after which a wait for events ends, to draw again and to check for a restart of the daemon.
REFRESH: Final = 1.0

# Minimum seconds between two lines that differ in the step only: a config may have hundreds of files.
STEP_EVERY: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ending:
    """``outcome`` is an ``UpdateOutcome``, or ``accepted`` if the command did not wait. ``code`` is the exit status
    that the daemon reported; None: it follows from the outcome."""

    outcome: str
    reason: str = ""
    message: str = ""
    seconds: float | None = None
    reboots: int = 0
    reboot_avoided: bool = False
    successor: str = ""
    failed_unit: str = ""
    boots: int = 0
    code: int | None = None

    @property
    def exit_code(self) -> int:
        # The daemon knows the error that ended a refused request, and its exit status.
        if self.code is not None:
            return self.code
        return 0 if self.outcome == "accepted" else exit_code(self.outcome, self.reason)

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return these fields, as JSON data."""
        return {name: getattr(self, name) for name in names}


def ending_of(entry: dict[str, Any], code: int | None = None) -> Ending:
    """Return the end of an update from ``entry``, an entry of ``history/v1``."""
    ending_fields: dict[str, Any] = {field.name: entry[field.name] for field in fields(Ending) if field.name in entry}
    # A request that never became an update has no duration.
    seconds = entry["seconds"] if entry["update_id"] else None
    return Ending(**ending_fields | {"seconds": seconds, "code": code})


def ending_without_signal(
    name: str, digest: str, status: dict[str, Any], history: Collection[dict[str, Any]], earlier: Collection[str]
) -> Ending | None:
    """Return the end of an update whose signal may have been missed; None while it goes on.

    ``digest`` is "" where only the name is known. ``earlier`` are the updates that were in the history before the
    request. A daemon that refuses the config reports that again after a restart.
    """
    # The entry of an update is written before its release, and the update has ended only after that.
    resting = status["phase"] in ("Idle", "Degraded")
    for entry in history:
        mine = entry["to_digest"] == digest if digest else entry["to_name"] == name
        if mine and entry["update_id"] not in earlier and (resting or entry["update_id"] != status["update_id"]):
            return ending_of(entry)
    desired = status.get("desired_digest", "")
    current = status.get("current_digest", "")
    if status["phase"] == "Idle" and (digest == current if digest and current else status["current"] == name):
        return Ending(UpdateOutcome.UNCHANGED)
    if not digest or desired in ("", digest) or status.get("target") == name:
        return None
    if desired == current:
        message = f"the current config {status['desired']} is desired again"
        return Ending(UpdateOutcome.WITHDRAWN, Reason.WITHDRAWN, message)
    message = f"{status['desired']} is desired instead"
    return Ending(UpdateOutcome.SUPERSEDED, Reason.SUPERSEDED, message, successor=status["desired"])


def print_ending(name: str, result: Ending) -> None:
    name = printable(name)
    took = f" in {duration(result.seconds)}" if result.seconds is not None else ""
    cause = local_times(printable(": ".join(part for part in (result.reason, result.message) if part)), local_now())
    match result.outcome:
        case "done":
            how = f", with {counted(result.reboots, 'reboot')}" if result.reboots else ""
            avoided = "; a reboot was avoided" if result.reboot_avoided else ""
            print(paint(f"done: {name} is the current config{took}{how}{avoided}", GOOD))
        case "done-after-fallback":
            print(paint(f"done: {name} is the current config{took}, but it needed a reboot: {cause}", WARN))
        case "unchanged":
            print(paint(f"nothing to do: {name} is the current config", GOOD))
        case "superseded" | "withdrawn":
            print(paint(f"{result.outcome}: {name} is not in force: {printable(result.message)}", WARN))
        case outcome:
            print(paint(f"{outcome}: {name} is not in force{took}: {cause}", BAD))
            if result.reason:
                print(f"what now: {hint(result.reason, printable(result.failed_unit))}")


def progress_line(status: dict[str, Any] | None) -> str:
    """Return phase, step, reason and message in one line."""
    if status is None or status["daemon"] != "running":
        return "the daemon does not run"
    parts = [status["phase"]]
    if step := status["step"]:
        parts.append(f"{step['index']}/{step['count']} {step['name']}" if step["count"] else step["name"])
    parts += filter(None, (status["reason"], status["message"]))
    return printable(": ".join(parts))


def lines() -> Show:
    """Print a line for each new phase and message, and at most one in ``STEP_EVERY`` for steps."""
    last, stage, at = "", "", float("-inf")

    def show(status: dict[str, Any] | None) -> None:
        nonlocal last, stage, at
        text = progress_line(status)
        now_at = progress_line(status and {**status, "step": None})
        if text == last or (now_at == stage and time.monotonic() - at < STEP_EVERY):
            return
        now = local_now()
        print(f"{clock(now.isoformat(), now)}  {local_times(text, now)}", flush=True)
        last, stage, at = text, now_at, time.monotonic()

    return show


def _from_the_first_phase(show: Show) -> Show:
    """Return ``show`` without the rest before the update, which may have the reason of an earlier one, and without that
    after a good end."""
    began = False

    def show_progress(status: dict[str, Any] | None) -> None:
        nonlocal began
        phase = status["phase"] if status else ""
        began = began or phase not in (Phase.IDLE, Phase.DEGRADED)
        if began and phase != Phase.IDLE:
            show(status)

    return show_progress


def _progress(screen: Screen) -> Show:
    begun = time.monotonic()

    def show(status: dict[str, Any] | None) -> None:
        step = status["step"] if status else None
        drawn = f"{bar(step['percent'])} {step['percent']:>3} %  " if step and step["count"] else ""
        screen.draw(
            [f"{duration(int(time.monotonic() - begun)):<12}  {drawn}{local_times(progress_line(status), local_now())}"]
        )

    return show


class Tick(NamedTuple):
    """No event arrived for ``REFRESH`` seconds."""


@asynccontextmanager
async def events(
    *sources: AsyncGenerator[Any, None], stops: Collection[signal.Signals] = ()
) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Merge sources and the signals ``stops`` of the operating system.

    Yields a function that returns the next event, or ``Tick``. It raises the error of a source.
    """
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def forward(source: AsyncGenerator[Any, None]) -> None:
        try:
            async with aclosing(source):
                async for event in source:
                    queue.put_nowait(event)
        except Exception as error:  # noqa: BLE001 - raised by next_event
            queue.put_nowait(error)

    async def next_event() -> Any:
        try:
            async with asyncio.timeout(REFRESH):
                event = await queue.get()
        except TimeoutError:
            return Tick()
        if isinstance(event, Exception):
            raise event
        return event

    loop = asyncio.get_running_loop()
    # The signals share the queue, so that a wait ends between two events and never within one.
    for number in stops:
        loop.add_signal_handler(number, queue.put_nowait, number)
    tasks = [asyncio.create_task(forward(source)) for source in sources]
    try:
        yield next_event
    finally:
        for task in tasks:
            task.cancel()
        # The sources end their subscriptions before the connection is closed.
        await asyncio.gather(*tasks, return_exceptions=True)
        for number in stops:
            loop.remove_signal_handler(number)


class _Request(NamedTuple):
    """A request that the daemon accepted. ``owner`` is the daemon that it was sent to, and ``running`` the id of the
    update that was under way then. Its end answers the request only if the request was to cancel it (``cancels``)."""

    answer: dict[str, Any]
    owner: str
    running: str
    cancels: bool

    def is_ended_by(self, finished: UpdateEnd) -> bool:
        # An update that fails after this request does not answer it, because the daemon tries again.
        if finished.entry.get("tried_again") and finished.entry["update_id"] == self.running:
            return False
        if "request" in self.answer:
            return bool(finished.entry["update_id"] == self.answer["request"])
        digest = self.answer["digest"]
        return finished.digest == digest or (not digest and finished.entry["to_name"] == self.answer["config"])


async def request_and_wait(
    client: Client, send: Send, *, silent: bool, cancels: bool = False
) -> tuple[dict[str, Any], Ending]:
    """Request an update and wait for its end, however often the daemon restarts before that.

    Returns the answer and the end. Raises ``Refused`` (``StillUnderWay``) on SIGTERM, which
    a reboot of the host sends, and on SIGINT; ``Unreachable`` if the daemon is away for ``ABSENCE``.
    """
    earlier = frozenset(entry["update_id"] for entry in await client.history(RECENT))
    listening = asyncio.Event()

    async def request() -> AsyncGenerator[_Request, None]:
        # The phases and the end of a quick update are reported before the answer could be followed by a subscription.
        try:
            async with asyncio.timeout(LISTENING):
                await listening.wait()
        except TimeoutError:
            reason = Reason.BUS_UNREACHABLE
            message = "the system bus was lost before the request was sent; nothing was requested"
            raise Unreachable(message, reason=reason, hint=hint(reason)) from None
        owner, running = await client.owner(), (await client.status())["update_id"]
        yield _Request(await send(), owner, running, cancels)

    screen = Screen() if on_terminal() and not silent else None
    show = _from_the_first_phase(_progress(screen) if screen else lines())
    stops = (signal.SIGTERM, signal.SIGINT)
    try:
        async with events(client.follow(ABSENCE), client.finished(), request(), stops=stops) as next_event:
            return await _wait(client, next_event, listening.set, earlier, (lambda _: None) if silent else show)
    finally:
        if screen:
            screen.clear()


async def _wait(
    client: Client,
    next_event: Callable[[], Awaitable[Any]],
    on_listening: Callable[[], None],
    earlier: Collection[str],
    show: Show,
) -> tuple[dict[str, Any], Ending]:
    requested: _Request | None = None
    status: dict[str, Any] | None = None
    early: UpdateEnd | None = None
    missed = subscribed = followed = False
    while True:
        match event := await next_event():
            case signal.Signals():
                raise _stopped(by_user=event is signal.SIGINT, requested=requested is not None)
            case Subscribed():
                subscribed = missed = True
            case _Request():
                # What the daemon reported before its answer is about earlier requests.
                requested, missed = event, False
                # A reboot that waits for its time ends at once when it is cancelled.
                if early is not None and event.cancels and early.entry["update_id"] == event.answer["update_id"]:
                    return event.answer, ending_of(early.entry, early.exit_code)
            case UpdateEnd():
                early = event
                if requested and requested.is_ended_by(event):
                    return requested.answer, ending_of(event.entry, event.exit_code)
            case Tick():
                show(status)
                missed = missed or (requested is not None and await client.owner() != requested.owner)
            case _:
                missed = missed or event is None
                followed, status = True, event
                show(status)
        if subscribed and followed:
            on_listening()
        if requested and missed and status:
            with suppress(Unreachable):
                history = await client.history(RECENT)
                # The update that ran at the request is its answer only for a cancellation.
                earlier = earlier if requested.cancels else {*earlier, requested.running}
                if result := _missed_ending(requested.answer, status, history, earlier):
                    return requested.answer, result


def _missed_ending(
    answer: dict[str, Any], status: dict[str, Any], history: Collection[dict[str, Any]], earlier: Collection[str]
) -> Ending | None:
    if "request" not in answer:
        return ending_without_signal(answer["config"], answer["digest"], status, history, earlier)
    if status["update_id"] == answer["request"]:
        return None
    return next((ending_of(entry) for entry in history if entry["update_id"] == answer["request"]), None)


class StoppedByUser(Refused):
    """The command was interrupted. The exit status is that of the signal, as a shell reports it."""

    exit_code = 128 + signal.SIGINT


def _stopped(*, by_user: bool, requested: bool) -> Refused:
    words = "stopped while the update goes on" if requested else "stopped before the request was answered"
    reason = Reason.STILL_UNDER_WAY
    if by_user:
        return StoppedByUser(words, reason=reason, hint=hint(reason))
    return Refused(f"{words}; the host may be rebooting", reason=reason, hint=hint(reason))
