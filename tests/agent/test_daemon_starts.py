"""The daemon always starts: whatever its files hold, it is ready, says what is wrong, and goes on where it can."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodeagent.cli.client import Client
from nodeagent.errors import AgentError, Unreachable
from tests.agent.wholedaemon import WholeDaemon
from tests.host.conftest import PrivateBus, private_bus

__all__ = ["private_bus"]


@pytest.fixture
def host(tmp_path: Path, private_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch) -> WholeDaemon:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", private_bus.address)
    return WholeDaemon(tmp_path, private_bus.address)


async def phase(client: Client) -> str:
    """ "" in the moment in which nobody has the name."""
    try:
        return str((await client.status())["phase"])
    except Unreachable:
        return ""


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
        while await phase(client) != "Idle":
            await asyncio.sleep(0.02)
    assert [line for line in host.notifier.messages if line == "READY=1"] == ["READY=1", "READY=1"]
