# SPDX-License-Identifier: Apache-2.0
"""Drift as data: parts of a config, and the list of drifted entries after each comparison."""

from __future__ import annotations

from nodeagent.core.config.machineconfig import Account, FileEntry, MachineConfig, UnitEntry, UserEntry
from nodeagent.core.plan.entries import only, unchanged
from nodeagent.features.drift.decide import DriftedEntry, describe_drift, updated, watched_paths

X, Y = FileEntry("/etc/x", b"1"), FileEntry("/etc/y", b"1")
UNIT = UnitEntry("app.service", "[Service]\n", dropins={"10-a.conf": "[Service]\n"})
CONFIG = MachineConfig(
    "a",
    files={X.path: X, Y.path: Y},
    units={UNIT.name: UNIT, "off.service": UnitEntry("off.service", mask=True)},
    users={"core": UserEntry("core", ("ssh-ed25519 AAAA",), "$6$hash")},
)
T1, T2 = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"


def test_every_managed_path_has_its_entry() -> None:
    entry_of = {
        "/etc/shadow": "password:core",
        "/home/core/.ssh/authorized_keys.d/ignition": "sshkey:core",
        "/etc/systemd/system/app.service": "unit:app.service",
        "/etc/systemd/system/app.service.d/10-a.conf": "unit:app.service",
        "/etc/systemd/system/off.service": "unit:off.service",
        "/etc/x": "file:/etc/x",
        "/etc/y": "file:/etc/y",
    }
    assert watched_paths(CONFIG) == {path: {entry} for path, entry in entry_of.items()}


def test_the_files_of_accounts_have_the_entries_of_all_users() -> None:
    users = {name: UserEntry(name, (), "$6$hash", account=Account()) for name in ("alice", "bob")}
    watched = watched_paths(MachineConfig("a", users={**CONFIG.users, **users}))
    assert watched["/etc/passwd"] == watched["/etc/group"] == {"user:alice", "user:bob"}
    assert watched["/etc/shadow"] == {
        "password:core",
        *(f"{kind}:{name}" for kind in ("password", "user") for name in users),
    }


def watched_entries(config: MachineConfig) -> set[str]:
    return {entry for entries in watched_paths(config).values() for entry in entries}


def test_a_part_of_a_config_has_these_entries_only() -> None:
    for entry in watched_entries(CONFIG):
        assert watched_entries(only(CONFIG, {entry})) == {entry}


def test_what_is_equal_in_both_configs() -> None:
    other = MachineConfig("b", files={X.path: X, Y.path: FileEntry("/etc/y", b"2")}, users=CONFIG.users)
    entries = watched_entries(CONFIG)
    assert unchanged(entries, CONFIG, other) == {"file:/etc/x", "sshkey:core", "password:core"}


def test_the_list_after_a_comparison() -> None:
    known = updated((), None, {"file:/etc/x": "is missing"}, T1, {"file:/etc/x": "vim"})
    assert known == (DriftedEntry("file:/etc/x", "is missing", T1, "vim"),)
    both = updated(known, {"file:/etc/y"}, {"file:/etc/y": "content differs"}, T2, {})
    assert [each.entry for each in both] == ["file:/etc/x", "file:/etc/y"]
    again = updated(both, {"file:/etc/x"}, {"file:/etc/x": "content differs"}, T2, {})
    assert again[0] == DriftedEntry("file:/etc/x", "content differs", T1, "vim"), "since then, and by whom, stays"
    assert updated(again, {"file:/etc/x"}, {}, T2, {}) == both[1:]
    assert updated(again, None, {}, T2, {}) == ()


def test_a_message_has_a_bounded_length() -> None:
    many = [DriftedEntry(f"file:/etc/{number}", "is missing", T1) for number in range(1000)]
    assert describe_drift(many).endswith("; 995 more")
