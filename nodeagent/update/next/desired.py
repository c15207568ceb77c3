# SPDX-License-Identifier: Apache-2.0
"""Read the desired config and the request for it, each time from its source."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from nodeagent.core.config.ignition_document import as_machine_config
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.config.parse import parse
from nodeagent.core.once import Once
from nodeagent.errors import AgentError, InvalidInput, Retryable, Unreachable
from nodeagent.update.next.preflight import Desired
from nodeagent.update.next.requests import Requests, note_cancellation, takeover_by, unusable
from nodeagent.update.ports.events import DesiredChanged
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.run import Ports, Update
from nodeagent.update.states import Prepare


async def parse_desired(text: bytes) -> Desired:
    """Parse a MachineConfig or an Ignition config in a thread, because ten megabytes take a tenth of a second."""

    def read() -> Desired:
        document = as_machine_config(text)
        config = parse(document)
        return Desired(ConfigSource(config.name, hashlib.sha256(document).hexdigest(), document), config)

    return await asyncio.to_thread(read)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSource:
    """Another source of the desired config. No command of this host changes what it desires.

    ``read`` returns the config without waiting for another host, None if the source names none. ``retry`` returns how
    an operator requests a rejected config of this name again. ``complete`` returns whether a config of this name has
    all that its author wants, so that it may remove most of the entries.
    """

    read: Callable[[], Awaitable[ConfigSource | None]]
    retry: Callable[[str], str]
    complete: Callable[[str], bool]


class DesiredReader:
    """``source`` reads the desired config; None means that there is none.

    ``requested``: an operator requested a config while this process ran.
    """

    def __init__(self, ports: Ports, source: Callable[[], Awaitable[Desired | None]]) -> None:
        self.requests = Requests(ports)
        self.requested = False
        self.source = source
        self._ports = ports
        # Held from a request in the store until the desired config that it is for is written.
        self._recording = asyncio.Lock()
        # Digest of the desired config that was reported last.
        self._reported = Once[str]()

    @contextlib.asynccontextmanager
    async def recorded(self, request: ApplyRequest, desired: Desired | None) -> AsyncIterator[None]:
        """Store ``request``, and write its config as the desired one inside the context.

        With ``desired``, the end of the request is reported.
        """
        # The request is stored first. A kill in between leaves a request for a config that is not desired, which is
        # dropped; the other order would lose the request.
        async with self._recording:
            await self._ports.store.keep_request(request)
            try:
                yield
            except AgentError:
                await self._ports.store.drop_request(request.digest)
                raise
        if desired is not None:
            self.requests.add(desired)
        self.requested = self.requested or not request.cancel

    async def with_request(self) -> tuple[Desired | None, ApplyRequest | None]:
        """Return the desired config, and the request for it, or the cancellation of any update.

        A request for another config ends.
        """
        async with self._recording:
            store = self._ports.store
            # A request and its config are written under this lock, so that both are read from before or after it.
            request = await store.request()
            try:
                desired = await self.read()
            except InvalidInput:
                if request is not None:
                    await store.drop_request(request.digest)
                raise
            if (
                request is not None
                and not request.cancel
                and (desired is None or desired.source.digest != request.digest)
            ):
                await store.drop_request(request.digest)
                request = None
            return desired, request

    async def read(self) -> Desired | None:
        """Return the desired config, and end pending requests for other configs."""
        # Requests that arrive during the read are for a later config, and do not end.
        number = self.requests.number
        try:
            desired = await self.source()
        except (Retryable, Unreachable):
            raise
        except AgentError as error:
            await self.requests.replaced(number, "", unusable(error))
            raise
        digest = desired.source.digest if desired else ""
        await self.requests.replaced(number, digest, await takeover_by(self._ports, desired))
        return desired

    async def superseded(self, update: Update) -> bool:
        """Return whether another config is desired by now, and note it in ``update.takeover``.

        A config that cannot be used is another one, unless it may be read in a moment. An operator who cancelled the
        update does not desire its config, whatever the source names.
        """
        await note_cancellation(self._ports, update)
        if update.cancelled is not None:
            update.takeover = update.cancelled
            return True
        try:
            desired = await self.read()
        except (Retryable, Unreachable):
            return False
        except AgentError as error:
            update.takeover = unusable(error)
            return update.record.reboot is None
        if update.record.reboot is not None:
            digest = desired.source.digest if desired is not None else ""
            if update.record.reboot.at_once or update.beside in (None, digest):
                return False
            update.takeover = await takeover_by(self._ports, desired)
            return True
        if desired is not None and desired.source.digest == update.desired_digest:
            await self._adopt(update)
            return False
        update.takeover = await takeover_by(self._ports, desired)
        return True

    async def _adopt(self, update: Update) -> None:
        """Give an update that wrote nothing yet the delay of a newer request for the same config, or none."""
        async with self._recording:
            store = self._ports.store
            request = await store.request()
            if request is None or request.digest != update.digest or not isinstance(update.record.leg, Prepare):
                return
            if not request.cancel and request.hold != update.record.lasting.hold:
                update.mark(lasting=replace(update.record.lasting, hold=request.hold))
                await update.save(self._ports)
                await store.drop_request(request.digest)

    def report(self, desired: Desired | None) -> None:
        """Report each change of the desired config once.

        At rest, only when it is known what follows: ``Degraded`` is about the config that the status names as the
        desired one.
        """
        name, digest = (desired.config.name, desired.source.digest) if desired else ("", "")
        if self._reported.is_new(digest):
            self._ports.reporter.emit(DesiredChanged(name, digest))

    def report_again(self) -> None:
        """Report the desired config at the next opportunity, because the status names the target of a failed update."""
        self._reported.forget()
