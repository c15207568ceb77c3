# SPDX-License-Identifier: Apache-2.0
"""Accounts and password hashes with the real tools, on account files of our own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nodeagent.core.config.machineconfig import Account, UserEntry
from nodeagent.errors import AgentError, InvalidInput, Retryable, Terminal
from nodeagent.host import programs as host_programs
from nodeagent.host.users import HostUsers, locked
from nodeagent.update.ports.host import HostAccount
from tests.support.disk import needs_root
from tests.support.needs import needs

HASH = "$6$salt$secrethash"
needs_chpasswd = needs("chpasswd")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "passwd").write_text(
        "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\nbare:x:7:7::/:/bin/sh\n"
    )
    (etc / "group").write_text("root:x:0:\ncore:x:1000:\n")
    (etc / "shadow").write_text(
        f"root:!locked:19000:0:99999:7:::\ncore:{HASH}:19000:0:99999:7:::\nopen::19000:0:99999:7:::\n"
    )
    (etc / "shadow").chmod(0o600)
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/passwd").write_text("chrony:x:990:990::/:/sbin/nologin\n")
    return tmp_path


async def test_reads_the_hash(root: Path) -> None:
    users = HostUsers(str(root))
    assert await users.password_hash("core") == HASH
    assert await users.password_hash("root") == "!locked"
    assert await users.password_hash("open") == ""
    assert await users.password_hash("nobody-here") is None


@pytest.mark.parametrize("user", ["bare", "chrony"])
async def test_an_account_without_a_shadow_line_has_no_password(root: Path, user: str) -> None:
    assert await HostUsers(str(root)).password_hash(user) == "*"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(HASH, f"!{HASH}"), ("", "!*"), ("!", "!"), ("!!", "!!"), ("*", "*"), ("!*", "!*"), (f"!{HASH}", f"!{HASH}")],
)
def test_locked(value: str, expected: str) -> None:
    assert locked(value) == expected
    assert locked(expected) == expected


@needs_root
@needs_chpasswd
class TestSetting:
    @pytest.mark.parametrize("value", ["$y$j9T$new$hash", "!", "*", f"!{HASH}"])
    async def test_changes_that_line_only(self, root: Path, value: str) -> None:
        users = HostUsers(str(root))
        await users.set_password_hash("core", value)
        assert await users.password_hash("core") == value
        lines = (root / "etc/shadow").read_text().splitlines()
        assert [line.split(":")[:2] for line in lines] == [["root", "!locked"], ["core", value], ["open", ""]]
        assert stat.S_IMODE((root / "etc/shadow").stat().st_mode) == 0o600

    async def test_a_lock_keeps_the_hash(self, root: Path) -> None:
        users = HostUsers(str(root))
        for _ in range(2):
            await users.lock("core")
            assert await users.password_hash("core") == f"!{HASH}"

    async def test_a_user_without_a_line_gets_one(self, root: Path) -> None:
        users = HostUsers(str(root))
        await users.set_password_hash("bare", HASH)
        assert await users.password_hash("bare") == HASH

    async def test_the_failure_names_no_hash(self, root: Path) -> None:
        (root / "etc/.pwd.lock").mkdir()  # chpasswd cannot lock
        with pytest.raises(Terminal) as caught:
            await HostUsers(str(root)).set_password_hash("core", "$6$other$secret")
        assert caught.value.reason == "PasswordNotSet"
        assert "secret" not in str(caught.value)
        assert await HostUsers(str(root)).password_hash("core") == HASH


@pytest.mark.parametrize("value", ["", "a:b", "a\nroot:", "a\0"])
async def test_a_hash_that_would_break_the_file(root: Path, value: str) -> None:
    before = (root / "etc/shadow").read_text()
    with pytest.raises(InvalidInput) as caught:
        await HostUsers(str(root)).set_password_hash("core", value)
    assert caught.value.reason == "BadHash"
    assert (root / "etc/shadow").read_text() == before


async def test_an_unknown_user(root: Path) -> None:
    users = HostUsers(str(root))
    with pytest.raises(Terminal, match="nobody-here") as caught:
        await users.set_password_hash("nobody-here", HASH)
    assert caught.value.reason == "UnknownUser"
    # A missing account needs no lock.
    await users.lock("nobody-here")


@pytest.mark.parametrize(
    ("script", "kind", "reason"),
    [
        (None, Terminal, "ToolMissing"),
        ("#!/bin/sh\ncat >&2; exit 3\n", Terminal, "PasswordNotSet"),
        ("#!/bin/sh\nexit 0\n", Terminal, "PasswordNotSet"),
        ("#!/bin/sh\nexec sleep 60\n", Retryable, "ToolTimedOut"),
    ],
)
async def test_a_chpasswd_that_does_not_do_it(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str | None,
    kind: type[AgentError],
    reason: str,
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    if script is not None:
        (tools / "chpasswd").write_text(script)
        (tools / "chpasswd").chmod(0o755)
    monkeypatch.setitem(host_programs.ENVIRONMENT, "PATH", f"{tools}:/bin" if script else str(tools))
    with pytest.raises(kind) as caught:
        await HostUsers(str(root), deadline=0.3).set_password_hash("core", "$6$new$secret")
    assert caught.value.reason == reason
    assert "secret" not in f"{caught.value}{caught.value.hint}"
    assert await HostUsers(str(root)).password_hash("core") == HASH


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_no_right_to_read(root: Path) -> None:
    (root / "etc/shadow").chmod(0)
    with pytest.raises(Terminal) as caught:
        await HostUsers(str(root)).password_hash("core")
    assert caught.value.reason == "PermissionDenied"


ALICE = UserEntry("alice", account=Account(uid=1234, gecos="Alice"))


@needs_root
@needs("useradd")
class TestAccounts:
    """With the real tools of shadow-utils."""

    @pytest.fixture
    def users(self, root: Path) -> HostUsers:
        (root / "home").mkdir()
        (root / "etc/gshadow").write_text("root:*::\ncore:!::\n")
        (root / "etc/login.defs").write_text("UID_MIN 1000\nUID_MAX 60000\nGID_MIN 1000\nGID_MAX 60000\n")
        (root / "usr/lib/group").write_text("docker:x:990:\n")
        with (root / "etc/group").open("a") as file:
            file.write("wheel:x:10:core\n")
        return HostUsers(str(root))

    async def test_an_account_is_created_once(self, users: HostUsers, root: Path) -> None:
        assert await users.account("alice") is None
        assert await users.problem(ALICE) == ""
        for _ in range(2):
            await users.create(ALICE)
            assert await users.account("alice") == HostAccount(1234, "/home/alice")
        assert (root / "home/alice").stat().st_uid == 1234
        assert await users.password_hash("alice") == "!"
        assert "alice:x:1234:1234:Alice:/home/alice:" in (root / "etc/passwd").read_text()

    async def test_it_expires_and_works_again(self, users: HostUsers, root: Path) -> None:
        await users.create(ALICE)
        for _ in range(2):
            await users.retire("alice")
            assert await users.account("alice") == HostAccount(1234, "/home/alice", expired=True)
        assert (root / "home/alice").is_dir()
        for again in (users.reinstate("alice"), users.create(ALICE)):
            await users.retire("alice")
            await again
            assert await users.account("alice") == HostAccount(1234, "/home/alice")
        for call in (users.retire, users.reinstate):
            await call("missing")

    async def test_groups_are_joined_and_left(self, users: HostUsers) -> None:
        await users.create(ALICE)
        await users.set_member("alice", "wheel", member=True)
        assert await users.account("alice") == HostAccount(1234, "/home/alice", groups=frozenset({"wheel"}))
        await users.set_member("alice", "wheel", member=False)
        assert await users.account("alice") == HostAccount(1234, "/home/alice")
        with pytest.raises(Terminal) as caught:
            await users.set_member("alice", "missing", member=True)
        assert caught.value.reason == "UserNotChanged"
        assert caught.value.message.startswith("gpasswd failed for alice and the group missing (exit ")

    async def test_the_options_of_an_account(self, users: HostUsers, root: Path) -> None:
        account = Account(shell="/bin/bash", create_home=False, no_log_init=True)
        await users.create(UserEntry("bob", home="/srv/bob", group="wheel", account=account))
        (line,) = [line for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("bob:")]
        assert line.split(":")[3:] == ["10", "", "/srv/bob", "/bin/bash"]
        assert not (root / "srv/bob").exists()

    @pytest.mark.parametrize(
        ("user", "problem"),
        [
            (UserEntry("core", account=Account()), ""),
            (UserEntry("core", home="/var/home/core", account=Account()), ""),
            (UserEntry("core", home="/srv/core", account=Account()), "has the home /home/core"),
            (UserEntry("core", account=Account(uid=1001)), "has the uid 1000, not 1001"),
            (UserEntry("chrony", home="/", account=Account()), "is an account of the system (uid 990)"),
            (UserEntry("bob", account=Account(uid=1000)), "the uid 1000 is that of core"),
            (UserEntry("bob", group="missing", account=Account()), "this host has no group 'missing'"),
            (UserEntry("wheel", account=Account()), "there is a group wheel already: set primaryGroup"),
            (UserEntry("bob", groups=("docker",), account=Account()), "no group docker in /etc/group"),
            (UserEntry("bob", groups=("wheel",), account=Account()), ""),
        ],
    )
    async def test_what_this_host_cannot_do(self, users: HostUsers, user: UserEntry, problem: str) -> None:
        found = await users.problem(user)
        assert problem in found
        assert bool(problem) == bool(found)
