"""Asking for an update and following it to its end: what `apply --wait` and `rollback --wait` share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing, suppress
from typing import Any

from nodeagent.cli.client import Client
from nodeagent.cli.output import printable
from nodeagent.cli.progress import Ending, Show, at_rest, ending, show
from nodeagent.cli.terminal import BAD, GOOD, WARN, counted, duration, paint
from nodeagent.core.hints import hint
from nodeagent.errors import Refused, Unreachable

__all__ = ["ask_and_wait", "tell"]

RECENT = 50  # updates of the history that are compared before and after
TICK = 0.5  # seconds between two looks at the clock while nothing changes


async def ask_and_wait(
    client: Client, send: Callable[[], Awaitable[str]], stack: ExitStack, *, silent: bool
) -> tuple[str, Ending]:
    """``send`` asks for an update and returns the name of the config. Returns that and how the update ended.

    A reboot of the host ends us, too: SIGTERM is turned into an answer that says how to go on.
    """
    import asyncio
    import signal

    seen = Seen(show(stack, silent=silent))
    known = frozenset(entry["update_id"] for entry in await client.history(RECENT))
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    following = asyncio.ensure_future(seen.follow(client))
    waiting = asyncio.ensure_future(_send_and_wait(client, send, known, seen))
    stopping = asyncio.ensure_future(told.wait())
    tasks: set[asyncio.Future[Any]] = {following, waiting, stopping}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        if following.done():
            following.result()  # it ends with an error only
        raise Refused(
            "stopped while the update goes on; the host may be rebooting",
            reason="StillUnderWay",
            hint=hint("StillUnderWay"),
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)


async def _send_and_wait(
    client: Client, send: Callable[[], Awaitable[str]], known: frozenset[str], seen: Seen
) -> tuple[str, Ending]:
    """Until it ended, however often the daemon restarts meanwhile."""
    await seen.changed(None)  # subscribed: no step of a quick update is missed
    name = await send()
    seen.reset_quiet()
    while True:
        await seen.changed(TICK)
        # Over is decided by the history, which is asked only while the daemon is at rest.
        if seen.latest is None or not at_rest(seen.latest):
            continue
        try:
            history = await client.history(RECENT)
        except Unreachable:
            continue
        if (result := ending(name, seen.latest, history, known, seen.quiet())) is not None:
            return name, result


class Seen:
    """The status as it is known here, and since when it has been so."""

    def __init__(self, draw: Show) -> None:
        import asyncio

        self.latest: dict[str, Any] | None = None
        self._draw = draw
        self._news = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self.reset_quiet()

    async def follow(self, client: Client) -> None:
        async with aclosing(client.follow()) as statuses:
            async for status in statuses:
                self._draw(status)
                self.latest = status
                self.reset_quiet()
                self._news.set()

    async def changed(self, within: float | None) -> None:
        """Returns when there are news, or after ``within`` seconds."""
        import asyncio

        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._news.wait()
        self._news.clear()

    def reset_quiet(self) -> None:
        self._since = self._clock()

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
        case outcome:
            print(paint(f"{outcome}: {name} is not in force{took}: {why}", BAD))
            if result.reason:
                print(f"what now: {hint(result.reason)}")
