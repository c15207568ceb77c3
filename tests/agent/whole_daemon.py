# SPDX-License-Identifier: Apache-2.0
"""The whole daemon in this process, on a private bus, with a store, settings and a policy of the test's own."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

from nodeagent.agent import daemon
from nodeagent.agent.last_good_settings import FoundSettings, read_settings
from nodeagent.cli._client import Client
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.host.dbus.client import Bus
from nodeagent.host.notify import Notifier
from nodeagent.host.store.rows import to_json
from nodeagent.host.store.store import SqliteStore
from nodeagent.update.ports.coordination import Holder

# Seconds for a whole test. Its steps take two on a machine without load, and a load of 20 makes it forty.
PATIENCE = 240.0


def source(name: str, files: dict[str, str] | None = None, *, more: str = "") -> ConfigSource:
    """A MachineConfig with these files, as text. ``more`` are further lines at its end."""
    lines = ["apiVersion: machineconfiguration.openshift.io/v1", "kind: MachineConfig", f"metadata: {{name: {name}}}"]
    lines += ["spec:", "  config:", "    ignition: {version: 3.4.0}"]
    if files:
        lines += ["    storage:", "      files:"]
        lines += [
            f"      - {{path: {path}, mode: 420, overwrite: true, contents: {{source: 'data:,{text}'}}}}"
            for path, text in files.items()
        ]
    text = ("\n".join(lines) + "\n" + more).encode()
    return ConfigSource(name, hashlib.sha256(text).hexdigest(), text)


class ReadyNotifier(Notifier):
    def __init__(self) -> None:
        super().__init__("")
        self.messages: list[str] = []
        self.is_ready = asyncio.Event()

    def _send(self, message: str) -> None:
        self.messages.append(message)
        if message == "READY=1":
            self.is_ready.set()


class WholeDaemon:
    def __init__(self, directory: Path, address: str) -> None:
        self.directory = directory
        self.address = address
        self.fragments = directory / "config.d"
        self.fragments.mkdir()
        self.state = directory / "state"
        self.state.mkdir(mode=0o700)
        self.desired = directory / "desired.yaml"
        self.policy = directory / "policy.yaml"
        self.policy.write_text("files: []\n")
        self.policy.chmod(0o600)
        self.motd = directory / "motd.d/50-nodeagent"
        self.settings = self.fragments / "10-test.yaml"
        self.settings.write_text(
            f"node_name: worker-1\nstate_dir: {self.state}\npolicy: {self.policy}\ndesired_config: {self.desired}\n"
            f'metrics:\n  file: ""\nactions:\n  settle: 0\n'
        )

    @property
    def database(self) -> Path:
        return self.state / "state.db"

    def store(self) -> SqliteStore:
        return SqliteStore(self.database)

    def hold_lease(self) -> None:
        """Give the lease of this host to an operator, beside the daemon."""
        held = Holder("maintenance:jane", "m1", "disk swap", "2026-01-01T00:00:00.000Z")
        self._change("INSERT INTO lease (id, json) VALUES (1, ?)", to_json(held))

    def free_lease(self) -> None:
        self._change("DELETE FROM lease")

    def _change(self, statement: str, *values: str) -> None:
        with closing(sqlite3.connect(self.database)) as db, db:
            db.execute(statement, values)

    def read(self) -> FoundSettings:
        return read_settings([str(self.fragments)])

    @asynccontextmanager
    async def running(self, limit: float = PATIENCE) -> AsyncIterator[Client]:
        """Run a daemon from READY to its end; an error that ends the daemon is raised. ``limit`` is in seconds."""
        notifier = ReadyNotifier()
        self.notifier = notifier
        found = await asyncio.to_thread(self.read)
        run = daemon.run(
            found.settings,
            notifier,
            error=found.error,
            read=self.read,
            motd=str(self.motd),
            under_way=f"{self.motd}.held",
        )
        life = asyncio.create_task(run)
        ready = asyncio.create_task(notifier.is_ready.wait())
        try:
            async with asyncio.timeout(limit):
                await asyncio.wait({life, ready}, return_when=asyncio.FIRST_COMPLETED)
                if life.done():
                    life.result()
                async with Bus(self.address) as bus:
                    yield Client(bus)
            if life.done():
                life.result()
        finally:
            for task in (ready, life):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def status(self) -> dict[str, Any]:
        async with self.running() as client:
            return await client.status()
