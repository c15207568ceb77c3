# SPDX-License-Identifier: Apache-2.0
"""Two entries for one path, and entries below a file."""

from __future__ import annotations

import pytest

from tests.core.config.documents import (
    FILES,
    KEY,
    UNITS,
    USERS,
    A,
    Doc,
    document,
    file,
    packed,
    parsed,
    paths_of,
)

COLLISIONS: dict[str, tuple[Doc, list[str]]] = {
    "files": ({"storage": {"files": [file(), file("/etc/b"), file()]}}, [f"{FILES}[2].path"]),
    "the same entry with another way of writing": (
        {"storage": {"files": [file(), {**file(), "user": {"name": "core"}}]}},
        [f"{FILES}[1].path"],
    ),
    "units": (
        {"systemd": {"units": [{"name": "a.service"}, {"name": "a.service", "mask": True}]}},
        [f"{UNITS}[1].name"],
    ),
    "drop-ins": (
        {"systemd": {"units": [{"name": "a.service", "dropins": [{"name": "a.conf"}, {"name": "a.conf"}]}]}},
        [f"{UNITS}[0].dropins[1].name"],
    ),
    "users": ({"passwd": {"users": [{"name": "core"}, {"name": "core"}]}}, [f"{USERS}[1].name"]),
    "other users": ({"passwd": {"users": [{"name": "a"}, {"name": "a"}]}}, [f"{USERS}[1].name"]),
    "links": (
        {"storage": {"links": [{"path": "/a", "target": "/b"}] * 2}},
        ["spec.config.storage.links[1].path"],
    ),
    "a file and a unit": (
        {"storage": {"files": [file("/etc/systemd/system/a.service")]},
         "systemd": {"units": [{"name": "a.service", "contents": "[Unit]"}]}},
        [f"{UNITS}[0].name"],
    ),
    "a file and a masked unit": (
        {"storage": {"files": [file("/etc/systemd/system/a.service")]},
         "systemd": {"units": [{"name": "a.service", "mask": True}]}},
        [f"{UNITS}[0].name"],
    ),
    "a file and a drop-in": (
        {"storage": {"files": [file("/etc/systemd/system/a.service.d/b.conf")]},
         "systemd": {"units": [{"name": "a.service", "dropins": [{"name": "b.conf", "contents": "[Unit]"}]}]}},
        [f"{UNITS}[0].dropins[0].name"],
    ),
    "a file and the keys of core": (
        {"storage": {"files": [file("/home/core/.ssh/authorized_keys.d/ignition")]},
         "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [KEY]}]}},
        [f"{USERS}[0].sshAuthorizedKeys"],
    ),
    "a file and a link": (
        {"storage": {"files": [file()], "links": [{"path": "/etc/a", "target": "/b"}]}},
        ["spec.config.storage.links[0].path"],
    ),
    "a file and a directory": (
        {"storage": {"files": [file()], "directories": [{"path": "/etc/a"}]}},
        ["spec.config.storage.directories[0].path"],
    ),
    "a link and a directory": (
        {"storage": {"links": [{"path": "/etc/a", "target": "/b"}], "directories": [{"path": "/etc/a"}]}},
        ["spec.config.storage.links[0].path"],
    ),
    "a file below a file": (
        {"storage": {"files": [file("/etc/x"), file("/etc/a"), file("/etc/a/b/c")]}},
        [f"{FILES}[1].path"],
    ),
    "a file below a link": (
        {"storage": {"files": [file("/etc/a/b")], "links": [{"path": "/etc/a", "target": "/b"}]}},
        ["spec.config.storage.links[0].path"],
    ),
    "a file where drop-ins go": (
        {"storage": {"files": [file("/etc/systemd/system/a.service.d")]},
         "systemd": {"units": [{"name": "a.service", "dropins": [{"name": "b.conf", "contents": "[Unit]"}]}]}},
        [f"{FILES}[0].path"],
    ),
    "two files, the first in an unusual form": (
        {"storage": {"files": [{"path": "/etc/a", "contents": packed(b"a")}, file("/etc/b"), file("/etc/a")]}},
        [f"{FILES}[2].path"],
    ),
    "a file appended to twice": (
        {"storage": {"files": [{"path": "/etc/a", "append": [A]}, {"path": "/etc/a", "append": [A]}]}},
        [f"{FILES}[1].path"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COLLISIONS)
def test_two_entries_for_one_path(case: str) -> None:
    config, paths = COLLISIONS[case]
    assert paths_of(document(config)) == paths


def test_what_is_no_collision() -> None:
    parsed(
        document(
            {
                "storage": {
                    "files": [
                        file("/etc/systemd/system/a.service"),
                        file("/etc/systemd/system/a.service.d/b.conf"),
                        file("/etc/d/a"),
                    ],
                    "directories": [{"path": "/etc/d"}],
                },
                "systemd": {"units": [{"name": "a.service", "enabled": True, "dropins": [{"name": "b.conf"}]}]},
            }
        )
    )
