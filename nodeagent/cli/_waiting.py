"""Asking for an update and following it to its end: what `apply --wait` and `rollback --wait` share."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing, suppress
from typing import Any

from nodeagent.cli._client import Client, Finished
from nodeagent.cli._output import printable
from nodeagent.cli._progress import Ending, Show, ended, ending, show
from nodeagent.cli._terminal import BAD, GOOD, WARN, counted, duration, paint
from nodeagent.core.hints import hint
from nodeagent.errors import Refused, Unreachable

__all__ = ["ask_and_wait", "tell"]

RECENT = 50  # updates of the history that are compared before and after
TICK = 0.5  # seconds between two looks at the clock while nothing changes
STOPS = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED = 128 + signal.SIGINT  # as a shell reports it


async def ask_and_wait(
    client: Client, send: Callable[[], Awaitable[tuple[str, str]]], stack: ExitStack, *, silent: bool
) -> tuple[str, Ending]:
    """``send`` requests an update and returns name and digest of the config, "" where the digest is not known. Returns
    the name and how the update ended.

    A reboot of the host ends us, too: SIGTERM and Ctrl-C are turned into an answer that says how to go on.
    """
    import asyncio

    seen = Seen(show(stack, silent=silent))
    known = frozenset(entry["update_id"] for entry in await client.history(RECENT))
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in STOPS:
        loop.add_signal_handler(number, stop, number)
    following = asyncio.ensure_future(seen.follow(client))
    waiting = asyncio.ensure_future(_send_and_wait(client, send, known, seen))
    tasks: set[asyncio.Future[Any]] = {following, waiting}
    try:
        await asyncio.wait({*tasks, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        if following.done():
            following.result()  # it ends with an error only
        raise _stopped(stopped.result() == signal.SIGINT, requested=seen.requested)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for number in STOPS:
            loop.remove_signal_handler(number)


def _stopped(by_user: bool, *, requested: bool) -> Refused:
    words = "stopped while the update goes on" if requested else "stopped before the request was answered"
    error = Refused(
        words if by_user else f"{words}; the host may be rebooting",
        reason="StillUnderWay",
        hint=hint("StillUnderWay"),
    )
    if by_user:
        error.exit_code = INTERRUPTED
    return error


async def _send_and_wait(
    client: Client, send: Callable[[], Awaitable[tuple[str, str]]], known: frozenset[str], seen: Seen
) -> tuple[str, Ending]:
    """Until it ended, however often the daemon restarts before that."""
    await seen.subscribed.wait()  # or the end of a quick update is missed
    name, digest = await send()
    seen.begin()
    while True:
        await seen.changed(TICK)
        for finished in seen.take():
            if finished.digest == digest or (not digest and finished.entry["to_name"] == name):
                return name, ended(finished.entry, finished.exit_code)
        if not seen.missed or seen.latest is None:
            continue
        try:
            history = await client.history(RECENT)
        except Unreachable:
            continue
        if (result := ending(name, digest, seen.latest, history, known, seen.quiet())) is not None:
            return name, result


class Seen:
    """What the daemon reported: its status, since when that has been so, and how updates ended. ``missed``: the daemon
    or the bus was restarted since ``begin``, so the report of the end may have been missed."""

    def __init__(self, draw: Show) -> None:
        import asyncio

        self.latest: dict[str, Any] | None = None
        self.missed = False
        self.requested = False
        self.subscribed = asyncio.Event()
        self._finished: list[Finished] = []
        self._draw = draw
        self._news = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self._since = self._clock()

    async def follow(self, client: Client) -> None:
        import asyncio

        await asyncio.gather(self._statuses(client), self._ends(client), self._restarts(client))

    async def _statuses(self, client: Client) -> None:
        async with aclosing(client.follow()) as statuses:
            async for status in statuses:
                self._draw(status)
                self.latest = status
                self.missed = self.missed or status is None
                self._since = self._clock()
                self._news.set()

    async def _ends(self, client: Client) -> None:
        async with aclosing(client.finished()) as ends:
            async for finished in ends:
                if finished is None:
                    self.missed = True
                    self.subscribed.set()
                else:
                    self._finished.append(finished)
                self._news.set()

    async def _restarts(self, client: Client) -> None:
        async with aclosing(client.restarts()) as restarts:
            async for _ in restarts:
                self.missed = True

    async def changed(self, within: float) -> None:
        """Returns when there are news, or after ``within`` seconds."""
        import asyncio

        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._news.wait()
        self._news.clear()

    def begin(self) -> None:
        """The request was answered. What the daemon reported before its answer is about earlier requests."""
        self.missed, self.requested = False, True
        self._finished.clear()
        self._since = self._clock()

    def take(self) -> list[Finished]:
        finished, self._finished = self._finished, []
        return finished

    def quiet(self) -> float:
        return self._clock() - self._since


def tell(name: str, result: Ending) -> None:
    name = printable(name)
    took = f" in {duration(result.seconds)}" if result.seconds is not None else ""
    why = printable(": ".join(part for part in (result.reason, result.message) if part))
    match result.outcome:
        case "done":
            how = f", with {counted(result.reboots, 'reboot')}" if result.reboots else ""
            avoided = "; a reboot was avoided" if result.reboot_avoided else ""
            print(paint(f"done: {name} is the current config{took}{how}{avoided}", GOOD))
        case "done-after-fallback":
            print(paint(f"done: {name} is the current config{took}, but it needed a reboot: {why}", WARN))
        case "unchanged":
            print(paint(f"nothing to do: {name} is the current config", GOOD))
        case "superseded" | "withdrawn":
            print(paint(f"{result.outcome}: {name} is not in force: {printable(result.message)}", WARN))
        case outcome:
            print(paint(f"{outcome}: {name} is not in force{took}: {why}", BAD))
            if result.reason:
                print(f"what now: {hint(result.reason)}")
