"""Waiting for an update: is it over, how did it end, and what to show meanwhile.

The daemon says where it stands, and its history how each update ended. That is compared with what was known before
the config was sent, so that neither an update that was under way nor one that is over at once is taken for ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from nodeagent.cli.status_view import progress_line
from nodeagent.cli.terminal import clock, local_now, on_terminal

__all__ = ["QUIET", "Ending", "Show", "ending", "show"]

QUIET = 3.0
"""Seconds without a change after which an idle daemon has nothing to do for our config."""
LOOKS = 2
"""How many times as long a degraded one may look at it, which looks again at what may pass; nobody is told of that."""
OTHERS = 10
"""And as long as it still shows another config than ours as the one that is desired."""

REFUSALS = {
    "InvalidInput": 2,
    "Unreconcilable": 3,
    "NoDeployments": 3,
    "BootcHost": 3,
    "ImageInvalid": 2,
    "ImageNotPinned": 2,
    "Refused": 4,
    "LeaseHeld": 4,
    "LeaseLost": 4,
    "LeaseGivenBack": 4,
    "Drifted": 4,
    "RebootNotAllowed": 4,
    "RolledBack": 4,
    "ConfigRejected": 4,
    "OtherDriver": 4,
    "StagedByOther": 4,
    "TransactionBusy": 4,
}
"""Reasons for which an update did not even begin, and what a command exits with."""

Show = Callable[[dict[str, Any] | None], None]


@dataclass(frozen=True, slots=True)
class Ending:
    """``outcome``: done, done-after-fallback, reverted, degraded, refused as in the history; unchanged, or accepted if
    nobody waited."""

    outcome: str
    reason: str = ""
    message: str = ""
    seconds: float | None = None
    reboots: int = 0
    reboot_avoided: bool = False

    @property
    def exit_code(self) -> int:
        match self.outcome:
            case "done" | "done-after-fallback" | "unchanged" | "accepted":
                return 0
            case "refused":
                return REFUSALS.get(self.reason, 4)
            case _:
                return 1


def at_rest(status: dict[str, Any]) -> bool:
    return status["phase"] in ("Idle", "Degraded")


def ending(
    name: str, status: dict[str, Any], history: Sequence[dict[str, Any]], known: frozenset[str], quiet: float
) -> Ending | None:
    """How the update to the config ``name`` ended; None while it goes on.

    ``history`` is the newest first, ``known`` the updates that were in it before, ``quiet`` for how many seconds
    nothing has changed.
    """
    if not at_rest(status):
        return None
    for entry in history:
        if entry["update_id"] not in known and entry["to_name"] == name:
            return Ending(
                entry["outcome"],
                entry["reason"],
                entry["message"],
                entry["seconds"],
                entry["reboots"],
                entry["reboot_avoided"],
            )
    if quiet < QUIET:
        return None
    if status["phase"] == "Degraded":
        if quiet < QUIET * (LOOKS if status["desired"] == name else OTHERS):
            return None
        return Ending("refused" if status["reason"] in REFUSALS else "degraded", status["reason"], status["message"])
    return Ending("unchanged") if status["current"] == name else None


def show(stack: ExitStack, *, silent: bool) -> Show:
    """What draws each status: a bar on a terminal, lines in a pipe, nothing for a program."""
    if silent:
        return lambda _status: None
    return _bar(stack) if on_terminal() else _lines()


def _lines() -> Show:
    last = ""

    def line(status: dict[str, Any] | None) -> None:
        nonlocal last
        text = progress_line(status) if status else "the daemon was stopped or restarts; waiting for it"
        if text != last and text != "Idle":  # before and after, which the command's last line says better
            now = local_now()
            print(f"{clock(now.isoformat(), now)}  {text}", flush=True)
        last = text

    return line


def _bar(stack: ExitStack) -> Show:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    progress = stack.enter_context(Progress(*columns))
    task = progress.add_task("sent", total=100)

    def draw(status: dict[str, Any] | None) -> None:
        if status is None:
            progress.update(task, description="waiting for the daemon")
            return
        percent = status["step"]["percent"] if status["step"] else None
        # Markup characters are common in messages: [Install], [::1].
        progress.update(task, description=progress_line(status).replace("[", r"\["), completed=percent)

    return draw
