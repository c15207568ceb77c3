# SPDX-License-Identifier: Apache-2.0
"""Names to numbers, in the order of an ostree host: /etc, /usr/lib, then the C library."""

from __future__ import annotations

import grp
import pwd
from pathlib import Path

import pytest

from nodeagent.errors import Terminal
from nodeagent.host.fs.owners import Owners, PasswdEntry


@pytest.fixture
def owners(tmp_path: Path) -> Owners:
    for folder in ("etc", "usr/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/passwd").write_bytes(
        b"root:x:0:0:root:/root:/bin/sh\n\n# a comment:x:5:5\n+nis::::::\nbroken:x:abc:1::\nshort:x\n"
        b"core:x:1000:1001:caf\xe9:/home/core:/bin/sh\nchrony:x:7:7::/:/bin/sh"
    )
    (tmp_path / "usr/lib/passwd").write_text("chrony:x:990:991::/:/bin/sh\ncore:x:1:1::/:/bin/sh\n")
    (tmp_path / "etc/group").write_text("root:x:0:\nwheel:x:10:core,root\n")
    (tmp_path / "usr/lib/group").write_text("wheel:x:99:\nchrony:x:991:\n")
    return Owners(str(tmp_path))


def test_users(owners: Owners) -> None:
    assert owners.uid("core") == 1000
    assert owners.uid("chrony") == 7  # what the admin says in /etc comes first
    assert owners.uid(4711) == 4711
    assert owners.user(990) == PasswdEntry("chrony", 990, 991, "/")
    assert owners.user("core") == PasswdEntry("core", 1000, 1001, "/home/core", "caf\udce9")


def test_groups(owners: Owners) -> None:
    assert owners.gid("wheel") == 10
    assert owners.gid("chrony") == 991
    assert owners.gid(4711) == 4711
    assert owners.primary_group("core") == 1001
    assert owners.primary_group(0) == 0
    assert owners.primary_group(4711) == -1


@pytest.mark.parametrize("name", ["nobody-here", "broken", "short", "+nis", "", "1000"])
def test_unknown(owners: Owners, name: str) -> None:
    with pytest.raises(Terminal) as caught:
        owners.uid(name)
    assert caught.value.reason == "UnknownUser"
    assert repr(name) in caught.value.message
    with pytest.raises(Terminal) as caught:
        owners.gid(name)
    assert caught.value.reason == "UnknownGroup"


def test_no_files_at_all(tmp_path: Path) -> None:
    assert Owners(str(tmp_path)).user("root") is None


def test_on_the_real_root_the_c_library_agrees() -> None:
    owners = Owners()
    for entry in pwd.getpwall():
        assert owners.uid(entry.pw_name) == entry.pw_uid
    for group in grp.getgrall():
        assert owners.gid(group.gr_name) == group.gr_gid
    assert owners.user("nobody-here") is None
