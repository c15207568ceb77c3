# SPDX-License-Identifier: Apache-2.0
"""Differences that count as a change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry, UserEntry
from nodeagent.core.config.parse import parse_document
from nodeagent.core.plan.change import Change, ChangeKind
from nodeagent.core.plan.diff import diff
from tests.core.config.documents import Doc, document, file, in_base64, packed, with_files, with_units, with_users
from tests.support.configs import config

ADDED, MODIFIED, REMOVED = ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.REMOVED
EMPTY = MachineConfig("a")


def entries(**kwargs: Any) -> FileEntry:
    return FileEntry(**{"path": "/a", "content": b"a", **kwargs})


@pytest.mark.parametrize(
    "other",
    [
        entries(content=b"b"),
        entries(mode=0o600),
        entries(user=1),
        entries(user="core"),
        entries(group=1),
        entries(overwrite=False),
    ],
)
def test_a_file_is_modified(other: FileEntry) -> None:
    old, new = replace(EMPTY, files={"/a": entries()}), replace(EMPTY, files={"/a": other})
    assert diff(old, new) == (Change("file", "/a", MODIFIED),)


@pytest.mark.parametrize(
    "other",
    [
        UnitEntry("a.service", "y"),
        UnitEntry("a.service"),
        UnitEntry("a.service", "x", enabled=True),
        UnitEntry("a.service", "x", enabled=False),
        UnitEntry("a.service", "x", mask=True),
        UnitEntry("a.service", "x", dropins={"a.conf": "z"}),
    ],
)
def test_a_unit_is_modified(other: UnitEntry) -> None:
    old, new = (
        replace(EMPTY, units={"a.service": UnitEntry("a.service", "x")}),
        replace(EMPTY, units={"a.service": other}),
    )
    assert diff(old, new) == (Change("unit", "a.service", MODIFIED),)


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (None, UserEntry("core"), []),
        (None, UserEntry("core", ("k",)), [("sshkey", ADDED)]),
        (UserEntry("core", ("k",)), UserEntry("core", ("l",)), [("sshkey", MODIFIED)]),
        (UserEntry("core", ("k",)), None, [("sshkey", REMOVED)]),
        (UserEntry("core", ("k",)), UserEntry("core", (), "h"), [("password", ADDED), ("sshkey", REMOVED)]),
        (UserEntry("core", ("k",), "h"), UserEntry("core", ("k",), "i"), [("password", MODIFIED)]),
        (UserEntry("core", ("k",), "h"), UserEntry("core", ("k",)), [("password", REMOVED)]),
    ],
)
def test_users(old: UserEntry | None, new: UserEntry | None, changes: list[tuple[str, ChangeKind]]) -> None:
    before, after = ({} if user is None else {"core": user} for user in (old, new))
    found = diff(replace(EMPTY, users=before), replace(EMPTY, users=after))
    assert found == tuple(Change(domain, "core", kind) for domain, kind in changes)


@pytest.mark.parametrize(
    ("field", "old", "new", "domain", "kind"),
    [
        ("os_image_url", "", "x", "osImageURL", ADDED),
        ("os_image_url", "x", "y", "osImageURL", MODIFIED),
        ("os_image_url", "x", "", "osImageURL", REMOVED),
        ("extensions_image", "x", "y", "baseOSExtensionsContainerImage", MODIFIED),
        ("kernel_arguments", (), ("a",), "kernelArguments", ADDED),
        ("kernel_arguments", ("a", "b"), ("b", "a"), "kernelArguments", MODIFIED),
        ("kernel_arguments", ("a",), ("a", "a"), "kernelArguments", MODIFIED),
        ("kernel_arguments", ("a",), (), "kernelArguments", REMOVED),
        ("kernel_type", "default", "realtime", "kernelType", MODIFIED),
        ("kernel_type", "64k-pages", "default", "kernelType", MODIFIED),
        ("extensions", (), ("a",), "extensions", ADDED),
        ("extensions", ("a", "b"), ("a",), "extensions", MODIFIED),
        ("fips", False, True, "fips", MODIFIED),
        ("fips", True, False, "fips", MODIFIED),
    ],
)
def test_values(field: str, old: object, new: object, domain: str, kind: ChangeKind) -> None:
    before, after = MachineConfig("a", **{field: old}), MachineConfig("b", **{field: new})
    assert diff(before, after) == (Change(domain, domain, kind),)


def test_order_of_the_answer() -> None:
    old = config(files={"/b": b"", "/c": b"1"}, units={"b.service": ""}, keys=("k",))
    new = config(files={"/c": b"2", "/a": b""}, units={"a.service": ""}, os_image_url="x", kernel_arguments=("a",))
    assert [change.id for change in diff(old, new)] == [
        "file:/a",
        "file:/b",
        "file:/c",
        "kernelArguments:kernelArguments",
        "osImageURL:osImageURL",
        "sshkey:core",
        "unit:a.service",
        "unit:b.service",
    ]


def unchanged(old: Doc, new: Doc) -> None:
    before, after = parse_document(old), parse_document(new)
    assert before == after
    assert diff(before, after) == ()


SAME: dict[str, tuple[Doc, Doc]] = {
    "files in another order": (with_files(file(), file("/etc/b")), with_files(file("/etc/b"), file())),
    "units in another order": (
        with_units({"name": "a.service"}, {"name": "b.service"}),
        with_units({"name": "b.service"}, {"name": "a.service"}),
    ),
    "drop-ins in another order": (
        with_units({"name": "a.service", "dropins": [{"name": f"{n}.conf", "contents": n} for n in "ab"]}),
        with_units({"name": "a.service", "dropins": [{"name": f"{n}.conf", "contents": n} for n in "ba"]}),
    ),
    "keys in another order": (
        with_users({"name": "core", "sshAuthorizedKeys": ["a", "b"]}),
        with_users({"name": "core", "sshAuthorizedKeys": ["b", "a", "a"]}),
    ),
    "extensions in another order": (document(extensions=["a", "b"]), document(extensions=["b", "a"])),
    "kernel arguments in other entries": (
        document(kernelArguments=["a b", "c"]),
        document(kernelArguments=["a", " b c"]),
    ),
    "nil and empty": (
        document(config=None, kernelArguments=None, extensions=None, fips=None, kernelType=None, osImageURL=None),
        document(config={}, kernelArguments=[], extensions=[], fips=False, kernelType="", osImageURL=""),
    ),
    "kernelType": (document(kernelType=""), document(kernelType="default")),
    "nil and empty sections": (
        document({"storage": None, "systemd": None, "passwd": None}),
        document({"storage": {"files": []}, "systemd": {"units": []}, "passwd": {"users": [], "groups": []}}),
    ),
    "defaults of a file": (
        with_files({"path": "/etc/a"}),
        with_files({"path": "/etc/a", "mode": 0o644, "overwrite": True, "user": {"id": 0}, "group": {"name": "root"},
                    "contents": {"source": "data:,", "compression": "", "verification": {}}}),
    ),
    "another encoding": (
        with_files({"path": "/etc/a", "contents": {"source": in_base64(b"hi")}}),
        with_files({"path": "/etc/a", "contents": {"source": "data:,%68i"}}),
    ),
    "packed": (
        with_files({"path": "/etc/a", "contents": packed(b"hi")}),
        with_files({"path": "/etc/a", "contents": {"source": "data:,hi"}}),
    ),
    "an empty drop-in": (
        with_units({"name": "a.service", "dropins": [{"name": "a.conf", "contents": ""}]}),
        with_units({"name": "a.service"}),
    ),
    "another version of Ignition": (document({}, version="3.1.0"), document({}, version="3.5.0")),
    "unapplied sections in another order": (
        document({"storage": {"disks": [{"device": "/a", "wipeTable": True}, {"device": "/b"}]}}),
        document({"storage": {"disks": [{"device": "/b", "partitions": []}, {"wipeTable": True, "device": "/a"}]}}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
def test_is_no_change(case: str) -> None:
    unchanged(*SAME[case])
