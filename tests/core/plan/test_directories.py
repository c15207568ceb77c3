# SPDX-License-Identifier: Apache-2.0
"""Plans of directories and links: their actions, their details, and what cannot change."""

from __future__ import annotations

import pytest

from nodeagent.core.config.file_tree import Directory, RegularFile, SymbolicLink
from nodeagent.core.config.machineconfig import DirectoryEntry, FileEntry, LinkEntry, MachineConfig
from nodeagent.core.plan.change import ActionType, PolicySource
from nodeagent.core.plan.diff import diff
from nodeagent.core.plan.entries import entries_by_path, only, without
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.plan_values import with_values
from nodeagent.core.plan.policy import NONE, Entry, Policy, merge
from nodeagent.core.plan.reconcile import check_reconcilable
from nodeagent.core.plan.sides import NO_CONFIG, HostView
from nodeagent.core.plan.steps import RemovePath, WritePath, write_steps
from nodeagent.domains import default_policy

D, L = "/etc/d", "/etc/l"
RULED = "/etc/containers/registries.conf"


def directory(path: str = D, *attributes: object) -> MachineConfig:
    return MachineConfig("d", directories={path: DirectoryEntry(path, *attributes)})  # type: ignore[arg-type]


def link(path: str = L, target: str = "/x") -> MachineConfig:
    return MachineConfig("l", links={path: LinkEntry(path, target)})


def actions(old: MachineConfig, new: MachineConfig, policy: Policy | None = None, **host: object) -> list[ActionType]:
    view = HostView(**host)  # type: ignore[arg-type]
    return [action.type for action in make_plan(old, new, policy or default_policy(), host=view).actions]


def test_they_are_files_to_everything_that_names_entries() -> None:
    config = MachineConfig("", directories=directory().directories, links=link().links)
    assert [change.id for change in diff(NO_CONFIG, config)] == ["file:/etc/d", "file:/etc/l"]
    assert entries_by_path(config) == {D: "file:/etc/d", L: "file:/etc/l"}
    assert only(config, ["file:/etc/d"]) == MachineConfig("", directories=config.directories)
    assert without(config, ["file:/etc/d"]) == MachineConfig("", links=config.links)
    assert write_steps(NO_CONFIG, config) == (WritePath(D), WritePath(L))
    assert write_steps(config, NO_CONFIG) == (RemovePath(L), RemovePath(D))


def test_a_directory_needs_no_action() -> None:
    assert actions(NO_CONFIG, directory()) == [ActionType.NONE]
    assert actions(directory(D, 0o700), directory(D, 0o755)) == [ActionType.NONE]
    assert actions(directory("/etc/crio/crio.conf.d"), NO_CONFIG) == [ActionType.NONE]


def test_an_entry_of_the_admin_decides_about_a_directory() -> None:
    user = Policy(files={D: Entry(D, (NONE,), PolicySource.USER)})
    assert make_plan(NO_CONFIG, directory(), merge(default_policy(), user)).changes[0].policy is PolicySource.USER


def test_a_link_is_as_a_file_of_its_path() -> None:
    assert ActionType.REBOOT in actions(NO_CONFIG, link())
    user = Policy(files={L: Entry(L, (NONE,), PolicySource.USER)})
    assert actions(NO_CONFIG, link(), merge(default_policy(), user)) == [ActionType.NONE]


def test_the_content_behind_a_link_is_not_known() -> None:
    """The entry of the path compares contents, and would find no difference."""
    file = MachineConfig("f", files={RULED: FileEntry(RULED, b"")})
    for old, new in ((NO_CONFIG, link(RULED)), (link(RULED), link(RULED, "/y")), (file, link(RULED))):
        assert ActionType.REBOOT in actions(old, new)


def test_a_link_that_the_host_has_on_its_own() -> None:
    assert actions(link(), NO_CONFIG, restored={L: SymbolicLink("/x", 0, 0)}) == [ActionType.NONE]
    assert ActionType.REBOOT in actions(link(), NO_CONFIG, restored={L: SymbolicLink("/y", 0, 0)})


def details(old: MachineConfig, new: MachineConfig, **sides: object) -> list[tuple[str, str, str]]:
    plan = with_values(make_plan(old, new, default_policy()), old, new, **sides)  # type: ignore[arg-type]
    return [(detail.what, detail.before, detail.after) for detail in plan.changes[0].details]


def test_details() -> None:
    assert details(NO_CONFIG, directory(D, 0o700, "app")) == [
        ("type", "", "directory"),
        ("mode", "", "0700"),
        ("owner", "", "app"),
    ]
    assert details(NO_CONFIG, directory(D, 0o700), disk={D: Directory(0o755, 0, 0)}) == [("mode", "0755", "0700")]
    assert details(directory(), NO_CONFIG) == [("type", "directory", "not managed")]
    assert details(NO_CONFIG, link(), disk={L: RegularFile(b"")}) == [
        ("type", "file", "link to /x"),
        ("replaces", "", "a file of the host"),
    ]
    assert details(link(), link(L, "/y")) == [("type", "link to /x", "link to /y")]
    assert details(link(), NO_CONFIG) == [("type", "link to /x", "")]
    file = MachineConfig("f", files={L: FileEntry(L, b"")})
    assert details(link(), file)[0] == ("type", "link to /x", "file")


@pytest.mark.parametrize("new", [MachineConfig("f", files={D: FileEntry(D, b"")}), link(D)])
def test_a_directory_does_not_become_a_file(new: MachineConfig) -> None:
    for sides in ((directory(), new), (new, directory())):
        (problem,) = check_reconcilable(*sides)
        assert problem.path == "spec.config.storage[/etc/d]"
