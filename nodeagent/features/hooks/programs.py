# SPDX-License-Identifier: Apache-2.0
"""Run the hooks of the admin beside the loop. They decide nothing, and no update waits for one.

A notice that is under way when nodeagent ends is lost, unless it is about the end of an update: the hooks of that run
again after the next start, by the history.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from nodeagent.errors import AgentError, Problem, Refused
from nodeagent.features.hooks.decide import (
    HOOKS,
    DeliveredEnds,
    HookEvent,
    Notice,
    delivered_of,
    delivered_text,
    end_key,
    end_notice,
    missed,
    notice_of,
)
from nodeagent.features.hooks.reasons import HookReason
from nodeagent.host.admin_programs import TransientProgram, unsafe_directory, unsafe_program, visible
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.programs import NotStarted
from nodeagent.report.status import Status
from nodeagent.update.ports.events import Event
from nodeagent.update.ports.host import Clock, Reporter
from nodeagent.update.ports.store import HistoryEntry

TOPIC: Final = "hooks"

# Hooks of one event. Each may take the time of the settings.
MAX_HOOKS: Final = 20

# Notices that wait for the hooks of earlier ones.
MAX_NOTICES: Final = 64

# The note with the last end whose hooks have run, and how many ends before a start are looked through.
NOTE: Final = "hooks"
MAX_MISSED: Final = 20

# Seconds before a hook is started again that could not be started.
PAUSES: Final = (1.0, 5.0)


class Ends(Protocol):
    """The history, and the notes of the store."""

    async def history(self, limit: int) -> Sequence[HistoryEntry]: ...

    async def note(self, key: str) -> str: ...

    async def keep_note(self, key: str, text: str) -> None: ...


@dataclass(eq=False)
class Hooks:
    """``sink`` is one of the report's. ``timeout`` is the longest time for one hook, in seconds.

    ``root`` is the directory of the events, whose owner must be root or this user.
    """

    timeout: float
    reporter: Reporter
    clock: Clock
    ends: Ends
    root: Path = Path(HOOKS)
    _notices: asyncio.Queue[tuple[Notice, str]] = field(default_factory=lambda: asyncio.Queue(MAX_NOTICES))
    _last: Notice | None = None
    _delivered: DeliveredEnds = field(default_factory=lambda: DeliveredEnds(""))

    async def load(self) -> None:
        """Take up the ends of updates whose hooks have not run, because nodeagent ended. Raises what the store does."""
        history = await self.ends.history(MAX_MISSED)
        delivered = delivered_of(await self.ends.note(NOTE))
        if delivered is None:
            # Nothing is known of what hooks got before.
            await self._keep(DeliveredEnds(end_key(history[0]) if history else ""))
            return
        self._delivered = delivered
        for entry in missed(history, delivered):
            self._put(end_notice(entry), entry.finished)

    def use(self, timeout: float) -> None:
        self.timeout = timeout

    def sink(self, event: Event, _status: Status) -> None:
        notice = notice_of(event)
        if notice is None or notice.repeats(self._last):
            return
        self._last = notice
        self._put(notice, self.clock.now())

    def _put(self, notice: Notice, time: str) -> None:
        # While it is full, hooks are failing, which the status has.
        if not self._notices.full():
            self._notices.put_nowait((notice, time))

    async def run(self) -> None:
        """Run the hooks of each notice, one after another, without end."""
        while True:
            notice, time = await self._notices.get()
            try:
                if notice.end:
                    await self._keep(self._delivered.trying(notice.end))
                await self._deliver(notice, time)
                if notice.end:
                    await self._keep(DeliveredEnds(notice.end))
            finally:
                self._notices.task_done()

    async def _keep(self, delivered: DeliveredEnds) -> None:
        self._delivered = delivered
        # Without it, hooks run twice after a restart.
        with suppress(AgentError):
            await self.ends.keep_note(NOTE, delivered_text(delivered))

    async def idle(self) -> None:
        """Return when the hooks of each notice have run."""
        await self._notices.join()

    async def _deliver(self, notice: Notice, time: str) -> None:
        try:
            hooks = await asyncio.to_thread(_find, self.root, notice.event)
        except AgentError as error:
            self.reporter.problem(TOPIC, error)
            return
        failures = [failure for hook in hooks if (failure := await self._run(hook, notice, time))]
        if failures:
            self.reporter.problem(TOPIC, Refused("; ".join(failures[:3]), reason=HookReason.HOOK_FAILED))
        elif hooks:
            self.reporter.solved(TOPIC, f"the hooks of {notice.event} ended without a failure")

    async def _run(self, path: Path, notice: Notice, time: str) -> str:
        """Return why a hook failed, "" if it did not."""
        program = TransientProgram(
            f"the hook {notice.event}/{path.name}",
            str(path),
            f"nodeagent-hook-{notice.event}-{path.name}.service",
            f"Hook {notice.event}/{path.name} of nodeagent",
            self.timeout,
            {"NODEAGENT_EVENT": notice.event, "NODEAGENT_CONFIG": notice.to_name},
            notice.text(os.uname().nodename, time),
        )
        for pause in (*PAUSES, None):
            try:
                return await program.run()
            except NotStarted as error:
                if pause is None:
                    return f"{program.about}: {error.message}"
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")


def _find(root: Path, event: HookEvent) -> Sequence[Path]:
    """Return the hooks in the order of their names. Raises ``Refused`` (``HookUnsafe``)."""
    directory = root / f"{event}.d"
    with translated("read", str(directory)):
        if not directory.exists():
            return ()
        problems = list(unsafe_directory(root))
        hooks = list(visible(directory))
        # A link, because one program may get several events.
        folders = [root / f"{name}.d" for name in HookEvent]
        problems += [Problem(str(path), message) for path in hooks for message in unsafe_program(path, folders)]
        problems += [problem for folder in folders if folder.exists() for problem in unsafe_directory(folder)]
    if len(hooks) > MAX_HOOKS:
        problems.append(Problem(str(directory), f"has {len(hooks)} hooks, more than {MAX_HOOKS}"))
    if problems:
        raise Refused(f"{problems[0].path} {problems[0].message}", reason=HookReason.HOOK_UNSAFE, problems=problems)
    return hooks
