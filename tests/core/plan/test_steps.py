# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import get_args

import pytest

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry, UserEntry
from nodeagent.core.plan.change import Action, ActionType, Plan
from nodeagent.core.plan.steps import (
    ActStep,
    ClearState,
    DaemonReload,
    DisableUnit,
    EnableUnit,
    LockUser,
    PresetUnit,
    Reboot,
    ReloadUnit,
    RemovePath,
    RestartStaticPod,
    RestartUnit,
    RestoreUnit,
    SetPassword,
    StartUnit,
    Step,
    StopUnit,
    WritePath,
    WriteStep,
    act_steps,
    describe,
    step_from_pair,
    step_id,
    step_to_pair,
    write_steps,
)


def mc(*entries: FileEntry | UnitEntry | UserEntry) -> MachineConfig:
    return MachineConfig(
        "x",
        files={e.path: e for e in entries if isinstance(e, FileEntry)},
        units={e.name: e for e in entries if isinstance(e, UnitEntry)},
        users={e.name: e for e in entries if isinstance(e, UserEntry)},
    )


A, B = FileEntry("/etc/a", b"1"), FileEntry("/etc/b", b"1")
UNIT = "/etc/systemd/system/x.service"
RESTORE = RestoreUnit("x.service")
DROPIN_PATH = "/etc/systemd/system/x.service.d/a.conf"
DROPIN = UnitEntry("x.service", dropins={"a.conf": "[Unit]\n"})
PRESET = UnitEntry("x.service", "[Unit]\n")
UNITS = "/etc/systemd/system"
FILE, FILE2 = (FileEntry(UNIT, text) for text in (b"[Unit]\n", b"[Service]\n"))
BARE = UnitEntry("x.service", enabled=True)
TEMPLATE, TEMPLATE2 = (UnitEntry("x@.service", text) for text in ("[Unit]\n", "[Service]\n"))
INSTANCE = UnitEntry("x@1.service", enabled=True)
TEMPLATE_STEPS = (PresetUnit("x@.service"), EnableUnit("x@1.service"))
ON = UnitEntry("x.service", "[Service]\n", enabled=True)


@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        (mc(A), mc(A), ()),
        (mc(), mc(B, A), (WritePath("/etc/a"), WritePath("/etc/b"))),
        (mc(A), mc(B), (RemovePath("/etc/a"), WritePath("/etc/b"))),
        (mc(A), mc(FileEntry("/etc/a/b", b"")), (RemovePath("/etc/a"), WritePath("/etc/a/b"))),
        (
            mc(FileEntry("/etc/a/b", b""), FileEntry("/etc/a/c/d", b"")),
            mc(A),
            (RemovePath("/etc/a/c/d"), RemovePath("/etc/a/b"), WritePath("/etc/a")),
        ),
        (mc(A), mc(FileEntry("/etc/a", b"1", mode=0o600)), (WritePath("/etc/a"),)),
        # a directory that was ours becomes a file, and the reverse
        (mc(FileEntry("/etc/a/b", b"")), mc(A), (RemovePath("/etc/a/b"), WritePath("/etc/a"))),
        (mc(B), mc(FileEntry("/etc/b/a", b"")), (RemovePath("/etc/b"), WritePath("/etc/b/a"))),
        (mc(), mc(ON), (WritePath(UNIT), EnableUnit("x.service"))),
        (mc(ON), mc(UnitEntry("x.service", "[Unit]\n", enabled=True)), (WritePath(UNIT), EnableUnit("x.service"))),
        (mc(ON), mc(), (RemovePath(UNIT), RESTORE)),
        (mc(ON), mc(UnitEntry("x.service", mask=True)), (WritePath(UNIT), DisableUnit("x.service"))),
        (mc(), mc(UnitEntry("x.service", enabled=False)), (DisableUnit("x.service"),)),
        (mc(PRESET), mc(UnitEntry("x.service", "[Service]\n")), (WritePath(UNIT), PresetUnit("x.service"))),
        (mc(), mc(UnitEntry("x.service", mask=True)), (WritePath(UNIT), DisableUnit("x.service"))),
        # [Install] of a unit in storage.files, or of the template of an instance, may be another one
        (mc(FILE, BARE), mc(FILE, BARE), ()),
        (mc(FILE, BARE), mc(FILE2, BARE), (WritePath(UNIT), EnableUnit("x.service"))),
        (mc(FILE, BARE), mc(BARE), (RemovePath(UNIT), EnableUnit("x.service"))),
        (mc(TEMPLATE, INSTANCE), mc(TEMPLATE2, INSTANCE), (WritePath(f"{UNITS}/x@.service"), *TEMPLATE_STEPS)),
        # a drop-in never said whether the unit is enabled; who stops saying it puts back what was
        (mc(DROPIN), mc(), (RemovePath(DROPIN_PATH),)),
        (mc(UnitEntry("x.service", mask=True)), mc(DROPIN), (RemovePath(UNIT), WritePath(DROPIN_PATH), RESTORE)),
        (mc(UnitEntry("x.service", mask=True)), mc(), (RemovePath(UNIT), RestoreUnit("x.service"))),
        (mc(UnitEntry("x.service", enabled=True)), mc(DROPIN), (WritePath(DROPIN_PATH), RestoreUnit("x.service"))),
        (mc(UnitEntry("x.service", enabled=False)), mc(), (RestoreUnit("x.service"),)),
        (mc(), mc(UnitEntry("x.service", "[Unit]\n")), (WritePath(UNIT), PresetUnit("x.service"))),
        (
            mc(),
            mc(UnitEntry("x.service", dropins={"a.conf": "[Unit]\n"})),
            (WritePath("/etc/systemd/system/x.service.d/a.conf"),),
        ),
        (mc(), mc(UserEntry("core", ("ssh-ed25519 A",))), (WritePath("/home/core/.ssh/authorized_keys.d/ignition"),)),
        (mc(), mc(UserEntry("core", (), "$6$x")), (SetPassword("core"),)),
        (mc(UserEntry("core", (), "$6$x")), mc(), (LockUser("core"),)),
        (mc(UserEntry("core", (), "$6$x")), mc(UserEntry("core", (), "$6$y")), (SetPassword("core"),)),
        (mc(UserEntry("core", (), "$6$x")), mc(UserEntry("core", (), "$6$x")), ()),
    ],
)
def test_write_steps(old: MachineConfig, new: MachineConfig, steps: tuple[WriteStep, ...]) -> None:
    assert write_steps(old, new) == steps


