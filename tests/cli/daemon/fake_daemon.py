# SPDX-License-Identifier: Apache-2.0
"""A daemon with answers of the test, on a private bus, in a thread of its own: the commands run their own loop."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from dbus_next import Message, MessageType, Variant

from nodeagent.errors import AgentError
from nodeagent.host.dbus.errors import to_bus
from nodeagent.installed import doors
from nodeagent.report.status import Status
from nodeagent.report.status_json import status_to_dict
from nodeagent.update.history.entry import entry_to_dict
from nodeagent.update.ports.store import HistoryEntry
from tests.support.fake_peer import FakePeer

NAME = "org.nodeagent.Agent1"
PATH = "/org/nodeagent/Agent1"
STATUS = "org.nodeagent.Agent1.Status"

IDLE: dict[str, Any] = {
    **status_to_dict(Status(), daemon="running"),
    "since": "2026-11-21T03:00:00.000Z",
    "current": "worker-1",
    "desired": "worker-1",
    "boot_id": "b1",
}


def entry(update_id: str = "u2", to: str = "worker-2", outcome: str = "done", **more: Any) -> dict[str, Any]:
    times = ("2026-11-21T03:00:00.000Z", "2026-11-21T03:00:12.500Z")
    made = HistoryEntry(update_id, "worker-1", to, *times, outcome, "reload", seconds=12.5)
    digest = ("d" if to == "worker-2" else "e") * 64
    return {**entry_to_dict(made), "reboot_avoided": outcome == "done", "to_digest": digest, **more}


class FakeDaemon:
    """``answers`` maps a method to what it returns, to an ``AgentError`` it fails with, or to a function of its
    arguments that does either. The one of ``Get`` is awaited before the value is read."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.status = dict(IDLE)
        self.history: list[dict[str, Any]] = []
        self.calls: list[tuple[str, list[Any]]] = []
        self.answers: dict[str, Any] = {"Apply": "d" * 64}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake daemon", daemon=True)
        self._thread.start()
        self._peer: FakePeer | None = None
        self.start()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def start(self) -> None:
        async def begin() -> None:
            peer = FakePeer(NAME)
            for member in (
                "Apply",
                "Plan",
                "Rollback",
                "Cancel",
                "Reboot",
                "RequestReboot",
                "Verify",
                "VerifyDiff",
                "Config",
                "History",
                "Update",
                "Reload",
                *(method.name for door in doors() for method in door.methods),
            ):
                peer.on(member, self._method)
            peer.on("Get", self._get)
            self._peer = await peer.start(self.address)

        self._run(begin())

    def stop(self) -> None:
        if self._peer is not None:
            self._run(self._peer.stop())
            self._peer = None

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def change(self, **fields: Any) -> None:
        """Set these fields of the status and emit the change. From any thread."""
        self.status = {**self.status, **fields}

        async def emit() -> None:
            if self._peer is not None:
                changed = {"Status": Variant("s", json.dumps(self.status))}
                await self._peer.emit(
                    PATH, "org.freedesktop.DBus.Properties", "PropertiesChanged", "sa{sv}as", (STATUS, changed, [])
                )

        asyncio.run_coroutine_threadsafe(emit(), self._loop)

    def finish(self, code: int, digest: str = "d" * 64, **entry: Any) -> None:
        """Report the end of an update, with these values of its entry. From any thread."""
        asyncio.run_coroutine_threadsafe(self.finished(code, digest, entry), self._loop)

    async def finished(self, code: int, digest: str, entry: dict[str, Any]) -> None:
        if self._peer is not None:
            body = (digest, json.dumps(entry), code)
            await self._peer.emit(PATH, "org.nodeagent.Agent1.Manager", "UpdateFinished", "ssi", body)

    def later(self, *steps: tuple[float, Callable[[], object]]) -> None:
        """Run each function so many seconds after the previous one."""

        def play() -> None:
            for seconds, step in steps:
                threading.Event().wait(seconds)
                step()

        threading.Thread(target=play, daemon=True).start()

    async def _get(self, message: Message) -> Any:
        if "Get" in self.answers:
            await self.answers["Get"]()
        interface, name = message.body
        assert interface == STATUS
        return "v", [Variant("s", {"Status": json.dumps(self.status), "Version": "9.9"}[name])]

    async def _method(self, message: Message) -> Any:
        self.calls.append((message.member, list(message.body)))
        answer = self.answers.get(message.member)
        if callable(answer):
            answer = answer(*message.body)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, AgentError):
            assert self._peer is not None
            name, body = to_bus(answer)
            await self._peer.bus.send(
                Message(
                    message_type=MessageType.ERROR,
                    destination=message.sender,
                    reply_serial=message.serial,
                    error_name=name,
                    signature="ss",
                    body=list(body),
                )
            )
            return None
        if message.member == "History":
            answer = json.dumps({"schema": "nodeagent/history/v1", "updates": self.history[: message.body[0]]})
        if message.member in ("StartMaintenance", "ChangeEtcdMember"):
            answer = json.dumps(self.status)
        return ("", []) if answer is None else ("s", [answer])
