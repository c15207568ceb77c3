# SPDX-License-Identifier: Apache-2.0
"""Sections that are compared and not applied."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.config.unsupported import why
from tests.core.config.documents import (
    A,
    Doc,
    document,
    parsed,
    paths_of,
    problems,
)


def test_unapplied_sections_are_kept_apart() -> None:
    doc = document(
        {
            "storage": {
                "disks": [{"device": "/dev/sda", "wipeTable": True}],
                "directories": [{"path": "/etc/d", "mode": 493, "overwrite": True}],
                "links": [
                    {"path": "/etc/l", "target": "/x", "hard": True},
                    {"path": "/etc/systemd/system/a.target.wants/b.service", "target": "/x"},
                ],
                "luks": [{"name": "data", "keyFile": {"source": "data:,SECRET"}, "clevis": {"tpm2": True}}],
                "raid": [{"name": "md0", "level": "raid1"}],
                "filesystems": [{"device": "/dev/sda1", "format": "xfs"}],
                "files": [
                    {"path": "/etc/a", "append": [A]},
                    {"path": "/etc/h", "contents": {**A, "httpHeaders": [{"name": "x"}]}},
                ],
            },
            "passwd": {
                "users": [
                    {"name": "bob", "uid": 900},
                    {"name": "core", "groups": ["wheel"], "shell": "", "homeDir": None},
                ],
                "groups": [{"name": "g"}],
            },
        }
    )
    doc["spec"]["config"]["ignition"] |= {
        "config": {"merge": [{"source": "https://x/"}]},
        "security": {"tls": {"certificateAuthorities": [A]}},
        "timeouts": {"httpTotal": 0},
        "proxy": {"httpProxy": "http://SECRET@x"},
    }
    config = parsed(doc)
    assert list(config.unapplied) == [
        "ignition.config",
        "ignition.proxy",
        "ignition.security",
        "ignition.timeouts",
        "passwd.groups[g]",
        "passwd.users[bob]",
        "passwd.users[core].groups",
        "storage.directories[/etc/d].overwrite",
        "storage.disks[/dev/sda]",
        "storage.files[/etc/a]",
        "storage.files[/etc/h].contents.httpHeaders",
        "storage.filesystems[/dev/sda1]",
        "storage.links[/etc/l]",
        "storage.links[/etc/systemd/system/a.target.wants/b.service]",
        "storage.luks[data]",
        "storage.raid[md0]",
    ]
    assert list(config.files) == ["/etc/h"]
    assert "SECRET" not in repr(config)


def test_unapplied_sections_that_say_nothing() -> None:
    sections = {"disks": [], "directories": None, "links": [], "luks": [], "raid": [], "filesystems": []}
    doc = document({"storage": sections, "passwd": {"groups": []}, "kernelArguments": {"shouldExist": []}})
    doc["spec"]["config"]["ignition"] |= {"config": {"replace": {"verification": {}}}, "timeouts": {"httpTotal": None}}
    assert parsed(doc).unapplied == {}


@pytest.mark.parametrize(
    ("section", "entry", "path"),
    [
        ("links", {"path": "etc/l"}, "links[0].path"),
        ("links", {"target": "/x"}, "links[0].path"),
        ("directories", {"path": "/etc/../d"}, "directories[0].path"),
        ("disks", {}, "disks[0].device"),
        ("luks", "data", "luks[0]"),
        ("raid", {"name": "a\nb"}, "raid[0].name"),
    ],
)
def test_unapplied_sections_are_looked_at(section: str, entry: Any, path: str) -> None:
    assert f"spec.config.storage.{path}" in paths_of(document({"storage": {section: [entry]}}))


@pytest.mark.parametrize(
    "config",
    [{"foo": {}}, {"storage": {"foo": []}}, {"passwd": {"foo": []}}, {"systemd": {"foo": []}}, {"networkd": {}}],
)
def test_unknown_sections(config: Doc) -> None:
    assert len(problems(document(config))) == 1


@pytest.mark.finding(
    "configs: links and directories", "A refusal of links, directories, users and groups names what takes their place."
)
@pytest.mark.parametrize(
    ("section", "way"),
    [
        ("storage.links[/etc/localtime]", "symbolic link"),
        ("storage.links[/etc/systemd/system/a.wants/b.service]", "Alias="),
        ("storage.directories[/srv/x]", "/etc/tmpfiles.d"),
        ("passwd.groups[g]", "/etc/sysusers.d"),
        ("passwd.users[u]", "/etc/sysusers.d"),
    ],
)
def test_what_is_not_applied_names_the_way(section: str, way: str) -> None:
    assert way in why(section)


OF_TWO = {
    "append of a config": (
        {"ignition": {"version": "3.4.0", "config": {"append": [{"source": "data:,"}]}}},
        "ignition.config",
        "append",
    ),
    "filesystem of a link": (
        {"storage": {"links": [{"path": "/l", "target": "/", "filesystem": "root"}]}},
        "storage.links[0]",
        "filesystem",
    ),
    "filesystem of a directory": (
        {"storage": {"directories": [{"path": "/d", "filesystem": "root"}]}},
        "storage.directories[0]",
        "filesystem",
    ),
    "mount": (
        {"storage": {"filesystems": [{"device": "/dev/a", "mount": {"device": "/dev/a"}}]}},
        "storage.filesystems[0]",
        "mount",
    ),
    "name of a filesystem": (
        {"storage": {"filesystems": [{"device": "/dev/a", "name": "root"}]}},
        "storage.filesystems[0]",
        "name",
    ),
    "size of a partition": (
        {"storage": {"disks": [{"device": "/dev/a", "partitions": [{}, {"size": 8}]}]}},
        "storage.disks[0].partitions[1]",
        "size",
    ),
    "create of a user": (
        {"passwd": {"users": [{"name": "core"}, {"name": "u", "create": {"uid": 1}}]}},
        "passwd.users[1]",
        "create",
    ),
}


@pytest.mark.finding(
    "configs: keys of another format", "A key of Ignition 2 in a config of 3 is named, and its successor."
)
@pytest.mark.parametrize("case", OF_TWO)
def test_a_key_of_ignition_2_is_named(case: str) -> None:
    config, path, key = OF_TWO[case]
    (problem,) = [p for p in problems(document(config)) if "of Ignition 2" in p.message]
    assert problem.path == f"spec.config.{path}"
    assert problem.message.startswith(f"unknown key '{key}': it is of Ignition 2; ")
