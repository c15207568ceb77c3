"""The daemon on the bus: ``org.nodeagent.Agent1``. Everybody may read; what changes something is polkit's decision."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Protocol

from nodeagent import __version__
from nodeagent.agent.report.report import Report
from nodeagent.core.coordination.maintenance import MaintenanceRequest
from nodeagent.core.report.status import Status
from nodeagent.core.update.events import Event, EventKind
from nodeagent.errors import InvalidInput
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import Message
from nodeagent.host.dbus.exporter import Exporter, Interface, Method, Property, Signal
from nodeagent.host.dbus.polkit import authorize, caller_name
from nodeagent.reasons import Reason

__all__ = ["NAME", "PATH", "Served", "serve"]

NAME = "org.nodeagent.Agent1"
PATH = "/org/nodeagent/Agent1"
MANAGER = f"{NAME}.Manager"
STATUS = f"{NAME}.Status"
ACTIONS = "org.nodeagent.agent1"

MAX_APPLY = 2 << 20
"""Bytes of a call with a config by others than root: more than an API server stores in one object (1.5 MiB)."""

MAX_APPLY_OF_ROOT = 32 << 20
"""What the system bus lets through."""


class Served(Protocol):
    """What is behind the interface: ``Api``, or ``Held`` while the daemon cannot work."""

    def status(self) -> str: ...

    async def apply(self, text: str) -> str: ...

    async def rollback(self) -> str: ...

    async def verify(self) -> str: ...

    async def history(self, limit: int) -> str: ...

    async def etcd_status(self) -> str: ...

    async def start_maintenance(self, caller: str, request: MaintenanceRequest) -> str: ...

    async def stop_maintenance(self, caller: str) -> None: ...

    async def reload(self) -> None: ...


class _Manager:
    def __init__(self, bus: Bus, api: Served) -> None:
        self._bus = bus
        self._api = api
        self._verifying = asyncio.Lock()  # reads every managed file: once at a time is enough

    async def apply(self, message: Message) -> Sequence[Any]:
        await authorize(self._bus, message, f"{ACTIONS}.apply")
        return (await self._api.apply(message.body[0]),)

    async def rollback(self, message: Message) -> Sequence[Any]:
        await authorize(self._bus, message, f"{ACTIONS}.rollback")
        return (await self._api.rollback(),)

    async def verify(self, message: Message) -> Sequence[Any]:
        await authorize(self._bus, message, f"{ACTIONS}.verify")
        async with self._verifying:
            return (await self._api.verify(),)

    async def history(self, message: Message) -> Sequence[Any]:
        return (await self._api.history(message.body[0]),)

    async def etcd_status(self, _message: Message) -> Sequence[Any]:
        return (await self._api.etcd_status(),)

    async def start_maintenance(self, message: Message) -> Sequence[Any]:
        await self._start(message, MaintenanceRequest(message.body[0]))
        return ()

    async def start_maintenance_with_options(self, message: Message) -> Sequence[Any]:
        reason, options = message.body
        return (await self._start(message, _request(reason, options)),)

    async def _start(self, message: Message, request: MaintenanceRequest) -> str:
        await authorize(self._bus, message, f"{ACTIONS}.maintenance")
        if request.power_off:
            await authorize(self._bus, message, f"{ACTIONS}.power-off")
        return await self._api.start_maintenance(await caller_name(self._bus, message), request)

    async def stop_maintenance(self, message: Message) -> Sequence[Any]:
        await authorize(self._bus, message, f"{ACTIONS}.maintenance")
        await self._api.stop_maintenance(await caller_name(self._bus, message))
        return ()

    async def reload(self, message: Message) -> Sequence[Any]:
        await authorize(self._bus, message, f"{ACTIONS}.reload")
        await self._api.reload()
        return ()

    def interface(self) -> Interface:
        return Interface(
            MANAGER,
            methods={
                # Options are for later; unknown ones are ignored, as D-Bus services of this field do.
                "Apply": Method(
                    self.apply,
                    "sa{sv}",
                    "s",
                    ("config", "options", "digest"),
                    max_size=MAX_APPLY,
                    max_size_for_root=MAX_APPLY_OF_ROOT,
                ),
                "Rollback": Method(self.rollback, "a{sv}", "s", ("options", "config")),
                "Verify": Method(self.verify, "", "s", ("report",)),
                "History": Method(self.history, "u", "s", ("limit", "updates")),
                "EtcdStatus": Method(self.etcd_status, "", "s", ("status",)),
                "StartMaintenance": Method(self.start_maintenance, "s", "", ("reason",)),
                "StartMaintenanceWithOptions": Method(
                    self.start_maintenance_with_options, "sa{sv}", "s", ("reason", "options", "status")
                ),
                "StopMaintenance": Method(self.stop_maintenance),
                "Reload": Method(self.reload),
            },
            signals={"UpdateFinished": Signal("ssi", ("digest", "entry", "exit_code"))},
        )


_OPTIONS: Mapping[str, type] = {"requester": str, "seconds": int, "drain": bool, "power_off": bool, "wait": bool}


def _request(reason: str, options: Mapping[str, Any]) -> MaintenanceRequest:
    """Unlike elsewhere, an option that we do not know is refused: who asks for something before the host goes off
    must not be told yes by an agent that will not do it."""
    for name, value in options.items():
        if type(value) is not _OPTIONS.get(name):
            raise InvalidInput(f"the option {name} is unknown, or of the wrong type", reason=Reason.BAD_OPTION)
    return MaintenanceRequest(reason, **options)


@asynccontextmanager
async def serve(bus: Bus, api: Served, report: Report) -> AsyncIterator[None]:
    """The name is ours inside, and every event is told as a change of the status."""
    status = Interface(
        STATUS, properties={"Status": Property("s", api.status), "Version": Property("s", lambda: __version__)}
    )
    async with Exporter(bus, NAME, PATH, [_Manager(bus, api).interface(), status]) as exporter:

        def tell(event: Event, _status: Status) -> None:
            exporter.changed(STATUS, "Status")
            if event.kind is EventKind.UPDATE_FINISHED:
                fields = event.fields
                entry = json.dumps(asdict(fields["entry"]))
                exporter.emit(MANAGER, "UpdateFinished", fields["digest"], entry, fields["exit_code"])

        report.add(tell)
        yield
