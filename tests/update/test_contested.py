# SPDX-License-Identifier: Apache-2.0
"""Paths that others than root can reach: they block the one file, never the update, the revert or the drift check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.next.preflight import OnDrift
from nodeagent.update.ports.events import PhaseEntered, Warned
from nodeagent.update.ports.host import MAX_KEPT, Survey
from nodeagent.update.states import Phase
from nodeagent.update.steps import paths
from tests.world import FakeUnit, Fault, World
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

HOME = "/etc/quiet/home"
KEY = f"{HOME}/quiet"
FAULTS = [
    Terminal("/etc/quiet/home/quiet is a directory, where a file should be", reason=Reason.NOT_A_FILE),
    Terminal("cannot write /etc/quiet/home/quiet: Permission denied", reason=Reason.PERMISSION_DENIED),
    Terminal("/etc/quiet/home is a symbolic link, and not followed", reason=Reason.LINK_REFUSED),
    Terminal("/etc/quiet/home/quiet has 99999999999 bytes", reason=Reason.FILE_TOO_LARGE),
    Retryable("/etc/quiet/home/quiet was swapped while we looked at it", reason=Reason.PATH_CHANGED),
]
CONTENTS = {"/etc/app/x": "1", "/etc/quiet/q": "1", KEY: "1"}
A = config("a", CONTENTS)
B = config("b", CONTENTS | {"/etc/app/x": "2"})
C = config("c", CONTENTS | {"/etc/app/x": "2", KEY: "2"})
WITHOUT = config("without", {"/etc/app/x": "2", "/etc/quiet/q": "1"})


async def started(*, contested: bool = True) -> Host:
    it = Host(World(units={"app.service": FakeUnit(), "web.service": FakeUnit()}))
    it.want(A)
    await it.settle()
    assert it.phase is Phase.IDLE
    if contested:
        it.world.contested[HOME] = f"{HOME} belongs to uid 1000"
    return it


def name_of(it: Host) -> str:
    return it.configs[it.world.current].name


def warnings(it: Host) -> list[str]:
    return [e.message for e in it.world.events if isinstance(e, Warned) and e.reason == "PathContested"]


@pytest.mark.finding(
    "files: directories of users",
    "The owner of a directory blocks the files in it, and no other file, update, revert or start.",
)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.reason)
@pytest.mark.parametrize("wanted", [B, C, WITHOUT], ids=lambda wanted: wanted.name)
@pytest.mark.parametrize("on_drift", ["report", "repair"])
async def test_a_path_that_its_owner_blocks_blocks_nothing_else(
    fault: AgentError, wanted: MachineConfig, on_drift: OnDrift
) -> None:
    it = await started()
    it.on_drift = on_drift
    it.world.faults.append(Fault(f"path {KEY}", fault, times=None))
    it.want(wanted)
    await it.settle()
    assert (it.phase, name_of(it)) == (Phase.IDLE, wanted.name)
    assert it.world.disk["/etc/app/x"] == RegularFile(b"2")
    assert it.world.history[-1].outcome == "done"
    assert any("uid 1000" in message for message in warnings(it))
    assert it.world.boot == 1


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.reason)
async def test_the_same_fault_where_only_root_writes_is_a_verdict(fault: AgentError) -> None:
    it = await started(contested=False)
    it.world.faults.append(Fault(f"path {KEY}", fault, times=None))
    it.want(C)
    await it.settle()
    assert name_of(it) == "a"
    assert it.phase is Phase.DEGRADED or isinstance(fault, Retryable)
    assert not warnings(it)


@pytest.mark.parametrize(("fault", "done"), [(FAULTS[0], True), (FAULTS[1], False)], ids=["directory", "no permission"])
async def test_a_file_takes_the_place_of_the_directory_that_leaves(fault: AgentError, *, done: bool) -> None:
    it = await started(contested=False)
    if not done:
        it.world.faults.append(Fault("path /etc/app", fault, None, lambda: "/etc/app/x" in it.world.disk))
    it.want(config("file", {"/etc/app": "1", "/etc/quiet/q": "1", KEY: "1"}))
    await it.settle()
    assert name_of(it) == ("file" if done else "a")
    assert ("/etc/app" in it.world.disk) is done


async def test_drift_at_such_a_path_is_no_reason_to_refuse() -> None:
    it = await started()
    it.world.disk[KEY] = RegularFile(b"of its owner")
    it.want(B)
    await it.settle()
    assert (it.phase, name_of(it)) == (Phase.IDLE, "b")
    assert it.world.disk[KEY] == RegularFile(b"of its owner"), "the config did not change it, so it is left alone"
    assert warnings(it)
    it.want(C)
    await it.settle()
    assert it.world.disk[KEY] == RegularFile(b"2")


async def test_where_drift_is_repaired_it_is_overwritten_there_too() -> None:
    """Also where it is the only drift, because the rest was put back at rest."""
    it = await started()
    it.on_drift = "repair"
    it.world.disk[KEY] = RegularFile(b"of its owner")
    it.want(B)
    await it.settle()
    assert (it.phase, name_of(it), it.world.disk[KEY]) == (Phase.IDLE, "b", RegularFile(b"1"))


async def test_drift_of_a_file_that_belongs_to_a_user_is_none_either() -> None:
    mine = FileEntry("/etc/app/mine", b"1", user="app")
    it = Host(World(units={"app.service": FakeUnit()}))
    it.want(MachineConfig("a", files={mine.path: mine}))
    await it.settle()
    it.world.disk[mine.path] = RegularFile(b"edited", user="app")
    it.want(MachineConfig("b", files={mine.path: mine, "/etc/quiet/q": FileEntry("/etc/quiet/q", b"1")}))
    await it.settle()
    assert (it.phase, name_of(it)) == (Phase.IDLE, "b")


async def test_drift_where_only_root_writes_is_refused_beside_it() -> None:
    it = await started()
    it.world.disk[KEY] = RegularFile(b"of its owner")
    it.world.disk["/etc/quiet/q"] = RegularFile(b"changed")
    it.want(B)
    await it.settle()
    assert (it.phase, it.record.reason) == (Phase.DEGRADED, "Drifted")
    assert KEY not in it.record.message


@pytest.mark.finding(
    "files: directories of users",
    "The owner of a directory blocks the files in it, and no other file, update, revert or start.",
)
async def test_a_revert_goes_past_such_a_path() -> None:
    it = await started()

    class Picky(FakeUnit):
        @property
        def bad_until_boot(self) -> int:
            return 99 if it.world.disk.get("/etc/app/x") == RegularFile(b"2") else 0

        @bad_until_boot.setter
        def bad_until_boot(self, value: int) -> None: ...

    it.world.units["app.service"] = Picky()
    # The owner puts a directory there after the new content was written, so that only the revert meets it.
    reverting = lambda: it.world.record["phase"] == Phase.REVERTING  # noqa: E731
    it.world.faults.append(Fault(f"path {KEY}", FAULTS[0], times=None, when=reverting))
    it.want(C)
    await it.settle()
    assert it.world.history[-1].outcome == "reverted"
    assert it.world.disk["/etc/app/x"] == RegularFile(b"1")
    assert it.world.disk[KEY] == RegularFile(b"2")
    assert any("NotAFile" in message or "directory" in message for message in warnings(it))


@pytest.mark.long
@pytest.mark.parametrize("power", [False, True])
async def test_killed_at_any_call_it_ends_the_same(power: bool) -> None:
    fuse, blew = 0, True
    while blew:
        it = await started()
        it.world.faults.append(Fault(f"path {KEY}", FAULTS[0], times=None))
        it.world.calls = 0
        it.want(C)
        fuse += 1
        blew = await it.kill_at(fuse, power=power)
        await it.settle()
        assert (it.phase, name_of(it)) == (Phase.IDLE, "c")
        assert it.world.disk["/etc/app/x"] == RegularFile(b"2")
    assert fuse > 10


@pytest.mark.finding("files: what is in the way", "What is in the way of a path is found before the lease is taken.")
async def test_what_is_in_the_way_is_found_before_anything_is_taken() -> None:
    it = await started(contested=False)
    it.world.survey = Survey({"/etc/app/x": "is a directory, where a file should be"})
    it.want(B)
    await it.settle()
    assert (it.phase, it.record.reason) == (Phase.DEGRADED, "PathBlocked")
    assert "/etc/app/x: is a directory" in it.record.message
    assert it.world.disk["/etc/app/x"] == RegularFile(b"1")
    abouts = [event.about for event in it.world.events if isinstance(event, PhaseEntered)]
    assert not any(about.phase is Phase.LEASING for about in abouts if about.desired == "b")


@pytest.mark.finding("files: what is in the way", "What is in the way of a path is found before the lease is taken.")
async def test_an_owner_that_the_host_does_not_have_is_found_before_anything_is_taken() -> None:
    it = await started(contested=False)
    it.world.unknown_users.add("chrony")
    entry = FileEntry("/etc/app/x", b"2", user="chrony")
    it.want(replace(B, files={**B.files, entry.path: entry}))
    await it.settle()
    assert (it.phase, it.record.reason) == (Phase.DEGRADED, "PathBlocked")
    assert "/etc/app/x: this host has no user 'chrony'" in it.record.message
    abouts = [event.about for event in it.world.events if isinstance(event, PhaseEntered)]
    assert not any(about.phase is Phase.LEASING for about in abouts if about.desired == "b")


@pytest.mark.finding("users: names and paths by mistake", "A first directory that the host lacks is named by the plan.")
async def test_a_directory_that_would_be_new_below_the_root_is_a_warning() -> None:
    it = await started(contested=False)
    it.world.survey = Survey(new_tops={"/ect": "; did you mean /etc?"})
    it.want(B)
    await it.settle()
    assert it.phase is Phase.IDLE
    messages = [event.message for event in it.world.events if isinstance(event, Warned)]
    assert "warning: /ect does not exist on this host and is created; did you mean /etc?" in messages


@pytest.mark.finding(
    "updates: size of what a revert needs",
    "At most 256 MiB of replaced files are kept for a revert; more is refused before the lease is taken.",
)
async def test_more_than_a_revert_can_keep_is_refused() -> None:
    it = await started(contested=False)
    it.world.survey = Survey(kept=MAX_KEPT + 1)
    it.want(B)
    await it.settle()
    assert (it.phase, it.record.reason) == (Phase.DEGRADED, "RevertTooLarge")
    assert it.world.disk["/etc/app/x"] == RegularFile(b"1")


@pytest.mark.finding(
    "updates: size of what a revert needs",
    "At most 256 MiB of replaced files are kept for a revert; more is refused before the lease is taken.",
)
async def test_a_file_that_grew_since_is_not_kept_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "MAX_KEPT", 100)
    it = await started(contested=False)
    it.world.disk["/etc/quiet/big"] = RegularFile(b"x" * 101)
    it.want(config("b", CONTENTS | {"/etc/app/x": "2", "/etc/quiet/big": "small"}))
    await it.settle()
    assert it.phase is Phase.DEGRADED
    assert it.world.disk["/etc/quiet/big"] == RegularFile(b"x" * 101)
    assert it.world.disk["/etc/app/x"] == RegularFile(b"1")
