# SPDX-License-Identifier: Apache-2.0
"""Runs the installed daemon and ends it at a point that a test names: no hook in the agent is needed for that.

Started by the bundle's own interpreter instead of /usr/bin/nodeagent (a drop-in of the test changes ExecStart). Every
event of an update and every call that changes the host or the store is a point, counted from the start of the update.
In /var/lib/killpoint, `points` lists those of the present update as lines `NUMBER NAME`, and `at` holds `HOW POINT`,
the point by its number or its name:

    kill    SIGKILL at that point, as the OOM killer would
    stop    nothing moves any more, and `reached` appears: for a test that cuts the power then

The file is removed first, so that it counts once. A name is `EVENT STEP`, or `before` or `after` and the call.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any

HOME = Path("/usr/lib/nodeagent")
PLACE = Path("/var/lib/killpoint")
AT, POINTS, REACHED = PLACE / "at", PLACE / "points", PLACE / "reached"

EVENTS = {
    "UpdateStarted": "update-started",
    "PhaseEntered": "phase",
    "StepStarted": "step-started",
    "StepDone": "step-done",
    "StepSkipped": "step-skipped",
    "StepFailed": "step-failed",
    "UpdateDone": "update-done",
}
CALLS = {
    "nodeagent.host.fs.files:HostFiles": ("install", "remove"),
    "nodeagent.host.systemd:Systemd": ("daemon_reload", "reload", "restart", "start", "stop", "reset_failed"),
    "nodeagent.host.users:HostUsers": ("set_password_hash", "lock"),
    "nodeagent.host.store.store:SqliteStore": (
        *("save", "remember", "keep_originals", "forget_originals", "add_made_dirs", "promote"),
        *("take_lease", "drop_lease"),
    ),
}
OUTSIDE = 10_000  # no test asks for a point with such a number

_count = OUTSIDE


def point(name: str) -> None:
    global _count
    _count += 1
    with POINTS.open("a") as points:
        points.write(f"{_count} {name}\n")
    if not AT.exists():
        return
    how, wanted = AT.read_text().split(" ", 1)
    if wanted not in (str(_count), name):
        return
    AT.unlink()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    REACHED.touch()
    while True:
        signal.pause()


def watch_events(report: Any) -> None:
    original = report.emit

    def emit(self: Any, event: Any) -> None:
        global _count
        kind = EVENTS.get(type(event).__name__)
        if kind == "update-started":
            _count = 0
            POINTS.unlink(missing_ok=True)
        original(self, event)
        if kind is not None:
            point(f"{kind} {event.step.name if hasattr(event, 'step') else event.about.phase}")
        if kind == "phase" and event.about.phase == "Idle":
            _count = OUTSIDE

    report.emit = emit


def watch_calls(adapter: Any, names: tuple[str, ...]) -> None:
    def watched(name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(call)
        async def method(self: Any, *args: Any, **options: Any) -> Any:
            what = f"{name} {args[0]}" if args and isinstance(args[0], str) else name
            point(f"before {what}")
            result = await call(self, *args, **options)
            point(f"after {what}")
            return result

        return method

    for name in names:
        setattr(adapter, name, watched(name, getattr(adapter, name)))


def main() -> None:
    sys.path.append(str(next((HOME / "lib").glob("python3*/site-packages"))))
    from importlib import import_module

    PLACE.mkdir(exist_ok=True)
    watch_events(import_module("nodeagent.agent.report.report").Report)
    for adapter, names in CALLS.items():
        module, _, name = adapter.partition(":")
        watch_calls(getattr(import_module(module), name), names)
    sys.argv = ["nodeagent", "daemon"]
    import_module("nodeagent.cli.main").entry()


main()
