"""Waiting for an update: is it over, how did it end, and what to show until then.

The daemon reports each end with a signal. Only when that may have been missed, because the daemon or the bus was
restarted, the end is taken from the history and the status, as compared with what was known before the request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from nodeagent.cli._status_view import progress_line
from nodeagent.cli._terminal import clock, local_now, on_terminal
from nodeagent.core.update.outcome import UpdateOutcome, exit_code

__all__ = ["QUIET", "Ending", "Show", "ended", "ending", "show"]

QUIET = 3.0
"""Seconds without a change after which an idle daemon has nothing to do for our config."""
LOOKS = 2
"""How many times as long a degraded one may take, which repeats at first what may pass, without a report."""
OTHERS = 10
"""And as long as it still shows another config than ours as the one that is desired."""
STEP_EVERY = 1.0
"""Seconds between two lines in a pipe that differ in the step only: a config may have hundreds of files."""

Show = Callable[[dict[str, Any] | None], None]


@dataclass(frozen=True, slots=True)
class Ending:
    """``outcome`` is an ``UpdateOutcome``, or ``accepted`` where nobody waited. ``code`` is the exit status that the
    daemon reported; None: it follows from the outcome."""

    outcome: str
    reason: str = ""
    message: str = ""
    seconds: float | None = None
    reboots: int = 0
    reboot_avoided: bool = False
    successor: str = ""
    code: int | None = None

    @property
    def exit_code(self) -> int:
        if self.code is not None:
            return self.code
        return 0 if self.outcome == "accepted" else exit_code(self.outcome, self.reason)


def ended(entry: dict[str, Any], code: int | None = None) -> Ending:
    """``entry`` is one of ``history/v1``; an older daemon wrote some without the last keys."""
    return Ending(
        entry["outcome"],
        entry["reason"],
        entry["message"],
        entry["seconds"] if entry["update_id"] else None,
        entry["reboots"],
        entry["reboot_avoided"],
        entry.get("successor", ""),
        code,
    )


def at_rest(status: dict[str, Any]) -> bool:
    return status["phase"] in ("Idle", "Degraded")


def ending(
    name: str,
    digest: str,
    status: dict[str, Any],
    history: Sequence[dict[str, Any]],
    known: frozenset[str],
    quiet: float,
) -> Ending | None:
    """How the update to a config ended, where its signal may have been missed; None while it goes on.

    ``digest`` is "" where only the name is known, ``history`` the newest first, ``known`` the updates that were in it
    before the request, ``quiet`` for how many seconds nothing has changed.
    """
    resting = at_rest(status)
    for entry in history:
        mine = entry.get("to_digest") == digest if digest and entry.get("to_digest") else entry["to_name"] == name
        if mine and entry["update_id"] not in known and (resting or entry["update_id"] != status["update_id"]):
            return ended(entry)
    if digest and (replaced := _replaced(name, digest, status)):
        return replaced
    if not resting or quiet < QUIET:
        return None
    if status["phase"] == "Degraded":
        if quiet < QUIET * (LOOKS if status["desired"] == name else OTHERS):
            return None
        reason = status["reason"]
        code = exit_code(UpdateOutcome.POSTPONED, reason)
        outcome = UpdateOutcome.DEGRADED if code == 1 else UpdateOutcome.REFUSED
        return Ending(outcome, reason, status["message"], code=code)
    return Ending(UpdateOutcome.UNCHANGED) if status["current"] == name else None


def _replaced(name: str, digest: str, status: dict[str, Any]) -> Ending | None:
    """The daemon has read the desired config, and it is not ours, nor does the update under way lead to ours."""
    desired = status.get("desired_digest", "")
    if not desired or desired == digest or status.get("target") == name:
        return None
    if desired == status.get("current_digest"):
        why = f"the current config {status['desired']} is desired again"
        return Ending(UpdateOutcome.WITHDRAWN, "Withdrawn", why)
    why = f"{status['desired']} is desired instead"
    return Ending(UpdateOutcome.SUPERSEDED, "Superseded", why, successor=status["desired"])


def show(stack: ExitStack, *, silent: bool) -> Show:
    """What draws each status: a bar on a terminal, lines in a pipe, nothing for a program."""
    if silent:
        return lambda _status: None
    return _bar(stack) if on_terminal() else _lines()


def _lines() -> Show:
    last, stage, at = "", "", float("-inf")

    def line(status: dict[str, Any] | None) -> None:
        """A line for each phase and message at once; for steps of the same phase at most one in ``STEP_EVERY``."""
        nonlocal last, stage, at
        text = progress_line(status) if status else "the daemon was stopped or restarts; waiting for it"
        now_at = progress_line({**status, "step": None}) if status else text
        if text == last or (now_at == stage and time.monotonic() - at < STEP_EVERY):
            return
        if text != "Idle":  # before and after, which the command's last line says better
            now = local_now()
            print(f"{clock(now.isoformat(), now)}  {text}", flush=True)
        last, stage, at = text, now_at, time.monotonic()

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