def test_ids_tell_type_and_argument_apart() -> None:
    steps: list[Step] = [WritePath("/a"), RemovePath("/a"), WritePath("/b"), DaemonReload(), Reboot()]
    assert len({step_id(step) for step in steps}) == len(steps)
    assert step_id(WritePath("/a")) == step_id(WritePath("/a"))


@pytest.mark.parametrize("kind", get_args(WriteStep))
def test_write_steps_survive_the_record(kind: type[WriteStep]) -> None:
    step = kind("x")
    assert step_from_pair(*step_to_pair(step)) == step
    assert "x" in describe(step)


def test_a_step_of_a_newer_agent_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown step"):
        step_from_pair("Teleport", "x")


ACTS: dict[ActionType, tuple[ActStep, ...]] = {
    ActionType.NONE: (),
    ActionType.DRAIN: (),
    ActionType.DAEMON_RELOAD: (DaemonReload(),),
    ActionType.CLEAR_STATE: (ClearState("x.service", ("/a", "/b")),),
    ActionType.STOP: (StopUnit("x.service"),),
    ActionType.RELOAD: (ReloadUnit("x.service"),),
    ActionType.RESTART: (RestartUnit("x.service"),),
    ActionType.START: (StartUnit("x.service"),),
    ActionType.RESTART_STATIC_POD: (RestartStaticPod("x.service", "/a"), RestartStaticPod("x.service", "/b")),
    ActionType.REBOOT: (Reboot(),),
}


@pytest.mark.parametrize("kind", ActionType)
def test_the_steps_of_an_action(kind: ActionType) -> None:
    assert act_steps(Plan("a", "b", (), (Action(kind, "x.service", paths=("/a", "/b")),))) == ACTS[kind]


def test_the_steps_of_a_plan_have_its_order() -> None:
    kinds = (ActionType.DRAIN, ActionType.DAEMON_RELOAD, ActionType.RESTART, ActionType.REBOOT)
    plan = Plan("a", "b", (), tuple(Action(kind, "x.service") for kind in kinds))
    assert act_steps(plan) == (DaemonReload(), RestartUnit("x.service"), Reboot())
