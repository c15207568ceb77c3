# SPDX-License-Identifier: Apache-2.0
"""The pending request for a reboot: kept in the store before it takes effect, and made by operators and by files."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from nodeagent.errors import AgentError, Cause, Refused
from nodeagent.features.reboot_on_request.decide import (
    MAX_TEXT,
    NOTE,
    Noted,
    RebootRequest,
    RebootRequestChanged,
    RebootRequiredChanged,
    RebootRequirement,
    RequestSource,
    after_boot,
    from_text,
    holds,
    may_follow,
    to_text,
)
from nodeagent.features.reboot_on_request.reasons import RebootRequestReason
from nodeagent.features.reboot_on_request.run_files import (
    REQUIRED,
    read_request,
    read_requirement,
    remove_request,
)
from nodeagent.features.reboot_on_request.settings import RebootRequestSettings
from nodeagent.tasks import pause
from nodeagent.update.history.lasting import RequestedReboot
from nodeagent.update.ports.host import Clock, Reporter
from nodeagent.update.ports.store import Notes
from nodeagent.update.stages.guard import RebootRequests

# Seconds between two looks at the files.
POLL: Final = 30.0

TOPIC: Final = "reboot-request"
REQUIRED_TOPIC: Final = "reboot-required"


@dataclass(eq=False)
class KeptRequests(RebootRequests):
    """``boot_id`` is the identity of this boot. ``on_change`` is called when a request came or went. ``root`` is the
    directory of the files."""

    notes: Notes
    reporter: Reporter
    clock: Clock
    boot_id: str
    _: KW_ONLY
    settings: RebootRequestSettings
    on_change: Callable[[], None]
    root: str = "/"
    _noted: Noted = field(default_factory=Noted, init=False)
    _waits: str = field(default="", init=False)
    _requirement: RebootRequirement | None = field(default=None, init=False)
    # The file could not be removed, or is refused: it is read again when it has gone.
    _stuck: bool = field(default=False, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # Held from the read of what is noted until its successor is in the store.
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def use(self, settings: RebootRequestSettings) -> None:
        self.settings = settings
        self._stuck = False
        self._wake.set()

    # For the update.

    def pending(self) -> RequestedReboot | None:
        pending = self._noted.pending
        return pending.reboot if pending is not None and not pending.is_answered(self.boot_id) else None

    @property
    def taken(self) -> str:
        """The value of the annotation that was taken last."""
        return self._noted.answered

    @property
    def of_node(self) -> str:
        """The id of the pending request of the Node, "" without one."""
        pending = self._noted.pending
        return pending.id if pending is not None and pending.source is RequestSource.NODE else ""

    @property
    def ended_here(self) -> bool:
        """Whether a request ended in this boot without a reboot."""
        return self._noted.ended_boot == self.boot_id

    def waits(self, cause: Cause) -> None:
        if self._waits != (words := str(cause)):
            self._waits = words
            self._emit("")

    async def drop(self, request: str, cause: str) -> None:
        async with self._changing:
            pending = self._noted.pending
            if pending is None or pending.id != request:
                return
            await self._keep(replace(self._noted, pending=None, ended_boot=self.boot_id))
            self._waits = ""
            self._emit(f"{pending.words}: {cause}")

    # Requests.

    async def load(self) -> None:
        """Load what is stored. The boot of this start may have answered it."""
        self._noted = from_text(await self.notes.note(NOTE))
        pending, noted = self._noted.pending, after_boot(self._noted, self.boot_id)
        if noted is not self._noted and pending is not None:
            await self._keep(noted)
            self._emit(f"{pending.words}: the host has rebooted")
        else:
            self._emit("")

    async def request(
        self,
        source: RequestSource,
        requester: str,
        purpose: str = "",
        *,
        at_once: bool = False,
        boot_staged: bool = False,
        options: dict[str, str] | None = None,
        value: str = "",
    ) -> RebootRequest:
        """Return the request that holds, which is in the store by then. Raises what the store raises."""
        new = RebootRequest(
            uuid.uuid4().hex,
            source,
            requester,
            self.clock.now(),
            self.boot_id,
            purpose,
            at_once,
            boot_staged,
            options or {},
            value,
        )
        async with self._changing:
            held = holds(self._noted.pending, new)
            # A value of the Node is noted even where another request holds, because it is answered like that one.
            if held is new or value:
                await self._keep(replace(self._noted, pending=held, answered=value or self._noted.answered))
            if held is new:
                self._waits = ""
                self._emit(new.words)
        self.on_change()
        return held

    async def run(self) -> None:
        """Look at the files, without end."""
        while True:
            self._wake.clear()
            await self.look()
            await pause(POLL, self._wake)

    async def look(self) -> None:
        """Take the request of the file, and what the host requires, once."""
        await self._reporting(TOPIC, self._take_file)
        await self._reporting(REQUIRED_TOPIC, self._take_requirement)

    async def _reporting(self, topic: str, take: Callable[[], object]) -> None:
        try:
            await take()  # type: ignore[misc]
        except AgentError as error:
            self.reporter.problem(topic, error)
        else:
            self.reporter.solved(topic, "the files that request a reboot are read again")

    async def _take_file(self) -> None:
        path = self.settings.request_file
        purpose = await asyncio.to_thread(read_request, path, root=self.root) if path else None
        if purpose is None:
            self._stuck = False
            return
        if self._stuck:
            raise Refused(f"{path} cannot be removed", reason=RebootRequestReason.REBOOT_FILE_UNSAFE)
        self._check_pause(path)
        # It is in the store before the file goes, so a kill in between loses no request, and this boot has one only.
        held = await self.request(RequestSource.FILE, path, purpose)
        try:
            await asyncio.to_thread(remove_request, path, root=self.root)
        except AgentError as error:
            self._stuck = True
            if held.source is RequestSource.FILE:
                await self.drop(held.id, error.message)
            raise

    async def _take_requirement(self) -> None:
        requirement = await asyncio.to_thread(read_requirement, root=self.root)
        if requirement != self._requirement:
            self._requirement = requirement
            self.reporter.emit(RebootRequiredChanged(requirement))
        if requirement is None or self.settings.when_required != "obey":
            return
        # An operator who took such a request back does not want the next look to make it again.
        if self._noted.pending is not None or self._noted.ended_boot == self.boot_id:
            return
        self._check_pause(REQUIRED)
        await self.request(RequestSource.REQUIRED, REQUIRED, ", ".join(requirement.packages)[:MAX_TEXT])

    def _check_pause(self, path: str) -> None:
        if not may_follow(self._noted, self.clock.now(), self.settings.request_pause):
            message = f"{path} requests a reboot, and the last one that a file requested was at {self._noted.by_file}"
            raise Refused(message, reason=RebootRequestReason.REBOOT_TOO_SOON)

    async def _keep(self, noted: Noted) -> None:
        await self.notes.keep_note(NOTE, to_text(noted))
        self._noted = noted

    def _emit(self, message: str) -> None:
        self.reporter.emit(RebootRequestChanged(self._noted.pending, self._waits, message))
