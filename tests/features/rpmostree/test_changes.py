# SPDX-License-Identifier: Apache-2.0
"""What a staged deployment changes, with a daemon on the bus and two trees that share files by hard links."""

from __future__ import annotations

import os as paths
from pathlib import Path
from typing import Any

import pytest
from dbus_next import Variant

from nodeagent.core.config.file_tree import RegularFile, SymbolicLink
from nodeagent.core.plan.os_changes import FileCounts, OsChanges, PackageChange, PackageChangeKind, summary
from nodeagent.errors import Refused
from nodeagent.features.rpmostree.adapter import RpmOstree
from nodeagent.features.rpmostree.client import packages_from
from tests.features.rpmostree.adapters import IMAGE
from tests.features.rpmostree.fake_rpmostree import FakeRpmOstree
from tests.support.fake_peer import DBusFault

OLD = {
    "usr/lib/modules/6.1/vmlinuz": "k1",
    "usr/lib/modules/6.1/initramfs.img": "i1",
    "usr/etc/selinux/targeted/policy/policy.33": "p",
    "usr/etc/app.conf": "default\n",
    "usr/etc/other.conf": "default\n",
    "usr/bin/same": "same",
    "usr/bin/old": "old",
    "usr/bin/changed": "1",
}
NEW = {
    **OLD,
    "usr/lib/modules/6.2/vmlinuz": "k2",
    "usr/lib/modules/6.2/initramfs.img": "i2",
    "usr/etc/app.conf": "new default\n",
    "usr/bin/new": "new",
    "usr/bin/changed": "2",
}
GONE = ("usr/bin/old", "usr/lib/modules/6.1/vmlinuz", "usr/lib/modules/6.1/initramfs.img")
MANAGED = {
    "/etc/app.conf": RegularFile(b"default\n"),
    "/etc/other.conf": RegularFile(b"default\n"),
    "/etc/mine.conf": RegularFile(b"mine\n"),
    "/etc/link": SymbolicLink("/dev/null"),
    "/var/app.conf": RegularFile(b"default\n"),
}


def tree(root: Path, deployment: dict[str, Any], files: dict[str, str], *, database: bool) -> None:
    """Check out a tree: equal contents are one file, as in a repository."""
    top = root / f"ostree/deploy/fedora-coreos/deploy/{deployment['checksum']}.{deployment['serial']}"
    if database:
        files = {**files, "usr/share/rpm/rpmdb.sqlite": deployment["id"]}
    for path, text in files.items():
        stored = root / f"repo/{text.strip()}"
        stored.parent.mkdir(exist_ok=True)
        if not stored.exists():
            stored.write_text(text)
            stored.chmod(0o644)
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        paths.link(stored, top / path)


async def staged(os: RpmOstree, daemon: FakeRpmOstree, *, database: bool) -> str:
    found = await os.stage(IMAGE, credentials=None, replace="", on_progress=lambda progress: None)
    booted = next(each for each in daemon.deployments if each["booted"])
    tree(daemon.root, booted, OLD, database=database)
    tree(daemon.root, daemon.first, {path: text for path, text in NEW.items() if path not in GONE}, database=database)
    return found.id


def package(name: str, *sides: str) -> list[Any]:
    before, after = ([name, side, "x86_64"] for side in sides)
    kind = 0 if not sides[0] else 1 if not sides[1] else 2
    details = {"PreviousPackage": Variant("(sss)", before), "NewPackage": Variant("(sss)", after)}
    return [name, kind, {key: value for key, value in details.items() if value.value[1]}]


async def test_packages_are_those_of_the_daemon(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    asked: list[Any] = []

    def answer(message: Any) -> Any:
        asked.append(message.body)
        return "a(sua{sv})", (
            [package("new", "", "1-1"), package("old", "2-1", ""), package("bash", "5.1-1", "5.2-1")],
        )

    daemon.on("GetDeploymentsRpmDiff", answer)
    new = await staged(os, daemon, database=True)
    found = await os.changes(new, MANAGED)
    assert asked == [[next(each["id"] for each in daemon.deployments if each["booted"]), new]]
    assert found == OsChanges(
        new,
        (
            PackageChange("new", PackageChangeKind.ADDED, "", "1-1"),
            PackageChange("old", PackageChangeKind.REMOVED, "2-1", ""),
            PackageChange("bash", PackageChangeKind.UPGRADED, "5.1-1", "5.2-1"),
        ),
        None,
        ("6.1", "6.2"),
        False,
        True,
        [],
        [],
        ("/etc/app.conf",),
    )
    assert summary(found) == (
        "packages 1 added, 1 removed, 1 upgraded; kernel 6.1 -> 6.2; initramfs differs; kernel arguments same; "
        "SELinux policy same; the merge of /etc replaces /etc/app.conf"
    )


@pytest.mark.parametrize("database", [False, True], ids=["no database", "no answer"])
async def test_without_packages_files_are_counted(os: RpmOstree, daemon: FakeRpmOstree, database: bool) -> None:
    def refused(_message: Any) -> Any:
        assert database, "a daemon is not asked about trees without packages"
        raise DBusFault("org.gtk.GDBus.UnmappedGError.Quark._g_2dio_2derror_2dquark.Code0", "No rpmdb")

    daemon.on("GetDeploymentsRpmDiff", refused)
    new = await staged(os, daemon, database=database)
    found = await os.changes(new, None)
    assert (found.packages, found.files, found.merged) == (None, FileCounts(3, 3, 1 + database), None)


async def test_trees_that_cannot_be_read_are_unknown(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    found = await os.stage(IMAGE, credentials=None, replace="", on_progress=lambda progress: None)
    assert await os.changes(found.id, MANAGED) == OsChanges(
        found.id, merged=(), arguments_added=[], arguments_removed=[]
    )
    with pytest.raises(Refused) as caught:
        await os.changes("fedora-coreos-gone.0", None)
    assert caught.value.reason == "StagedLost"


@pytest.mark.parametrize("merged", [None, ()])
def test_nothing_is_printed_about_a_merge_that_replaces_nothing(merged: tuple[str, ...] | None) -> None:
    assert summary(OsChanges("s", merged=merged)) == "kernel arguments same"
    assert "replaces /etc/a" in summary(OsChanges("s", merged=("/etc/a",)))


@pytest.mark.parametrize("raw", [[["a", 9, {}]], [["a"]], [["a", 0, 7]], [7]])
def test_an_unexpected_answer(raw: list[Any]) -> None:
    with pytest.raises(ValueError, match="unexpected package"):
        packages_from(raw)
