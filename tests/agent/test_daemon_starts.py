# SPDX-License-Identifier: Apache-2.0
"""The daemon always starts: whatever its files hold, it is ready, says what is wrong, and goes on where it can."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from nodeagent.agent import daemon, supervise, tidying
from nodeagent.agent.api import Api
from nodeagent.agent.report.dbus import MANAGER, NAME, PATH
from nodeagent.cli._client import Client
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.errors import AgentError
from nodeagent.host.dbus.client import Bus
from nodeagent.host.store.rows import checksum
from nodeagent.update.next.preflight import Desired
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.record import Record
from nodeagent.update.states import Apply, Phase
from tests.agent.lived_in import host, is_useful, lived_in
from tests.agent.whole_daemon import WholeDaemon, source
from tests.host.fake_logind import FakeLogind
from tests.host.store.store_data import entry
from tests.support import damage
from tests.support.disk import needs_root
from tests.support.fixtures import private_bus
from tests.support.needs import acts_as_root

__all__ = ["host", "private_bus"]


async def phase(client: Client) -> str:
    """ "" in the moment in which the name has no owner."""
    try:
        return str((await client.status())["phase"])
    except AgentError:
        return ""


@pytest.mark.finding(
    "daemon: a start with damaged files",
    "Invalid settings at a start are a problem in the status; the last valid settings are used.",
)
@acts_as_root
async def test_invalid_settings_are_replaced_by_the_last_valid_ones(host: WholeDaemon) -> None:
    host.settings.write_text(host.settings.read_text() + "on_failure: degraded\n")
    assert (await host.status())["problems"] == []
    (host.fragments / "60-bad.yaml").write_text("rebot:\n  allow: false\n")
    async with host.running() as client:
        status = await client.status()
        assert (status["phase"], status["reason"]) == ("Idle", "")
        (problem,) = status["problems"]
        assert (problem["topic"], problem["reason"]) == ("settings", "SettingsInvalid")
        assert "unknown key rebot" in problem["message"]
        with pytest.raises(AgentError, match="unknown key rebot"):
            await client._call("Reload")
        (host.fragments / "60-bad.yaml").unlink()
        await client._call("Reload")
        assert (await client.status())["problems"] == []


@pytest.mark.finding(
    "daemon: a start with damaged files",
    "Where no valid settings were ever known, the daemon is up, Degraded, and changes nothing.",
)
@acts_as_root
async def test_without_valid_settings_it_does_nothing_until_there_are_some(host: WholeDaemon) -> None:
    good = host.settings.read_text()
    host.settings.write_text(good + "reboot: {alow: false}\n")
    async with host.running() as client:
        status = await client.status()
        assert (status["phase"], status["reason"]) == ("Degraded", "SettingsInvalid")
        assert "reboot.alow" in status["message"]
        with pytest.raises(AgentError) as caught:
            await client.verify()
        assert caught.value.reason == "SettingsInvalid"
        host.settings.write_text(good)
        await client._call("Reload")
        while await phase(client) != "Idle" or host.notifier.messages.count("READY=1") < 2:
            await asyncio.sleep(0.02)


@pytest.mark.finding(
    "daemon: a start with damaged files, store: damaged content",
    "Damaged settings, policy, desired config or store: the daemon is ready, with a useful status.",
)
@pytest.mark.parametrize("way", damage.FILES)
async def test_damaged_settings(host: WholeDaemon, way: str) -> None:
    await lived_in(host)
    bad = host.fragments / "60-bad.yaml"
    bad.write_text("reboot: {allow: false}\nlog: {level: debug}\n")
    damage.FILES[way](bad)
    status = await is_useful(host, works=False)
    assert (status["phase"], status["reason"]) == ("Degraded", "VerifyFailed")
    fine = way in ("empty", "missing", "a pipe")
    assert [problem["topic"] for problem in status["problems"]] == [] if fine else ["settings"]


@pytest.mark.long
@pytest.mark.finding(
    "daemon: a start with damaged files, store: damaged content",
    "Damaged settings, policy, desired config or store: the daemon is ready, with a useful status.",
)
@pytest.mark.finding(
    "daemon: a start with damaged files, store: damaged content",
    "Damaged settings, policy, desired config or store: the daemon is ready, with a useful status.",
)
@acts_as_root
@pytest.mark.parametrize("name", ["policy", "desired"])
async def test_damaged_policy_and_desired_config(host: WholeDaemon, name: str) -> None:
    await lived_in(host)
    for way, damaged in damage.FILES.items():
        path = getattr(host, name)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        path.write_text("files: []")
        path.chmod(0o600)
        damaged(path)
        status = await is_useful(host)
        assert status["daemon"] == "running", way


@pytest.mark.finding(
    "daemon: a start with damaged files, daemon: no bug ends it",
    "A bug in the start, in a maintenance or in a change of the etcd member is reported and tried again; it does not "
    "end each new process.",
)
async def test_a_bug_in_the_start_is_shown(host: WholeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = tidying.sweep

    async def fail(*_: Any) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(tidying, "sweep", fail)
    async with host.running() as client:
        status = await client.status()
        assert (status["phase"], status["reason"]) == ("Degraded", "InternalError")
        assert "KeyError in the start of the daemon" in status["message"]
        assert "secret" not in status["message"]
        monkeypatch.setattr(tidying, "sweep", sweep)
        await client._call("Reload")
        while await phase(client) != "Idle":
            await asyncio.sleep(0.02)


async def survives_bugs_of(manager: type, host: WholeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new process would fail in the same way."""
    times = [0]

    async def fail(_self: object) -> None:
        times[0] += 1
        raise KeyError("a bug")

    monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(manager, "_advance", fail)
    async with host.running() as client:
        while times[0] < 3:
            await asyncio.sleep(0.01)
        assert (await client.status())["daemon"] == "running"


