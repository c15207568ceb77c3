"""`nodeagent apply`: make a MachineConfig the desired one, and follow the update to its end if asked to."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, aclosing, suppress
from typing import Any

from nodeagent.cli.client import Client, ask
from nodeagent.cli.output import printable
from nodeagent.cli.progress import Ending, Show, at_rest, ending, show
from nodeagent.cli.terminal import BAD, GOOD, WARN, counted, duration, emit, paint
from nodeagent.core.hints import hint
from nodeagent.errors import InvalidInput, Refused, Unreachable

__all__ = ["add_arguments", "run"]

RECENT = 50  # updates of the history that are compared before and after
TICK = 0.5  # seconds between two looks at the clock while nothing changes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the MachineConfig, YAML or JSON; - is standard input")
    parser.add_argument("--wait", action="store_true", help="show the progress, and return when the update has ended")
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/apply/v1)")


def run(args: argparse.Namespace) -> int:
    """Without ``--wait`` 0 means accepted. With it: 0 done, 1 reverted or degraded, 4 refused or still under way."""
    from nodeagent.cli import inputs

    text = inputs.read(args.file)
    name = _check(text, inputs.name_of(args.file))
    if not args.wait:
        digest = ask(lambda client: client.apply(text.decode()))
        _accepted(name, digest, as_json=args.json)
        return 0
    with ExitStack() as stack:
        result, digest = ask(lambda client: _apply_and_wait(client, name, text.decode(), stack, silent=args.json))
    if args.json:
        emit(_answer(name, digest, result))
    else:
        _tell(name, result)
    return result.exit_code


def _check(text: bytes, what: str) -> str:
    """The name of the config. What the daemon would refuse as unreadable is refused here, with the file's name."""
    from nodeagent.core.parse import parse

    name = parse(text, what).name
    try:
        text.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{what} is not UTF-8") from None
    return name


def _accepted(name: str, digest: str, *, as_json: bool) -> None:
    if as_json:
        emit(_answer(name, digest, Ending("accepted")))
    else:
        print(f"{printable(name)} is the desired config now; nodeagent status --watch follows the update")


def _answer(name: str, digest: str, result: Ending) -> dict[str, Any]:
    return {
        "schema": "nodeagent/apply/v1",
        "config": name,
        "digest": digest,
        "outcome": result.outcome,
        "reason": result.reason,
        "message": result.message,
        "seconds": result.seconds,
        "reboots": result.reboots,
        "reboot_avoided": result.reboot_avoided,
    }


async def _apply_and_wait(
    client: Client, name: str, text: str, stack: ExitStack, *, silent: bool
) -> tuple[Ending, str]:
    """A reboot of the host ends us, too: SIGTERM is turned into an answer that says how to go on."""
    import asyncio
    import signal

    seen = Seen(show(stack, silent=silent))
    known = frozenset(entry["update_id"] for entry in await client.history(RECENT))
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    following = asyncio.ensure_future(seen.follow(client))
    waiting = asyncio.ensure_future(_send_and_wait(client, name, text, known, seen))
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


async def _send_and_wait(client: Client, name: str, text: str, known: frozenset[str], seen: Seen) -> tuple[Ending, str]:
    """Until it ended, however often the daemon restarts meanwhile."""
    await seen.changed(None)  # subscribed: no step of a quick update is missed
    digest = await client.apply(text)
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
            return result, digest


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


def _tell(name: str, result: Ending) -> None:
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
