# SPDX-License-Identifier: Apache-2.0
"""A request is in the store before the desired config is written: a kill at any point loses nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from nodeagent.agent.api import Api
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import ConfigSource, MachineConfig
from nodeagent.errors import Terminal
from nodeagent.reasons import Reason
from nodeagent.update.next.preflight import Desired
from nodeagent.update.states import Phase
from tests.agent.test_api import DESIRED, api
from tests.world import FakeFiles, FakeUnit, Killed, World, full_disk
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

OLD = config("old", {"/etc/app/x": "1"})
NEW = config("new", {"/etc/app/x": "2"})


class FileHost(Host):
    """The desired config is what the file on the disk says: the digest of a config."""

    def want(self, config: MachineConfig, rendering: str = "") -> None:
        super().want(config, rendering)
        self.world.disk[DESIRED] = RegularFile(self.wanted.encode(), 0o600)

    async def _load(self, digest: str) -> Desired:
        config = self.configs[digest]
        return Desired(ConfigSource(config.name, digest, digest.encode()), config)

    async def _desired(self) -> Desired | None:
        node = self.world.disk.get(DESIRED)
        assert isinstance(node, RegularFile)
        return await self._load(node.content.decode())


async def at_new() -> FileHost:
    host = FileHost(World(units={"app.service": FakeUnit()}))
    for each in (OLD, NEW):
        host.want(each)
        await host.settle()
    assert host.configs[host.world.current].name == "new"
    return host


async def killed_at(host: FileHost, fuse: int, ask: Callable[[Api], Awaitable[object]]) -> bool:
    """Return whether the host was killed at that call, between the request and the end of the update."""
    host.world.calls, host.world.fuse = 0, fuse
    try:
        await ask(api(host, host.phase))
        await host._live()
    except Killed:
        return True
    finally:
        host.world.fuse = -1
    return False


@pytest.mark.long
@pytest.mark.finding(
    "updates: requests are recorded first",
    "What an operator requests is in the store before the desired config is written.",
)
async def test_a_rollback_that_is_killed_is_done_whole_or_not_at_all() -> None:
    ends = set[bool]()
    for fuse in range(1, 200):
        host = await at_new()
        new = host.world.current
        killed = await killed_at(host, fuse, Api.rollback)
        written = host.world.disk[DESIRED] != RegularFile(new.encode(), 0o600)
        ends.add(written)
        await host.settle()
        assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "old" if written else "new")
        assert host.world.request is None
        assert host.record.lasting.rolled_back_digest == (new if written else "")
        if written:
            host.want(NEW, "written by a tool")
            await host.settle()
            assert (host.phase, host.record.reason) == (Phase.DEGRADED, "RolledBack"), f"killed at call {fuse}"
        if not killed:
            break
    assert ends == {False, True}
    assert fuse > 20


@pytest.mark.long
async def test_a_request_to_apply_what_failed_outlives_every_kill() -> None:
    applied = list[bool]()
    for fuse in range(1, 200):
        host = await at_new()
        host.world.faults.append(full_disk())
        host.want(config("failed", {"/etc/app/x": "3"}))
        await host.settle()
        host.world.repair("install")
        assert host.record.reason == "Reverted"
        killed = await killed_at(host, fuse, lambda daemon, text=host.wanted: daemon.apply(text))  # type: ignore[misc]
        await host.settle()
        applied.append(host.phase is Phase.IDLE)
        assert host.configs[host.world.current].name == ("failed" if applied[-1] else "new")
        assert host.world.request is None
        if not killed:
            break
    assert applied == sorted(applied), "once it is recorded, it is done"
    assert applied.count(False) <= 2
    assert len(applied) > 20


async def test_a_desired_config_that_cannot_be_written_leaves_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_new()

    async def full(*_: object) -> None:
        raise Terminal("no space left", reason=Reason.NO_SPACE)

    install = FakeFiles.install
    monkeypatch.setattr(FakeFiles, "install", full)
    with pytest.raises(Terminal):
        await api(host).rollback()
    monkeypatch.setattr(FakeFiles, "install", install)
    assert host.world.request is None
    await host.settle()
    assert (host.phase, host.configs[host.world.current].name, host.record.lasting.rolled_back_digest) == (
        Phase.IDLE,
        "new",
        "",
    )


async def test_a_request_for_another_config_is_over() -> None:
    """Otherwise a tool that writes that one a month later would pass for an operator."""
    host = await at_new()
    host.world.faults.append(full_disk())
    host.want(config("failed", {"/etc/app/x": "3"}))
    await host.settle()
    host.world.repair("install")
    failed = host.wanted
    host.world.request = host.request()
    host.want(NEW)
    await host.settle()
    assert host.world.request is None
    host.world.disk[DESIRED] = RegularFile(failed.encode(), 0o600)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "ConfigRejected")
