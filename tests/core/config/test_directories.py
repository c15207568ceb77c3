# SPDX-License-Identifier: Apache-2.0
"""``storage.directories`` and ``storage.links``: what is read, refused, and left to the host."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.config.file_tree import Directory, SymbolicLink, expand
from nodeagent.core.config.machineconfig import DirectoryEntry, LinkEntry, meaning
from tests.core.config.documents import document, parsed, paths_of

STORAGE = "spec.config.storage"


def directories(*entries: dict[str, Any]) -> dict[str, Any]:
    return document({"storage": {"directories": list(entries)}})


def links(*entries: dict[str, Any]) -> dict[str, Any]:
    return document({"storage": {"links": list(entries)}})


def test_a_directory_names_what_it_sets() -> None:
    config = parsed(
        directories(
            {"path": "/var/lib/app", "mode": 448, "user": {"name": "app"}, "group": {"id": 7}},
            {"path": "/etc/d", "user": {"name": "root"}},
        )
    )
    assert config.directories == {
        "/var/lib/app": DirectoryEntry("/var/lib/app", 0o700, "app", 7),
        "/etc/d": DirectoryEntry("/etc/d", None, 0, None),
    }
    assert expand(config)["/etc/d"] == Directory(None, 0, None)
    assert not config.unapplied


def test_a_link_belongs_to_root() -> None:
    config = parsed(links({"path": "/etc/localtime", "target": "../usr/share/zoneinfo/UTC", "overwrite": True}))
    assert config.links == {"/etc/localtime": LinkEntry("/etc/localtime", "../usr/share/zoneinfo/UTC")}
    assert expand(config)["/etc/localtime"] == SymbolicLink("../usr/share/zoneinfo/UTC")


@pytest.mark.parametrize(
    ("doc", "path"),
    [
        (directories({"path": "/etc", "mode": 448}), "directories[0].path"),
        (directories({"path": "/run/x"}), "directories[0].path"),
        (directories({"path": "/usr/x"}), "directories[0].path"),
        (directories({"path": "/etc/x", "mode": 0o1777}), "directories[0].mode"),
        (directories({"path": "/etc/x", "mode": "0755"}), "directories[0].mode"),
        (directories({"path": "/etc/x", "user": {"name": "a:b"}}), "directories[0].user.name"),
        (directories({"path": "/etc/x", "typo": 1}), "directories[0]"),
        (directories({"path": "/etc/x"}, {"path": "/etc/x"}), "directories[1].path"),
        (links({"path": "/etc/x"}), "links[0].target"),
        (links({"path": "/etc/x", "target": "a\nb"}), "links[0].target"),
        (links({"path": "/dev/x", "target": "/y"}), "links[0].path"),
        (links({"path": "/etc/x", "target": "/y", "group": {"id": -1}}), "links[0].group.id"),
    ],
)
def test_a_problem_names_its_key(doc: dict[str, Any], path: str) -> None:
    assert f"{STORAGE}.{path}" in [place.replace("[/etc/x]", "") for place in paths_of(doc)]


def test_the_digest_of_a_config_depends_on_them() -> None:
    plain = parsed(document({"storage": {}}))
    digests = {
        meaning(config)
        for config in (
            plain,
            parsed(directories({"path": "/etc/d"})),
            parsed(directories({"path": "/etc/d", "mode": 448})),
            parsed(links({"path": "/etc/d", "target": "/x"})),
            parsed(links({"path": "/etc/d", "target": "/y"})),
        )
    }
    assert len(digests) == 5
