# SPDX-License-Identifier: Apache-2.0
"""Directories and links in updates: killed at every effect, reverted, verified, and given back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import Directory, RegularFile, SymbolicLink
from nodeagent.core.config.machineconfig import DirectoryEntry, LinkEntry, MachineConfig
from nodeagent.errors import Terminal
from nodeagent.reasons import Reason
from nodeagent.update.stages.compare import mismatches
from nodeagent.update.states import Phase
from tests.world import World, kill_points
from tests.world.faults import Fault
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

DATA, OWN, LINK = "/etc/quiet/data", "/etc/own", "/etc/quiet/link"
OLD = config("old", {"/etc/quiet/x": "1"})
NEW = replace(
    config("new", {"/etc/quiet/x": "2", f"{DATA}/f": "2"}),
    directories={DATA: DirectoryEntry(DATA, 0o700, 7), OWN: DirectoryEntry(OWN, 0o711)},
    links={LINK: LinkEntry(LINK, "x")},
)


async def at(wanted: MachineConfig, host: Host | None = None) -> Host:
    if host is None:
        host = Host(World())
        host.world.dirs.add(OWN)
        host.world.disk[LINK] = RegularFile(b"own")
    host.want(wanted)
    await host.settle()
    return host


def assert_new(host: Host) -> None:
    disk = host.world.disk
    assert disk[DATA] == Directory(0o700, 7, 0)
    assert disk[OWN] == Directory(0o711, 0, 0)
    assert disk[LINK] == SymbolicLink("x")
    assert isinstance(disk[f"{DATA}/f"], RegularFile)


def assert_old(host: Host) -> None:
    disk, dirs = host.world.disk, host.world.dirs
    assert DATA not in disk
    assert DATA not in dirs
    assert OWN in dirs
    assert disk.get(OWN, Directory(0o755, 0, 0)) == Directory(0o755, 0, 0)
    assert disk[LINK] == RegularFile(b"own")


async def test_they_come_and_what_was_there_returns() -> None:
    host = await at(NEW, await at(OLD))
    assert_new(host)
    assert host.world.history[-1].disruption == "none"
    await at(OLD, host)
    assert_old(host)
    assert host.phase is Phase.IDLE


async def test_a_directory_with_content_stays() -> None:
    host = await at(NEW, await at(OLD))
    host.world.disk[f"{DATA}/of-an-admin"] = RegularFile(b"")
    await at(OLD, host)
    assert host.phase is Phase.IDLE
    assert DATA in host.world.dirs
    assert f"{DATA}/of-an-admin" in host.world.disk


async def test_a_directory_of_the_config_stays_when_its_last_file_leaves() -> None:
    """It was made for the file before the config had it."""
    host = await at(config("file", {f"{DATA}/f": "1"}))
    await at(NEW, host)
    files = {path: file for path, file in NEW.files.items() if path != f"{DATA}/f"}
    await at(replace(NEW, name="without", files=files), host)
    assert host.phase is Phase.IDLE
    assert DATA in host.world.dirs


async def test_differences_are_found() -> None:
    host = await at(NEW, await at(OLD))
    assert await mismatches(host.ports(), NEW) == {}
    host.world.disk[OWN] = Directory(0o777, 0, 0)
    host.world.disk[LINK] = SymbolicLink("/elsewhere")
    assert (await mismatches(host.ports(), NEW)).keys() == {f"file:{OWN}", f"file:{LINK}"}


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point(power: bool) -> None:
    whole = await at(OLD)
    whole.world.calls = 0
    await at(NEW, whole)
    for fuse in kill_points(whole.world.calls, case=power):
        host = await at(OLD)
        host.world.calls = 0
        host.want(NEW)
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert_new(host)
        assert host.phase is Phase.IDLE
        await at(OLD, host)
        assert_old(host)


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point_of_a_revert(power: bool) -> None:
    def broken(host: Host) -> None:
        # The link is written after this file, and nothing is installed on the way back before the file is gone.
        error = Terminal("no space left", reason=Reason.NO_SPACE)
        host.world.faults.append(Fault("install", error, None, lambda: f"{DATA}/f" in host.world.disk))

    whole = await at(OLD)
    whole.world.calls = 0
    broken(whole)
    await at(NEW, whole)
    for fuse in kill_points(whole.world.calls, case=power):
        host = await at(OLD)
        host.world.calls = 0
        broken(host)
        host.want(NEW)
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert_old(host)
