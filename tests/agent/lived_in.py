# SPDX-License-Identifier: Apache-2.0
"""A daemon whose files can be damaged, and what it must be able to do then."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli.status import view
from nodeagent.core.config import paths
from nodeagent.errors import AgentError
from nodeagent.host import boot
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.record import Record
from nodeagent.update.states import Phase
from tests.agent.whole_daemon import WholeDaemon, source
from tests.cli.daemon.conftest import NOW
from tests.host.store.store_data import entry, snapshots
from tests.support.fixtures import PrivateBus


@pytest.fixture
def host(tmp_path: Path, private_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch) -> WholeDaemon:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", private_bus.address)
    assert boot.identify.__kwdefaults__ is not None
    monkeypatch.setitem(boot.identify.__kwdefaults__, "pause", 0)  # No systemd answers here.
    monkeypatch.delitem(paths._TREES, "/tmp")  # Managed files of these tests are there.
    return WholeDaemon(tmp_path, private_bus.address)


OLD, NEW = source("old", {"/nowhere-of-nodeagent/a": "1"}), source("new", {"/nowhere-of-nodeagent/a": "2"})


async def lived_in(host: WholeDaemon) -> None:
    """A store with a row in each table, as a host has one that was updated often and is degraded just now."""
    await host.status()
    async with host.store() as store:
        for config in (OLD, NEW):
            await store.put_config(config)
        done = replace(entry(1), from_name="", to_name="old")
        await store.promote(Record(), OLD.digest, done)
        await store.promote(Record(), NEW.digest, done)
        await store.remember("u1", snapshots(1))
        await store.keep_originals(snapshots(2))
        await store.add_made_dirs(["/nowhere-of-nodeagent"])
        await store.take_lease(Holder("nodeagent", "u1", "update to new", "2026-01-01T00:00:00.000Z"))
        since = "2026-01-01T00:00:00.000Z"
        note = {"id": "m1", "requester": "root", "reason": "disk swap", "since": since}
        await store.keep_note("maintenance", json.dumps(note))
        await store.save(
            Record(
                phase=Phase.DEGRADED,
                reason="VerifyFailed",
                message="x",
                update_id="u1",
                from_digest=OLD.digest,
                to_digest=NEW.digest,
                to_name="new",
            )
        )
    host.policy.write_text("files: [{path: /etc/x, actions: [{type: None}]}]\n")
    host.policy.chmod(0o600)


async def is_useful(host: WholeDaemon, *, works: bool = True) -> dict[str, Any]:
    """Ready, with a status that every command can show, and obedient."""
    async with host.running() as client:
        status = await client.status()
        assert view(status, NOW)
        if works:
            with suppress(AgentError):
                await client.verify()
            with suppress(AgentError):
                await client.history(10)
            await client._call("Reload")
            await asyncio.sleep(0)
        status = await client.status()
    assert any(message.startswith("STATUS=") for message in host.notifier.messages)
    return status
