# SPDX-License-Identifier: Apache-2.0
"""Plans of users other than core: steps in their order, actions, details, and what cannot change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.config.machineconfig import Account, FileEntry, MachineConfig, UserEntry
from nodeagent.core.plan.change import ActionType
from nodeagent.core.plan.diff import diff
from nodeagent.core.plan.effective import Candidate, effective
from nodeagent.core.plan.entries import entries_by_path, has_entry, only, unchanged, without
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.plan_values import with_values
from nodeagent.core.plan.reconcile import check_access, check_reconcilable
from nodeagent.core.plan.sides import NO_CONFIG
from nodeagent.core.plan.steps import (
    CreateUser,
    JoinGroup,
    LeaveGroup,
    LockUser,
    RemovePath,
    RetireUser,
    SetPassword,
    WritePath,
    describe,
    step_from_pair,
    step_to_pair,
    write_steps,
)
from nodeagent.domains import default_policy

KEYS = "/home/alice/.ssh/authorized_keys.d/ignition"
ENTRY = UserEntry("alice", ("k",), "$6$x", groups=("docker", "wheel"), account=Account())
ALICE = MachineConfig("a", users={"alice": ENTRY})
IDS = ["password:alice", "sshkey:alice", "user:alice"]


def config(**changes: object) -> MachineConfig:
    return MachineConfig("a", users={"alice": replace(ENTRY, **changes)})  # type: ignore[arg-type]


def test_three_entries() -> None:
    assert [change.id for change in diff(NO_CONFIG, ALICE)] == IDS
    assert entries_by_path(ALICE) == {KEYS: "sshkey:alice"}
    assert all(has_entry(ALICE, entry) for entry in IDS)
    assert not any(has_entry(NO_CONFIG, entry) for entry in IDS)
    for entry in IDS:
        assert [change.id for change in diff(NO_CONFIG, only(ALICE, [entry]))] == [entry]
        assert [change.id for change in diff(without(ALICE, [entry]), ALICE)] == [entry]
    assert unchanged(IDS, ALICE, config(groups=())) == {"password:alice", "sshkey:alice"}


def test_the_account_is_there_before_its_files() -> None:
    new = replace(ALICE, files={"/etc/x": FileEntry("/etc/x", b"", user="alice")})
    assert write_steps(NO_CONFIG, new) == (
        CreateUser("alice"),
        JoinGroup("alice:docker"),
        JoinGroup("alice:wheel"),
        WritePath("/etc/x"),
        WritePath(KEYS),
        SetPassword("alice"),
    )
    assert write_steps(new, NO_CONFIG) == (
        RemovePath(KEYS),
        RemovePath("/etc/x"),
        LockUser("alice"),
        LeaveGroup("alice:docker"),
        LeaveGroup("alice:wheel"),
        RetireUser("alice"),
    )
    assert write_steps(ALICE, config(groups=("docker", "libvirt"))) == (
        JoinGroup("alice:libvirt"),
        LeaveGroup("alice:wheel"),
    )


def test_steps_are_stored_and_described() -> None:
    for step in (*write_steps(NO_CONFIG, ALICE), *write_steps(ALICE, NO_CONFIG)):
        assert step_from_pair(*step_to_pair(step)) == step
    assert describe(JoinGroup("alice:docker")) == "add to group alice:docker"


def test_no_action_is_needed() -> None:
    for sides in ((NO_CONFIG, ALICE), (ALICE, NO_CONFIG), (ALICE, config(groups=()))):
        assert [action.type for action in make_plan(*sides, default_policy()).actions] == [ActionType.NONE]


def test_details() -> None:
    plan = with_values(make_plan(ALICE, NO_CONFIG, default_policy()), ALICE, NO_CONFIG)
    details = {planned.change.id: [detail.what for detail in planned.details] for planned in plan.changes}
    assert details == {
        "password:alice": ["password"],
        "sshkey:alice": ["key"],
        "user:alice": ["group"] * 2 + ["removed"],
    }


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"home": "/var/a"}, "homeDir"),
        ({"group": "users"}, "primaryGroup"),
        ({"account": Account(uid=1500)}, "uid"),
        ({"account": Account(gecos="A")}, "gecos"),
        ({"account": Account(shell="/bin/sh")}, "shell"),
        ({"account": Account(create_home=False)}, "noCreateHome"),
        ({"account": Account(no_log_init=True)}, "noLogInit"),
    ],
)
def test_an_account_does_not_change(changes: dict[str, object], key: str) -> None:
    (problem,) = check_reconcilable(ALICE, config(**changes))
    assert problem.path == f"spec.config.passwd.users[alice].{key}"
    assert check_reconcilable(ALICE, config(groups=())) == ()
    assert check_reconcilable(NO_CONFIG, config(**changes)) == ()


def test_keys_and_passwords_of_all_users_are_checked() -> None:
    assert {problem.path for problem in check_access(NO_CONFIG, ALICE)} == {
        "spec.config.passwd.users[alice].sshAuthorizedKeys",
        "spec.config.passwd.users[alice].passwordHash",
    }
    assert [*check_access(ALICE, ALICE)] == []


@pytest.mark.parametrize("missing", [[], ["user:alice"], ["sshkey:alice"], ["password:alice"], IDS])
def test_what_the_host_lacks_is_done_again(missing: list[str]) -> None:
    old = effective(ALICE, [Candidate(ALICE, missing)], ALICE)
    assert [change.id for change in diff(old, ALICE)] == sorted(missing)


def test_what_leaves_is_taken_away_although_the_host_lacks_it() -> None:
    old = effective(ALICE, [Candidate(ALICE, IDS)], NO_CONFIG)
    assert [change.id for change in diff(old, NO_CONFIG)] == IDS
