# SPDX-License-Identifier: Apache-2.0
"""Fields that cannot change on a running host. The first part follows the table of the machine-config-operator."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import parse_document
from nodeagent.core.plan.reconcile import check_reconcilable, hash_problem, remedy
from nodeagent.errors import Problem
from tests.core.config.documents import Doc, document, file

EMPTY: Doc = {}
CORE = {"name": "core", "sshAuthorizedKeys": ["key"]}
LINK = {"path": "/etc/l", "target": "/x", "hard": True}
RESOURCE = {"source": "data:,a"}


def check(old: MachineConfig | Doc, new: MachineConfig | Doc) -> tuple[Problem, ...]:
    configs = [c if isinstance(c, MachineConfig) else parse_document(document(c)) for c in (old, new)]
    return check_reconcilable(*configs)


def storage(**sections: Any) -> Doc:
    return {"storage": sections}


def users(*entries: Doc) -> Doc:
    return {"passwd": {"users": list(entries)}}


REFUSED: dict[str, tuple[Doc, Doc, str]] = {
    "disk added": (EMPTY, storage(disks=[{"device": "/dev/a"}]), "storage.disks[/dev/a]"),
    "disk changed": (
        storage(disks=[{"device": "/dev/a"}]),
        storage(disks=[{"device": "/dev/a", "wipeTable": True}]),
        "storage.disks[/dev/a]",
    ),
    "disk removed": (storage(disks=[{"device": "/dev/a"}]), EMPTY, "storage.disks[/dev/a]"),
    "filesystem": (EMPTY, storage(filesystems=[{"device": "/dev/a", "format": "xfs"}]), "storage.filesystems[/dev/a]"),
    "raid": (EMPTY, storage(raid=[{"name": "md0"}]), "storage.raid[md0]"),
    "luks, which passes silently elsewhere": (EMPTY, storage(luks=[{"name": "data"}]), "storage.luks[data]"),
    "luks with another pin": (
        storage(luks=[{"name": "data", "clevis": {"tpm2": True}}]),
        storage(luks=[{"name": "data", "clevis": {"tpm2": False}}]),
        "storage.luks[data]",
    ),
    "directory": (
        EMPTY,
        storage(directories=[{"path": "/etc/d", "overwrite": True}]),
        "storage.directories[/etc/d].overwrite",
    ),
    "link added": (EMPTY, storage(links=[LINK]), "storage.links[/etc/l]"),
    "link changed": (storage(links=[LINK]), storage(links=[{**LINK, "target": "/y"}]), "storage.links[/etc/l]"),
    "link removed, which leaves it there elsewhere": (storage(links=[LINK]), EMPTY, "storage.links[/etc/l]"),
    "append": (EMPTY, storage(files=[{"path": "/etc/a", "append": [RESOURCE]}]), "storage.files[/etc/a]"),
    "no append any more": (
        storage(files=[{"path": "/etc/a", "append": [RESOURCE]}]),
        storage(files=[file()]),
        "storage.files[/etc/a]",
    ),
    "group": (EMPTY, {"passwd": {"groups": [{"name": "g"}]}}, "passwd.groups[g]"),
    "another user": (EMPTY, users({"name": "root", "sshAuthorizedKeys": ["key"]}), "passwd.users[root]"),
    "another user removed": (users({"name": "bob", "system": True}), EMPTY, "passwd.users[bob]"),
    "groups of core": (users(CORE), users({**CORE, "groups": ["wheel"]}), "passwd.users[core].groups"),
    "core should not exist": (users(CORE), users({**CORE, "shouldExist": False}), "passwd.users[core].shouldExist"),
    "core without keys and hash": (users(CORE), users({"name": "core"}), "passwd.users[core]"),
    "new core without keys and hash": (EMPTY, users({"name": "core"}), "passwd.users[core]"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused(case: str) -> None:
    old, new, path = REFUSED[case]
    (problem,) = check(old, new)
    assert problem.path == f"spec.config.{path}"
    assert len(problem.message) > 30  # says why, not only what


ALLOWED: dict[str, tuple[Doc, Doc]] = {
    "nothing": (EMPTY, EMPTY),
    "files": (storage(files=[file()]), storage(files=[file("/etc/b", "x", mode=0o600)])),
    "units": (EMPTY, {"systemd": {"units": [{"name": "a.service", "enabled": True}]}}),
    "keys of core": (users(CORE), users({**CORE, "sshAuthorizedKeys": ["other"]})),
    "core added": (EMPTY, users(CORE)),
    "core with a hash only": (users(CORE), users({"name": "core", "passwordHash": "x"})),
    "users removed": (users(CORE), EMPTY),
    "disks as they were": (
        storage(disks=[{"device": "/dev/a"}]),
        storage(disks=[{"device": "/dev/a", "partitions": []}]),
    ),
    "links in another order": (
        storage(links=[LINK, {**LINK, "path": "/etc/m"}]),
        storage(links=[{"hard": True, "target": "/x", "path": "/etc/m"}, LINK]),
    ),
    "an append as it was": (
        storage(files=[{"path": "/etc/a", "append": [RESOURCE]}]),
        storage(files=[{"append": [RESOURCE], "path": "/etc/a"}]),
    ),
    "bare core as it was": (users({"name": "core"}), users({"name": "core", "passwordHash": ""})),
    "other users as they were": (users({"name": "bob", "uid": 7}, CORE), users(CORE, {"uid": 7, "name": "bob"})),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_is_allowed(case: str) -> None:
    old, new = ALLOWED[case]
    assert check(old, new) == ()
    assert check(new, new) == ()


@pytest.mark.parametrize("key", ["config", "proxy", "security", "timeouts"])
def test_sections_of_ignition_itself(key: str) -> None:
    doc = document({})
    doc["spec"]["config"]["ignition"][key] = {"x": 1}
    (problem,) = check(EMPTY, parse_document(doc))
    assert problem.path == f"spec.config.ignition.{key}"
    assert "first boot" in problem.message


@pytest.mark.parametrize("before", [True, False])
def test_fips_cannot_change(before: bool) -> None:
    old, new = (parse_document(document(fips=value)) for value in (before, not before))
    (problem,) = check(old, new)
    assert problem.path == "spec.fips"
    assert ("on to off" if before else "off to on") in problem.message


def test_what_belongs_to_the_os_is_for_others_to_refuse() -> None:
    spec = {"osImageURL": "x", "kernelArguments": ["a"], "kernelType": "realtime", "extensions": ["usbguard"]}
    assert check(EMPTY, parse_document(document(**spec))) == ()


def test_all_reasons_come_sorted_and_say_how() -> None:
    old = storage(links=[LINK], disks=[{"device": "/dev/a"}])
    new = storage(raid=[{"name": "r"}], disks=[{"device": "/dev/a", "wipeTable": True}])
    assert [(p.path.removeprefix("spec.config.storage."), p.message.partition(":")[0]) for p in check(old, new)] == [
        ("disks[/dev/a]", "changes"),
        ("links[/etc/l]", "is removed"),
        ("raid[r]", "is added"),
    ]


@pytest.mark.finding("commands: usage errors and hints", "The hint of `Unreconcilable` is the way out of that change.")
def test_each_remedy_is_named_once() -> None:
    paths = [
        "spec.fips",
        "spec.config.storage.luks[a]",
        "spec.config.storage.links[/etc/l]",
        "spec.config.storage.links[/etc/m]",
    ]
    assert remedy([Problem(path, "changes") for path in paths]) == (
        "revert the change, or reinstall the host with it; remove the change of storage.links from the config"
    )


def test_a_remedy_names_the_setting_that_accepts_a_section() -> None:
    paths = [f"spec.config.storage.{name}" for name in ("disks[/dev/a]", "disks[/dev/b]", "luks[a]", "links[/etc/l]")]
    acceptable = {"storage.disks": "group.accept", "storage.luks": "group.accept"}
    assert remedy([Problem(path, "changes") for path in paths], acceptable) == (
        "revert the change, or reinstall the host with it; remove the change of storage.links from the config; "
        "group.accept with storage.disks, storage.luks lets a host keep what it has and apply the rest"
    )


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("*", ""),
        ("!", ""),
        (f"$6$salt${'a' * 86}", ""),
        (f"!$6$salt${'a' * 86}", ""),
        ("$6$salt$a", "is an incomplete hash"),
        ("!$y$j9T$salt", "is an incomplete hash"),
        ("secret", "is not a password hash"),
        ("$", "is not a password hash"),
        ("ab" + "c" * 11, "is not a password hash"),
    ],
)
def test_a_password_hash(value: str, problem: str) -> None:
    found = hash_problem(value)
    assert found.startswith(problem)
    assert bool(found) is bool(problem)
