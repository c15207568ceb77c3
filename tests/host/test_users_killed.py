# SPDX-License-Identifier: Apache-2.0
"""Accounts whose creation was killed, with the real tools of shadow-utils, at each of their writes."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

from nodeagent.core.config.machineconfig import Account, UserEntry
from nodeagent.errors import Terminal
from nodeagent.host import programs as host_programs
from nodeagent.host.users import HostUsers
from nodeagent.update.ports.host import HostAccount
from tests.support.disk import needs_root
from tests.support.needs import needs

pytestmark = [needs_root, needs("useradd"), needs("strace")]

PATH = host_programs.ENVIRONMENT["PATH"]
ALICE = UserEntry("alice", account=Account(gecos="Alice"))
FILES = ("passwd", "shadow", "group", "gshadow", "subuid", "subgid")
SKELETON = {".bashrc": "a\n", ".profile": "b\n"}
LOGIN_DEFS = """\
UID_MIN 1000
UID_MAX 60000
GID_MIN 1000
GID_MAX 60000
SUB_UID_MIN 100000
SUB_UID_MAX 600100000
SUB_UID_COUNT 65536
SUB_GID_MIN 100000
SUB_GID_MAX 600100000
SUB_GID_COUNT 65536
"""


def make_root(root: Path, *, user_groups: bool = True) -> Path:
    """Return the directory of a host. ``user_groups``: userdel deletes the group of a user, as on Fedora."""
    for folder in ("etc/skel", "home", "usr/lib"):
        (root / folder).mkdir(parents=True)
    for name, text in SKELETON.items():
        (root / "etc/skel" / name).write_text(text)
    lines = ("root:x:0:0::/root:/bin/sh\n", "root:!:19000:0:99999:7:::\n", "root:x:0:\n", "root:*::\n", "", "")
    for name, line in zip(FILES, lines, strict=True):
        (root / "etc" / name).write_text(line)
    (root / "etc/login.defs").write_text(LOGIN_DEFS + f"USERGROUPS_ENAB {'yes' if user_groups else 'no'}\n")
    return root


def _lines(root: Path, name: str) -> list[str]:
    return (root / "etc" / name).read_text().splitlines()


def state(root: Path) -> dict[str, object]:
    """Return what a host has of its accounts: the lines of each file, and the entries of the homes."""
    found: dict[str, object] = {name: sorted(_lines(root, name)) for name in FILES[:4]}
    # One whose userdel was killed has two ranges, which does no harm.
    found |= {name: {line.split(":")[0] for line in _lines(root, name)} for name in FILES[4:]}
    homes = [(path, path.lstat()) for path in (root / "home").rglob("*")]
    found["homes"] = sorted((str(path.relative_to(root)), stat.st_uid, stat.st_gid) for path, stat in homes)
    return found


class Killer:
    """Kills a program of the host at the N-th of its calls of one kind."""

    def __init__(self, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tools.mkdir()
        self._tools = tools
        monkeypatch.setitem(host_programs.ENVIRONMENT, "PATH", f"{tools}:{PATH}")

    def arm(self, program: str, call: str, number: int) -> None:
        script = self._tools / program
        inject = f"inject={call}:signal=KILL:when={number}"
        script.write_text(f'#!/bin/sh\nPATH={PATH}\nexec strace -qq -o /dev/null -e {inject} {program} "$@"\n')
        script.chmod(0o755)

    def disarm(self) -> None:
        for script in self._tools.iterdir():
            script.unlink()


@pytest.fixture
def killer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Killer:
    return Killer(tmp_path / "tools", monkeypatch)


async def killed(users: HostUsers, user: UserEntry) -> bool:
    """Create an account; return whether a program was killed."""
    try:
        await users.create(user)
    except Terminal as error:
        assert "exit -9" in error.message
        return True
    return False


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "call", "kills", "user_groups"),
    [
        ("useradd", "rename", 6, True),
        ("useradd", "rename", 6, False),
        ("useradd", "mkdir", 1, True),
        ("useradd", "chown", 2, True),
        ("usermod", "rename", 2, True),
        ("userdel", "rename", 4, True),
        ("userdel", "rename", 4, False),
    ],
)
async def test_the_next_attempt_heals_it(
    tmp_path: Path, killer: Killer, program: str, call: str, kills: int, user_groups: bool
) -> None:
    whole = make_root(tmp_path / "whole", user_groups=user_groups)
    await HostUsers(str(whole)).create(ALICE)
    assert [name for name in FILES if "alice" in (whole / "etc" / name).read_text()] == list(FILES)
    for number in count(1):
        root = make_root(tmp_path / str(number), user_groups=user_groups)
        users = HostUsers(str(root))
        if program == "userdel":
            killer.arm("usermod", "rename", 1)
            assert await killed(users, ALICE)
            killer.disarm()
        killer.arm(program, call, number)
        died = await killed(users, ALICE)
        killer.disarm()
        if not died:
            break
        account = await users.account("alice")
        assert account is None or account.expired
        assert await users.password_hash("alice") in (None, "*", "!")
        # What a revert does. It leaves the account to the next attempt.
        await users.retire("alice")
        expired = [line for line in _lines(root, "shadow") if line.startswith("alice:") and line.endswith(":1:")]
        assert expired or account is None
        if not (program == "userdel" and account is None):
            assert await users.problem(ALICE) == ""
        await users.create(ALICE)
        healed, wanted = state(root), state(whole)
        if not user_groups:
            # The group stays. One without a line in gshadow has no password, as with it.
            del healed["gshadow"], wanted["gshadow"]
        assert healed == wanted, f"{call} {number} of {program}"
        assert await users.problem(ALICE) == ""
    assert number > kills


@pytest.mark.parametrize("user_groups", [True, False])
async def test_a_home_and_a_group_of_the_host_stay(tmp_path: Path, killer: Killer, user_groups: bool) -> None:
    """useradd was killed in the skeleton, and the group is that of the host."""
    root = make_root(tmp_path / "root", user_groups=user_groups)
    with (root / "etc/group").open("a") as file:
        file.write("alice:x:4711:\n")
    user = UserEntry("alice", group="alice", account=Account())
    users = HostUsers(str(root))
    killer.arm("usermod", "rename", 1)
    assert await killed(users, user)
    killer.disarm()
    (root / "home/alice/.profile").unlink()
    (root / "home/alice/note").write_text("kept")
    # Another account takes no number that files of this one have.
    await users.create(UserEntry("bob", account=Account()))
    await users.create(user)
    assert await users.account("alice") == HostAccount(1000, "/home/alice")
    assert "alice:x:4711:" in (root / "etc/group").read_text()
    assert (root / "home/alice/note").read_text() == "kept"
    assert os.stat(root / "home/alice").st_uid == 1000


async def test_the_home_of_a_deleted_account_gets_its_owner_back(tmp_path: Path) -> None:
    root = make_root(tmp_path / "root")
    users = HostUsers(str(root))
    (root / "home/alice").mkdir()
    os.chown(root / "home/alice", 1234, 1234)
    await users.create(ALICE)
    assert await users.account("alice") == HostAccount(1234, "/home/alice")
    # The number of another account is not shared.
    (root / "home/carol").mkdir()
    os.chown(root / "home/carol", 1234, 1234)
    await users.create(UserEntry("carol", account=Account()))
    assert await users.account("carol") == HostAccount(1235, "/home/carol")
