"""The message of the day and the typed properties of the whole daemon, on a private bus."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
from dbus_next import Message, Variant
from dbus_next.aio import MessageBus

from nodeagent.core.report.properties import PROPERTIES
from nodeagent.errors import AgentError
from nodeagent.host import boot
from tests.agent.whole_daemon import WholeDaemon, source
from tests.support.fixtures import PrivateBus, private_bus

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


async def test_who_logs_in_sees_what_the_host_does(host: WholeDaemon) -> None:
    # A file that a killed daemon left.
    host.motd.parent.mkdir()
    host.motd.write_text("nodeagent: degraded")
    async with host.running() as client, asyncio.timeout(20):
        await until_motd(host.motd, "")
        await client.start_maintenance("disk swap", {})
        await client.apply(source("a").text.decode())
        text = await until_motd(host.motd, "updating to a")
        assert "LeaseHeld" in text
        assert stat.S_IMODE(host.motd.stat().st_mode) == 0o644
        await client.stop_maintenance()
        await until_motd(host.motd, "")
        host.desired.write_text("kind: Nonsense")
        text = await until_motd(host.motd, "degraded since")
        assert "what now: " in text
        assert "Z" not in text.partition("degraded since ")[2].partition(": ")[0]
    assert not host.motd.exists()


async def test_a_daemon_that_cannot_start_says_so_at_log_in(host: WholeDaemon) -> None:
    host.settings.write_text(host.settings.read_text() + "reboot: {alow: false}\n")
    async with host.running(), asyncio.timeout(20):
        await until_motd(host.motd, "SettingsInvalid")
    assert not host.motd.exists()


async def test_typed_properties(host: WholeDaemon, private_bus: PrivateBus) -> None:
    """A client of another library gets each value in the declared type, and the changed ones in the signal."""
    face, where = (
        "org.nodeagent.Agent1.Status",
        {"destination": "org.nodeagent.Agent1", "path": "/org/nodeagent/Agent1"},
    )
    async with host.running() as client, asyncio.timeout(20):
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
            await client.start_maintenance("disk swap", {})
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
            assert {name: values[name].signature for name in PROPERTIES} == {
                name: declared.signature for name, declared in PROPERTIES.items()
            }
            assert (values["Phase"].value, values["Target"].value) == ("Leasing", "a")
            assert values["Maintenance"].value == "under way"
            assert values["LeaseHolder"].value
        finally:
            bus.disconnect()
            # dbus-next leaves both to the garbage collector, and the socket stays open until its stream is closed.
            bus._stream.close()
            bus._sock.close()


async def test_an_unknown_option_of_apply_is_refused_and_changes_nothing(host: WholeDaemon) -> None:
    """Options limit what happens: a daemon that ignored a misspelled one would reboot."""
    async with host.running() as client, asyncio.timeout(20):
        with pytest.raises(AgentError) as unknown:
            await client.apply(source("a").text.decode(), {"noreboot": True})
        assert unknown.value.reason == "BadOption"
        assert not (await client.status())["desired"]