@pytest.mark.long
@pytest.mark.finding(
    "store: damaged rows",
    "Rows that are damaged in any way, also nested too deep, leave the daemon up with a status.",
)
@acts_as_root
async def test_damaged_rows(host: WholeDaemon) -> None:
    await lived_in(host)
    whole = host.database.read_bytes()
    ways = itertools.cycle(damage.VALUES.items())
    for table, column in list(damage.columns(host.database)):
        # Each way for the record, and some for each of the others: a start takes 50 ms.
        for way, value in damage.VALUES.items() if (table, column) == ("record", "json") else itertools.islice(ways, 4):
            host.database.write_bytes(whole)
            try:
                damage.damage_row(host.database, table, column, value)
            except sqlite3.Error:
                continue  # what the schema does not take
            status = await is_useful(host)
            assert status["daemon"] == "running", (table, column, way)
            if table == "record" and column != "id":
                assert (status["phase"], status["reason"]) == ("Degraded", "StoreCorrupt"), (column, way)


@pytest.mark.finding(
    "daemon: a start with damaged files, store: damaged content",
    "Damaged settings, policy, desired config or store: the daemon is ready, with a useful status.",
)
@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=needs_root if way == "of another user" else ()) for way in damage.STORE_FILES],
)
@pytest.mark.finding(
    "daemon: a start with damaged files, store: damaged content",
    "Damaged settings, policy, desired config or store: the daemon is ready, with a useful status.",
)
async def test_damaged_store(host: WholeDaemon, way: str) -> None:
    await lived_in(host)
    damage.STORE_FILES[way](host.database)
    there = host.database.lstat() if host.database.exists() else None
    status = await is_useful(host, works=False)
    if way == "missing":
        assert (status["phase"], status["reason"]) == ("Idle", "")
        return
    assert status["phase"] == "Degraded"
    assert status["reason"] in (
        "StoreCorrupt",
        "StoreTooNew",
        "ForeignStore",
        "LinkRefused",
        "NotADirectory",
        "NotAFile",
    )
    if there is not None:
        assert host.database.lstat().st_ino == there.st_ino


@pytest.fixture
async def logind(host: WholeDaemon) -> AsyncIterator[FakeLogind]:
    async with await FakeLogind().start(host.address) as logind:
        yield logind


async def on(host: WholeDaemon, current: ConfigSource) -> None:
    """A host on which ``current`` was applied by an earlier version."""
    await host.status()
    async with host.store() as store:
        await store.put_config(current)
        await store.promote(Record(), current.digest, entry(1))


