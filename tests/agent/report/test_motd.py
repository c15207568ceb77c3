# SPDX-License-Identifier: Apache-2.0
"""The message of the day and the typed properties of the whole daemon, on a private bus."""

from __future__ import annotations

import asyncio
import errno
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from dbus_next import Message, Variant
from dbus_next.aio import MessageBus

from nodeagent import log
from nodeagent.agent.report import motd
from nodeagent.agent.report.motd import MotdFile
from nodeagent.errors import AgentError
from nodeagent.host import boot
from nodeagent.host.fs.text_file import TextFile
from nodeagent.report.properties import properties
from nodeagent.report.status import Status
from nodeagent.tasks import running
from nodeagent.update.ports.events import DaemonStopped
from nodeagent.update.states import Phase
from tests.agent.whole_daemon import PATIENCE, WholeDaemon, source
from tests.support.fixtures import PrivateBus, private_bus
from tests.support.needs import acts_as_root

__all__ = ["private_bus"]


@pytest.fixture
def host(tmp_path: Path, private_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch) -> WholeDaemon:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", private_bus.address)
    assert boot.identify.__kwdefaults__ is not None
    monkeypatch.setitem(boot.identify.__kwdefaults__, "pause", 0)
    return WholeDaemon(tmp_path, private_bus.address)


async def until_motd(path: Path, words: str) -> str:
    """Wait for a message with these words; "" for none."""
    while True:
        # The daemon removes it at any time.
        try:
            text = path.read_text()
        except FileNotFoundError:
            text = ""
        if (words in text) if words else not text:
            return text
        await asyncio.sleep(0.02)


@acts_as_root
async def test_who_logs_in_sees_what_the_host_does(host: WholeDaemon) -> None:
    # A file that a killed daemon left.
    host.motd.parent.mkdir()
    host.motd.write_text("nodeagent: degraded")
    async with host.running() as client, asyncio.timeout(PATIENCE):
        await until_motd(host.motd, "")
        host.hold_lease()
        await client.apply(source("a").text.decode())
        # The update is Leasing before it is known that it waits.
        text = await until_motd(host.motd, "LeaseHeld")
        assert "updating to a" in text
        assert stat.S_IMODE(host.motd.stat().st_mode) == 0o644
        host.free_lease()
        # It does not wait until the next attempt.
        await client._call("Reload")
        await until_motd(host.motd, "")
        host.desired.write_text("kind: Nonsense")
        text = await until_motd(host.motd, "degraded since")
        assert "what now: " in text
        assert "Z" not in text.partition("degraded since ")[2].partition(": ")[0]
    assert not host.motd.exists()


async def test_a_daemon_that_cannot_start_says_so_at_log_in(host: WholeDaemon) -> None:
    host.settings.write_text(host.settings.read_text() + "reboot: {alow: false}\n")
    async with host.running(), asyncio.timeout(PATIENCE):
        await until_motd(host.motd, "SettingsInvalid")
    assert not host.motd.exists()


@acts_as_root
async def test_typed_properties(host: WholeDaemon, private_bus: PrivateBus) -> None:
    """A client of another library gets each value in the declared type, and the changed ones in the signal."""
    face, where = (
        "org.nodeagent.Agent1.Status",
        {"destination": "org.nodeagent.Agent1", "path": "/org/nodeagent/Agent1"},
    )
    async with host.running() as client, asyncio.timeout(PATIENCE):
        bus = await MessageBus(bus_address=private_bus.address).connect()
        try:
            changes: list[dict[str, Variant]] = []
            bus.add_message_handler(
                lambda message: changes.append(message.body[1]) if message.member == "PropertiesChanged" else None
            )
            rule = "type='signal',member='PropertiesChanged'"
            await bus.call(
                Message("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "AddMatch",
                        signature="s", body=[rule])
            )  # fmt: skip
            host.hold_lease()
            await client.apply(source("a").text.decode())
            while not any(change.get("Reason", Variant("s", "")).value == "LeaseHeld" for change in changes):
                await asyncio.sleep(0.02)
            entered = next(change for change in changes if change.get("Reason", Variant("s", "")).value == "LeaseHeld")
            assert {"Status", "Reason", "Message"} <= entered.keys()
            assert all("Status" in change for change in changes)
            assert "Current" not in entered
            got = await bus.call(
                Message(
                    interface="org.freedesktop.DBus.Properties", member="GetAll", signature="s", body=[face], **where
                )
            )
            assert got is not None
            values = got.body[0]
            assert {name: values[name].signature for name in properties()} == {
                name: declared.signature for name, declared in properties().items()
            }
            assert (values["Phase"].value, values["Target"].value) == ("Leasing", "a")
            assert values["LeaseHolder"].value
        finally:
            bus.disconnect()
            # dbus-next leaves both to the garbage collector, and the socket stays open until its stream is closed.
            bus._stream.close()
            bus._sock.close()


@acts_as_root
async def test_an_unknown_option_of_apply_is_refused_and_changes_nothing(host: WholeDaemon) -> None:
    """Options limit what happens: a daemon that ignored a misspelled one would reboot."""
    async with host.running() as client, asyncio.timeout(PATIENCE):
        with pytest.raises(AgentError) as unknown:
            await client.apply(source("a").text.decode(), {"noreboot": True})
        assert unknown.value.reason == "BadOption"
        assert not (await client.status())["desired"]


FAILED = Status(phase=Phase.DEGRADED, reason="NoSpace", message="the disk is full", since="2026-03-01T10:00:00.500Z")


@pytest.fixture
async def written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[MotdFile, list[OSError], Path]]:
    """A message of the day whose writes fail with the errors of the list, one after the other."""
    monkeypatch.setattr(motd, "PAUSE", 0.0)
    monkeypatch.setattr(motd, "RETRY", 0.01)
    faults: list[OSError] = []
    path = tmp_path / "motd.d" / "50-nodeagent"
    write = TextFile.write

    def faulty(self: TextFile, text: str) -> None:
        if faults:
            raise faults.pop(0)
        write(self, text)

    monkeypatch.setattr(TextFile, "write", faulty)
    file = MotdFile(str(path))
    async with running(file.run()):
        yield file, faults, path


async def test_a_message_that_does_not_fit_on_the_disk_is_written_later(
    written: tuple[MotdFile, list[OSError], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries: list[str] = []

    class Logger:
        def warning(self, text: str) -> None:
            entries.append(text)

    monkeypatch.setattr(log, "get", lambda _name: Logger())
    file, faults, path = written
    faults += [OSError(errno.ENOSPC, "No space left on device")] * 5
    file.sink(DaemonStopped(), FAILED)
    async with asyncio.timeout(PATIENCE):
        await until_motd(path, "NoSpace")
    assert faults == []
    assert entries == [f"no message of the day in {path}: No space left on device"], "once, not for each attempt"


async def test_a_newer_message_does_not_wait_for_the_retry(
    written: tuple[MotdFile, list[OSError], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(motd, "RETRY", 3600.0)
    file, faults, path = written
    faults.append(OSError(errno.EIO, "Input/output error"))
    file.sink(DaemonStopped(), FAILED)
    async with asyncio.timeout(PATIENCE):
        while faults:
            await asyncio.sleep(0.01)
        file.sink(DaemonStopped(), replace(FAILED, reason="HostFault"))
        await until_motd(path, "HostFault")
