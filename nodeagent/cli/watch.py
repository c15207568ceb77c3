"""`nodeagent status --watch`: the status as it changes, also across restarts of the daemon."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, aclosing, suppress
from typing import Any

from nodeagent.cli import _offline
from nodeagent.cli._client import Client, ask
from nodeagent.cli._status_view import progress_line, view
from nodeagent.cli._terminal import clock, emit, local_now, on_terminal
from nodeagent.core.hints import hint
from nodeagent.errors import Unreachable

__all__ = ["watch"]

Show = Callable[[dict[str, Any]], None]


def watch(*, as_json: bool) -> int:
    """Until interrupted, which is how one leaves it: 0."""
    with ExitStack() as stack:
        show = emit if as_json else _live(stack) if on_terminal() else _lines()
        with suppress(KeyboardInterrupt):
            ask(lambda client: _follow(client, show))
    return 0


async def _follow(client: Client, show: Show) -> None:
    last: dict[str, Any] | None = None
    async with aclosing(client.follow()) as statuses:
        async for status in statuses:
            # Without a daemon: what was last seen, or what its record says.
            last = status or {
                **(last or _offline.status(Unreachable("the daemon does not run", hint=hint("Unreachable")))),
                "daemon": "stopped",
            }
            show(last)


def _lines() -> Show:
    last = ""

    def show(status: dict[str, Any]) -> None:
        """A line for what it says: most news are numbers that are not in it."""
        nonlocal last
        now = local_now()
        text = progress_line(status) if status["daemon"] == "running" else "the daemon does not run"
        if text != last:
            print(f"{clock(now.isoformat(), now)}  {text}", flush=True)
        last = text

    return show


def _live(stack: ExitStack) -> Show:
    from rich.live import Live
    from rich.text import Text

    lines = Text("asking the daemon ...")
    shown: dict[str, Any] = {}

    def render() -> Text:
        # Anew each time: "3 min ago" grows without any news.
        return Text.from_ansi("\n".join(view(shown, local_now(), bar=True))) if shown else lines

    live = stack.enter_context(Live(get_renderable=render, refresh_per_second=2))

    def show(status: dict[str, Any]) -> None:
        shown.clear()
        shown.update(status)
        live.refresh()

    return show