@pytest.mark.finding(
    "store: damaged content",
    "A current config that a newer version rejects is read leniently, or counts as unknown; a new one is applied.",
)
@acts_as_root
@pytest.mark.usefixtures("logind")
@pytest.mark.parametrize("more", ["  unknownKey: 1\n", "x: [\n"])
async def test_a_current_config_that_this_version_rejects(
    host: WholeDaemon, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Callable[[str], Awaitable[Desired]]] = []

    def made(*ports: Any, load: Callable[[str], Awaitable[Desired]], **others: Any) -> Api:
        loads.append(load)
        return Api(*ports, load=load, **others)

    monkeypatch.setattr(daemon, "Api", made)
    a, b = (host.directory / name for name in "ab")
    for path in (a, b):
        path.write_text("1")
        path.chmod(0o644)
    host.policy.write_text(f"files: [{{path: {host.directory}, actions: [{{type: None}}]}}]\n")
    host.policy.chmod(0o600)
    old = source("old", {str(a): "1", str(b): "1"}, more=more)
    await on(host, old)
    understood = more.startswith(" ")
    async with host.running() as client:
        if understood:
            assert (await client.verify())["ok"]
            (problem,) = (await client.status())["problems"]
            assert (problem["topic"], problem["reason"]) == ("config", "StoredConfigInvalid")
            assert "unknown key" in problem["message"]
        new = source("new", {str(a): "2"})
        await client.apply(new.text.decode())
        while (await client.status())["current"] != "new":
            await asyncio.sleep(0.02)
        assert a.read_text() == "2"
        assert b.exists() is not understood  # An unreadable entry cannot be removed either.
        assert (await client.status())["problems"] == []
        if understood:
            # A task that began with the old config may still be loading it.
            await loads[-1](old.digest)
            assert (await client.status())["problems"] == []
        with pytest.raises(AgentError) as caught:
            await client.rollback()
        assert caught.value.reason == "InvalidInput"


@pytest.mark.finding(
    "store: records of newer versions",
    "A record of a newer version is kept, with what its update holds, until an operator applies a config.",
)
@acts_as_root
@pytest.mark.usefixtures("logind")
async def test_a_record_of_a_newer_version_is_held_until_an_operator_decides(host: WholeDaemon) -> None:
    await on(host, source("old"))
    async with host.store() as store:
        await store.save(Record(Phase.WRITING, Apply(), update_id="u9", to_digest="d", to_name="newer"))
        await store.take_lease(Holder("nodeagent", "u9", "update to newer", "2026-01-01T00:00:00.000Z"))
    with closing(sqlite3.connect(host.database)) as db:
        (text,) = db.execute("SELECT json FROM record").fetchone()
        newer = json.dumps({**json.loads(text), "phase": "Pondering"})
        db.execute("UPDATE record SET json = ?, sum = ?", (newer, checksum(newer)))
        db.commit()
    desired = source("new")
    host.desired.write_bytes(desired.text)
    host.desired.chmod(0o600)
    async with host.running() as client:
        status = await client.status()
        assert (status["phase"], status["reason"]) == ("Degraded", "RecordTooNew")
        assert status["lease"]["operation"] == "u9"
        await asyncio.sleep(0.2)
    async with host.store() as store:
        assert (await store.current(), (await store.lease()) is not None) == (source("old").digest, True)
    with closing(sqlite3.connect(host.database)) as db:
        assert db.execute("SELECT json FROM record").fetchone() == (newer,)
    async with host.running() as client:
        await client.apply(desired.text.decode())
        while (await client.status())["current"] != "new":
            await asyncio.sleep(0.02)
        status = await client.status()
        assert (status["phase"], status["lease"]) == ("Idle", None)
    async with host.store() as store:
        assert await store.note("record-set-aside") == newer


@pytest.mark.finding(
    "policy: read again by a reload", "A reload reads the policy again: its problem comes and goes with the file."
)
@acts_as_root
async def test_a_reload_reads_the_policy_again(host: WholeDaemon) -> None:
    await lived_in(host)

    async def reload(bus: Bus, text: str) -> list[str]:
        host.policy.write_text(text)
        await bus.call(NAME, PATH, MANAGER, "Reload")
        status = await Client(bus).status()
        return [problem["reason"] for problem in status["problems"] if problem["topic"] == "policy"]

    async with host.running(), Bus(host.address) as bus:
        assert await reload(bus, "files: 5\n") == ["PolicyInvalid"]
        assert await reload(bus, "files: []\n") == []
