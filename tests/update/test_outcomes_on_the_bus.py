# SPDX-License-Identifier: Apache-2.0
"""The end of an update as a command sees it: the whole daemon and the code of `apply --wait`, on a private bus."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent.agent.report.dbus import NAME, PATH
from nodeagent.cli._client import Client
from nodeagent.cli._follow import Ending, request_and_wait
from nodeagent.cli.cancel import _cancel as cancel
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.errors import InvalidInput, Refused
from nodeagent.host import boot
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import a_sv
from tests.agent.whole_daemon import PATIENCE, WholeDaemon, source
from tests.support.fixtures import PrivateBus, private_bus
from tests.support.needs import acts_as_root

__all__ = ["private_bus"]

A, B, C = (source(name) for name in "abc")


@pytest.fixture
def host(tmp_path: Path, private_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch) -> WholeDaemon:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", private_bus.address)
    assert boot.identify.__kwdefaults__ is not None
    monkeypatch.setitem(boot.identify.__kwdefaults__, "pause", 0)
    host = WholeDaemon(tmp_path, private_bus.address)
    prom = tmp_path / "metrics.prom"
    host.settings.write_text(host.settings.read_text().replace('file: ""', f"file: {prom}"))
    host.policy.write_text("files: []\n")
    host.policy.chmod(0o600)
    return host


async def apply(client: Client, config: ConfigSource) -> Ending:
    """`nodeagent apply --wait --json`."""

    async def send() -> dict[str, Any]:
        return {"config": config.name, "digest": await client.apply(config.text.decode())}

    return (await request_and_wait(client, send, silent=True))[1]


async def until(client: Client, **expected: Any) -> dict[str, Any]:
    while True:
        status = await client.status()
        if expected.items() <= status.items():
            return status
        await asyncio.sleep(0.02)


@pytest.mark.finding(
    "updates: what was left half-way", "A withdrawn update leaves status, desired config and reason true at once."
)
@acts_as_root
async def test_each_command_that_waits_learns_its_end(host: WholeDaemon) -> None:
    async with host.running() as client, asyncio.timeout(PATIENCE):
        done = await apply(client, A)
        assert (done.outcome, done.exit_code) == ("done", 0)
        for which, name in (("current", ""), ("desired", ""), ("named", "a")):
            assert (await client.config(which, name, secrets=True))["digest"] == A.digest
        again = await apply(client, A)
        assert (again.outcome, again.exit_code) == ("unchanged", 0)

        host.hold_lease()
        first = asyncio.create_task(apply(client, B))
        await until(client, phase="Leasing", reason="LeaseHeld", desired="b", target="b")
        second = asyncio.create_task(apply(client, C))
        loser = await first
        assert (loser.outcome, loser.exit_code, loser.successor) == ("superseded", 4, "c")
        assert "c is desired instead" in loser.message

        await until(client, phase="Leasing", desired="c")
        assert (await apply(client, A)).outcome == "unchanged"
        withdrawn = await second
        assert (withdrawn.outcome, withdrawn.exit_code) == ("withdrawn", 4)
        status = await until(client, phase="Idle", desired="a")
        assert (status["reason"], status["message"], status["target"]) == ("", "", "")
        assert status["current"] == "a"
        assert status["current_digest"] == status["desired_digest"] == A.digest
        # Metrics are written once a second, also in the middle of a change, so all is awaited in one page.
        wanted = ('nodeagent_config_info{current="a",desired="a"} 1', "nodeagent_config_in_sync 1")
        metrics = host.directory / "metrics.prom"
        while not set(wanted) <= set((page := metrics.read_text()).splitlines()) or "nodeagent_reason{" in page:
            await asyncio.sleep(0.1)
        history = await client.history(10)
        assert [(entry["to_name"], entry["outcome"]) for entry in history] == [
            ("c", "withdrawn"),
            ("b", "superseded"),
            ("a", "done"),
        ]


@acts_as_root
async def test_a_command_that_waits_over_a_restart_learns_it_from_the_history(host: WholeDaemon) -> None:
    async with asyncio.timeout(PATIENCE):
        async with host.running() as client:
            await apply(client, A)
            host.hold_lease()
        from nodeagent.host.dbus.client import Bus

        async with Bus(host.address) as bus:
            waiting = Client(bus)
            async with host.running() as client:
                task = asyncio.create_task(apply(waiting, B))
                await until(client, phase="Leasing", desired="b")
            host.desired.write_bytes(A.text)
            host.desired.chmod(0o600)
            async with host.running():
                ending = await task
    assert (ending.outcome, ending.exit_code) == ("withdrawn", 4)


@acts_as_root
async def test_cancel_ends_what_another_command_waits_for(host: WholeDaemon) -> None:
    async with host.running() as client, asyncio.timeout(PATIENCE):
        await apply(client, A)
        host.hold_lease()
        waiting = asyncio.create_task(apply(client, B))
        await until(client, phase="Leasing", reason="LeaseHeld", target="b")
        answer, ending = await cancel(client, silent=True)
        assert (answer["config"], answer["effect"], answer["current"]) == ("b", "end", "a")
        assert (ending.outcome, ending.reason) == ("cancelled", "Cancelled")
        assert ((await waiting).outcome, (await waiting).exit_code) == ("cancelled", 4)
        # The desired config is read again a moment after the end.
        status = await until(client, phase="Idle", desired="a")
        assert (status["current"], status["reason"]) == ("a", "")
        assert host.desired.read_bytes() == A.text
        with pytest.raises(Refused) as caught:
            await client.cancel()
        assert caught.value.reason == "NoUpdate"
        host.desired.write_bytes(B.text)
        # The file is not written in one step, so an empty one may be read first.
        status = await until(client, phase="Degraded", reason="Cancelled")
        assert "cancelled by" in status["message"]


@acts_as_root
async def test_a_plan_answers_with_all_problems_of_a_config_on_request(host: WholeDaemon) -> None:
    bad = source("two words", {"relative": "x"}).text.decode()
    async with host.running(), Bus(host.address) as bus, asyncio.timeout(PATIENCE):
        (answer,) = await bus.call(
            NAME, PATH, f"{NAME}.Manager", "Plan", "sa{sv}", (bad, a_sv({"problems": ("b", True)}))
        )
        error = json.loads(answer)["error"]
        assert error["reason"] == "InvalidInput"
        assert len(error["problems"]) >= 2
        assert error["hint"]
        with pytest.raises(InvalidInput):
            await bus.call(NAME, PATH, f"{NAME}.Manager", "Plan", "sa{sv}", (bad, {}))
