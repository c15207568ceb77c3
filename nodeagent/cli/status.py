# SPDX-License-Identifier: Apache-2.0
"""`nodeagent status`: show the phase of the agent, its reason, what it waits for, and what to do."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from nodeagent.cli._client import Client, ask, stored
from nodeagent.cli._features import rows_after
from nodeagent.cli._follow import Tick, events, lines
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import (
    BAD,
    DIM,
    GOOD,
    STRONG,
    WARN,
    Screen,
    ago,
    bar,
    change_name,
    clock,
    local_now,
    local_times,
    on_terminal,
    paint,
    wrapped,
)
from nodeagent.cli.logs import last_lines
from nodeagent.core.coordination.operations import BY_OPERATOR
from nodeagent.errors import Unreachable
from nodeagent.reasons import Reason, documentation, hint

# Pods of a drain, of which the blocked ones come first, and changes that wait.
SHOWN: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/status/v1)")
    parser.add_argument(
        "--watch", action="store_true", help="follow the status until interrupted; with --json one object per line"
    )


def run(args: argparse.Namespace) -> int:
    """Return 0; 1 if the agent is degraded; 5 if the daemon is stopped and the status is that of the store. Raise
    ``Unreachable`` without a daemon and without a store."""
    if args.watch:
        # Ctrl-C is how an operator ends it.
        with suppress(KeyboardInterrupt):
            ask(lambda client: _watch(client, as_json=args.json))
        return 0
    status = ask(Client.status, lambda stored: stored.status())
    if args.json:
        emit(status)
    else:
        # A journal may take seconds to read, for which only an operator should wait.
        log = last_lines(status.get("failed_unit")) if on_terminal() else []
        print("\n".join(view(status, local_now(), as_bar=on_terminal(), log=log)))
    if status["daemon"] != "running":
        return Reason.UNREACHABLE.kind.exit_code
    return 1 if status["phase"] == "Degraded" else 0


async def _watch(client: Client, *, as_json: bool) -> None:
    screen = Screen() if on_terminal() and not as_json else None
    show = emit if as_json else lines()
    last: dict[str, Any] | None = None
    async with events(client.follow()) as next_event:
        while True:
            event = await next_event()
            if not isinstance(event, Tick):
                # Without a daemon, the status that it reported last is shown, or that of its record.
                unreachable = Unreachable("the daemon does not run", hint=hint(Reason.UNREACHABLE))
                last = event or {**(last or stored(unreachable).status()), "daemon": "stopped"}
                if screen is None:
                    show(last)
            if screen and last:
                # Also without a change: "3 min ago" grows.
                screen.draw(view(last, local_now(), as_bar=True))


def view(status: dict[str, Any], now: datetime, *, as_bar: bool = False, log: Sequence[str] = ()) -> list[str]:
    """Return a status as lines for an operator. ``as_bar`` draws the progress of a step as a bar. ``log`` are the last
    lines of the unit that failed."""
    # Windows have a time zone of their own, so a time in a message names that of the display.
    rows = [(label, local_times(text, now, zone=True)) for label, text in _rows(status, now, as_bar=as_bar, log=log)]
    width = max(len(label) for label, _ in rows)
    lines = []
    for label, text in rows:
        first, *more = wrapped(text, width + 2)
        lines += [f"{label.ljust(width)}  {first}", *(f"{' ' * width}  {line}" for line in more)]
    return lines


def _rows(status: dict[str, Any], now: datetime, *, as_bar: bool, log: Sequence[str]) -> Iterator[tuple[str, str]]:
    phase, reason = status["phase"], status["reason"]
    failed = status.get("failed_unit") or {}
    if status["daemon"] != "running":
        # systemd stops it for a reboot as well.
        start = "if the host does not go down, start it" if phase == "Rebooting" else "start it"
        yield "daemon", paint("stopped; the rest is its record of the last state", WARN)
        yield "what now", paint(f"{start}: systemctl start nodeagent", STRONG)
    yield "phase", paint(phase, _style(phase, reason)) + (f" ({reason})" if reason else "")
    if status["since"]:
        yield "since", f"{clock(status['since'], now)}, {ago(status['since'], now)}"
    if status["message"]:
        yield "message", printable(status["message"])
    if failed:
        unit = printable(failed["name"])
        yield "unit", f"{unit}, {clock(failed['at'], now)}" + ("; its journal until then:" if log else "")
        yield from (("", f"  {line}") for line in log)
    if reason:
        yield "what now", paint(hint(reason, failed.get("name", "")), STRONG)
    if address := documentation(reason):
        # Many hosts reach no network but their own.
        yield "see", f"nodeagent explain {reason}, or {address}"
    for problem in status.get("problems", ()):
        yield "problem", paint(printable(f"{problem['reason']}: {problem['message']}"), WARN)
        yield "what now", paint(hint(problem["reason"]), STRONG)
    if partial := status.get("partial"):
        yield from _partial(partial, status["message"], now)
    yield from rows_after("partly", status, now)
    if status["reboot"]:
        yield "reboot", printable(f"a {status['reboot']} one")
    if step := status["step"]:
        yield "step", _step(step, as_bar=as_bar)
    yield "current", printable(status["current"]) or "none yet"
    target = status.get("target") or status["desired"]
    if status["desired"] and not status["desired"] == status["current"] == target:
        yield "desired", printable(status["desired"])
    # The update to the desired config begins afterwards.
    if target != status["desired"]:
        yield "updating to", printable(target)
    if (lease := status["lease"]) and not _repeats(lease, status):
        yield "lease", _lease(lease, now)
    yield from rows_after("lease", status, now)
    for deployment in status["deployments"]:
        yield "deployment", _deployment(deployment)
    if changes := status["os_changes"]:
        yield "next boot", printable(changes["summary"])
    yield from rows_after("next boot", status, now)
    yield from rows_after("", status, now)
    if status["update_id"]:
        yield "update", paint(status["update_id"], DIM)


def _partial(partial: dict[str, Any], message: str, now: datetime) -> Iterator[tuple[str, str]]:
    applied, waits = partial["applied"], partial["waits"]
    since = f"since {clock(partial['since'], now)}, {ago(partial['since'], now)}"
    total = len(applied) + len(waits)
    yield (
        "partly",
        paint(printable(f"{len(applied)} of {total} changes of {partial['config']} are applied ({since})"), WARN),
    )
    for change in waits[:SHOWN]:
        yield "waiting", printable(f"{change_name(change['change'])}: {change['for']}")
    if len(waits) > SHOWN:
        yield "waiting", f"{len(waits) - SHOWN} more (status --json has all)"
    # At first, the update waits for the same as its parts.
    if partial["message"] != message:
        yield "because", printable(f"{partial['message']} ({partial['reason']})")


def _style(phase: str, reason: str) -> str:
    if phase == "Degraded":
        # The host is well after a revert. It does not run the desired config.
        return WARN if reason == Reason.REVERTED else BAD
    if phase == "Idle":
        return GOOD
    return WARN if reason else STRONG


def _step(step: dict[str, Any], *, as_bar: bool) -> str:
    # A task without parts has no count.
    if not step["count"]:
        return printable(step["name"])
    counted = f"{step['index']}/{step['count']} ({step['percent']} %)"
    if not as_bar:
        return f"{printable(step['name'])}, {counted}"
    return f"{printable(step['name'])}  {bar(step['percent'])}  {counted}"


def _repeats(lease: dict[str, Any], status: dict[str, Any]) -> bool:
    """Return whether the row of the operation that has the lease says the same."""
    # The operation of an operator is in the JSON without its id, and is the key of its part.
    part = status.get(lease.get("operation") or "")
    return isinstance(part, dict) and part["reason"] == lease["reason"]


def _lease(lease: dict[str, Any], now: datetime) -> str:
    text: str = lease["holder"]
    if lease.get("operation") == BY_OPERATOR:
        text += f", {BY_OPERATOR}"
    if lease["reason"]:
        text += f": {lease['reason']}"
    if lease.get("since"):
        text += f" (since {clock(lease['since'], now)}, {ago(lease['since'], now)})"
    if lease["expires"]:
        text += f", expires {clock(lease['expires'], now)}"
    return printable(text)


def _deployment(deployment: dict[str, Any]) -> str:
    marks = [mark for mark in ("booted", "staged", "locked") if deployment[mark]]
    name = " ".join(part for part in (deployment["version"], deployment["checksum"][:12]) if part)
    return printable(name) + (f" ({', '.join(marks)})" if marks else "")
