# SPDX-License-Identifier: Apache-2.0
"""``passwd.users``: the keys and the password hash of core."""

from __future__ import annotations

import pytest

from nodeagent.core.config.machineconfig import UserEntry
from tests.core.config.documents import (
    KEY,
    USERS,
    Doc,
    parsed,
    problems,
    with_users,
)


@pytest.mark.parametrize(
    ("fields", "user"),
    [
        ({}, UserEntry("core")),
        ({"sshAuthorizedKeys": []}, UserEntry("core")),
        ({"sshAuthorizedKeys": ["", " "]}, UserEntry("core")),
        ({"sshAuthorizedKeys": ["b", "a", "b "]}, UserEntry("core", ("a", "b"))),
        ({"sshAuthorizedKeys": ["a\nb\r\n"]}, UserEntry("core", ("a", "b"))),
        ({"passwordHash": "$6$x$y"}, UserEntry("core", (), "$6$x$y")),
        ({"passwordHash": ""}, UserEntry("core")),
        ({"passwordHash": None}, UserEntry("core")),
    ],
)
def test_core(fields: Doc, user: UserEntry) -> None:
    config = parsed(with_users({"name": "core", **fields}))
    assert config.users == {"core": user}
    assert config.unapplied == {}


@pytest.mark.parametrize(
    ("user", "path", "message"),
    [
        ({}, ".name", "name of a user"),
        ({"name": "a\nb"}, ".name", "name of a user"),
        ({"name": "core", "sshAuthorizedKeys": KEY}, ".sshAuthorizedKeys", "must be a list"),
        ({"name": "core", "sshAuthorizedKeys": [1]}, ".sshAuthorizedKeys[0]", "must be a string"),
        ({"name": "core", "sshAuthorizedKeys": ["a", "b\0"]}, ".sshAuthorizedKeys[1]", "control characters"),
        ({"name": "core", "passwordHash": "HASH\nroot::0"}, ".passwordHash", "must not hold"),
        ({"name": "core", "passwordHash": "HASH:x"}, ".passwordHash", "must not hold"),
        ({"name": "core", "passwordHash": 7}, ".passwordHash", "must be a string"),
    ],
)
def test_user_is_refused(user: Doc, path: str, message: str) -> None:
    found = [p for p in problems(with_users(user)) if p.path == f"{USERS}[0]{path}"]
    assert any(message in problem.message for problem in found)
    assert "HASH" not in repr(found)
