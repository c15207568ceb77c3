# SPDX-License-Identifier: Apache-2.0
"""``passwd.users``: users other than core, whose accounts are created."""

from __future__ import annotations

import pytest

from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.machineconfig import Account, UserEntry, coming_accounts, meaning
from tests.core.config.documents import USERS, Doc, parsed, paths_of, with_users

ALICE = {"name": "alice", "sshAuthorizedKeys": ["k"]}


def test_all_keys_of_an_account() -> None:
    config = parsed(
        with_users(
            {
                **ALICE,
                "passwordHash": "$6$x$y",
                "uid": 1500,
                "gecos": "Alice",
                "groups": ["wheel", "docker", "wheel"],
                "homeDir": "/var/home/a",
                "noCreateHome": True,
                "noLogInit": True,
                "noUserGroup": True,
                "primaryGroup": "users",
                "shell": "/bin/bash",
                "shouldExist": True,
                "system": False,
            }
        )
    )
    account = Account(1500, "Alice", "/bin/bash", create_home=False, no_log_init=True)
    groups = ("docker", "wheel")
    assert config.users == {"alice": UserEntry("alice", ("k",), "$6$x$y", "/var/home/a", "users", groups, account)}
    assert config.unapplied == {}
    path, node = next(iter(expand(config).items()))
    assert path == "/var/home/a/.ssh/authorized_keys.d/ignition"
    assert isinstance(node, RegularFile)
    assert (node.user, node.group, node.dir_owner, node.mode) == ("alice", "users", "alice", 0o600)
    assert coming_accounts(config) == {"alice", "users"}


def test_an_account_without_more() -> None:
    config = parsed(with_users({"name": "alice"}))
    assert config.users == {"alice": UserEntry("alice", account=Account())}
    assert coming_accounts(config) == {"alice"}


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "root"},
        {"name": "alice", "uid": 999},
        {"name": "alice", "uid": 0},
        {"name": "alice", "uid": 65534},
        {"name": "alice", "system": True},
        {"name": "alice", "noUserGroup": True},
        {"name": "alice", "shouldExist": False},
        {"name": "Alice"},
        {"name": "-alice"},
    ],
)
def test_what_is_left_to_the_host(entry: Doc) -> None:
    config = parsed(with_users(entry))
    assert config.users == {}
    assert list(config.unapplied) == [f"passwd.users[{entry['name']}]"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"homeDir": "alice"}, "homeDir"),
        ({"homeDir": "/usr/alice"}, "homeDir"),
        ({"homeDir": "/root"}, "homeDir"),
        ({"shell": "bash"}, "shell"),
        ({"gecos": "a:b"}, "gecos"),
        ({"gecos": "a\nb"}, "gecos"),
        ({"groups": ["a,b"]}, "groups[0]"),
        ({"groups": "wheel"}, "groups"),
        ({"primaryGroup": "-x"}, "primaryGroup"),
        ({"uid": "1001"}, "uid"),
        ({"passwordHash": "a:b"}, "passwordHash"),
        ({"sshAuthorizedKeys": [1]}, "sshAuthorizedKeys[0]"),
        ({"password": "x"}, ""),
    ],
)
def test_a_problem_names_its_key(fields: Doc, path: str) -> None:
    assert f"{USERS}[0]{'.' if path else ''}{path}" in paths_of(with_users({**ALICE, **fields}))


def test_the_file_of_the_keys_has_one_entry() -> None:
    doc = with_users(ALICE)
    keys = {"path": "/home/alice/.ssh/authorized_keys.d/ignition"}
    doc["spec"]["config"].setdefault("storage", {})["files"] = [keys]
    assert f"{USERS}[0].sshAuthorizedKeys" in paths_of(doc)


def test_the_digest_depends_on_the_account() -> None:
    variants = [ALICE, {**ALICE, "uid": 1500}, {**ALICE, "groups": ["wheel"]}, {**ALICE, "homeDir": "/var/a"}]
    assert len({meaning(parsed(with_users(entry))) for entry in variants}) == len(variants)
