# SPDX-License-Identifier: Apache-2.0
"""Packages in RPM's databases: headers made here, and the databases and the order of versions of the real rpm."""

from __future__ import annotations

import re
import sqlite3
import struct
import subprocess
from collections.abc import Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plan.os_changes import PackageChange, PackageChangeKind
from nodeagent.features.bootc.decide.packages import (
    Package,
    compare_evr,
    compare_versions,
    package_changes,
    package_of,
)
from nodeagent.features.bootc.packages import changed_packages
from tests.support.needs import needs

DATABASE = "usr/share/rpm/rpmdb.sqlite"
needs_rpm = needs("rpmbuild")


def header(name: str, version: str = "1", release: str = "1", epoch: int | None = None, arch: str = "noarch") -> bytes:
    texts = [(100, 8, "C"), (1000, 6, name), (1001, 6, version), (1002, 6, release), (1022, 6, arch)]
    entries, data = b"", b""
    for tag, kind, text in texts:
        entries += struct.pack(">IIII", tag, kind, len(data), 1)
        data += text.encode() + b"\0"
    if epoch is not None:
        data += b"\0" * (-len(data) % 4)
        entries += struct.pack(">IIII", 1003, 4, len(data), 1)
        data += struct.pack(">I", epoch)
    return struct.pack(">II", len(entries) // 16, len(data)) + entries + data


@pytest.mark.parametrize(
    ("data", "package"),
    [
        (header("bash", "5.2", "1.el9", arch="x86_64"), Package("bash", "x86_64", "5.2-1.el9")),
        (header("dbus", "1.16", "2", epoch=1), Package("dbus", "noarch", "1:1.16-2")),
        (header("dbus", "1.16", "2", epoch=0), Package("dbus", "noarch", "1.16-2")),
        (header("gpg-pubkey", "105ef944", "65ca83d1", arch=""), None),
    ],
)
def test_a_header(data: bytes, package: Package | None) -> None:
    assert package_of(data) == package
    assert package_of(data + b"and the lists of files") == package


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 7, b"\0" * 8, b"\xff" * 64, header(""), header("a", ""), header("bash")[:-20]]
)
def test_data_that_is_no_header(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"header|subsection"):
        package_of(data)


@given(st.binary(max_size=400))
def test_each_header_is_read_or_refused(data: bytes) -> None:
    try:
        package = package_of(data)
    except ValueError:
        return
    assert package is None or package.name


# The order of each row is that of rpm's own tests (rpmvercmp.at).
ORDERED: Sequence[Sequence[str]] = (
    ("1.0", "1.0.1", "1.1", "1.9", "1.10", "2.0"),
    ("1.0~rc1", "1.0~rc2", "1.0", "1.0^", "1.0^20160101", "1.0^20160102", "1.0.1"),
    ("1.0~rc1~git123", "1.0~rc1"),
    ("a", "b", "1", "1a", "1b", "1.1"),
    ("10xyz", "10.1xyz"),
    ("xyz.4", "8", "xyz10"[3:]),
    ("5.5p1", "5.5p2", "5.5p10"),
    ("6.0", "6.0.rc1"),
    ("20101121", "20101122"),
    ("1.0^git1~pre", "1.0^git1"),
)
EQUAL = (("1.0", "1.0"), ("1.0", "1.0."), ("1_0", "1.0"), ("1.01", "1.1"), ("2.0.1a", "2.0.1a"), ("é1", "1"), ("", ""))


def sign(number: int) -> int:
    return (number > 0) - (number < 0)


@pytest.mark.parametrize("row", ORDERED)
def test_the_order_of_versions(row: Sequence[str]) -> None:
    for (i, one), (j, other) in product(enumerate(row), repeat=2):
        assert sign(compare_versions(one, other)) == sign(i - j), (one, other)


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_versions_that_are_equal(one: str, other: str) -> None:
    assert compare_versions(one, other) == compare_versions(other, one) == 0


@needs_rpm
def test_the_order_of_versions_is_that_of_rpm() -> None:
    versions = sorted({version for row in (*ORDERED, *EQUAL) for version in row if version.isascii() and version})
    pairs = list(product(versions, repeat=2))
    calls = "".join(f'print(rpm.vercmp("{one}", "{other}"))\n' for one, other in pairs)
    done = subprocess.run(["rpm", "--eval", f"%{{lua:{calls}}}"], capture_output=True, text=True, check=True)
    assert [sign(compare_versions(*pair)) for pair in pairs] == [
        int(word) for word in re.findall("-?[01]", done.stdout)
    ]


VERSIONS = st.text(alphabet="019ab.~^-_", max_size=8)


@given(VERSIONS, VERSIONS, VERSIONS)
def test_versions_have_an_order(one: str, other: str, third: str) -> None:
    assert sign(compare_versions(one, other)) == -sign(compare_versions(other, one))
    if compare_versions(one, other) <= 0 and compare_versions(other, third) <= 0:
        assert compare_versions(one, third) <= 0


def test_the_epoch_comes_first_and_the_release_last() -> None:
    assert compare_evr("1:1-1", "2-1") > 0
    assert compare_evr("1-9", "1-10") < 0
    assert compare_evr("2-1", "1-10") > 0


def of(*texts: str) -> list[Package]:
    return [Package(*text.split()) for text in texts]


def test_the_packages_that_differ() -> None:
    before = of("a x 1-1", "b x 2-1", "c x 1-1", "kernel x 5-1", "kernel x 5-2", "m x 1-1", "same x 1-1")
    after = of("b x 1-1", "c x 1:1-1", "d x 1-1", "kernel x 5-2", "kernel x 5-3", "m y 1-1", "same x 1-1")
    kind = PackageChangeKind
    assert package_changes(before, after) == (
        PackageChange("a", kind.REMOVED, "1-1"),
        PackageChange("b", kind.DOWNGRADED, "2-1", "1-1"),
        PackageChange("c", kind.UPGRADED, "1-1", "1:1-1"),
        PackageChange("d", kind.ADDED, "", "1-1"),
        PackageChange("kernel", kind.UPGRADED, "5-1", "5-3"),
        PackageChange("m", kind.REMOVED, "1-1"),
        PackageChange("m", kind.ADDED, "", "1-1"),
    )


# --- databases


def write(tree: Path, *headers: bytes) -> Path:
    path = tree / DATABASE
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY AUTOINCREMENT, blob BLOB NOT NULL)")
        connection.executemany("INSERT INTO Packages (blob) VALUES (?)", [(data,) for data in headers])
        connection.commit()
    return path


def test_two_databases(tmp_path: Path) -> None:
    before, after = tmp_path / "a b?", tmp_path / "b"
    write(before, header("a"), header("gpg-pubkey"))
    other = write(after, header("a", "2"))
    assert changed_packages(before, after) == (PackageChange("a", PackageChangeKind.UPGRADED, "1-1", "2-1"),)
    assert [path.name for path in other.parent.iterdir()] == ["rpmdb.sqlite"], "nothing is made beside it"
    # One file in both trees.
    other.unlink()
    other.hardlink_to(before / DATABASE)
    assert changed_packages(before, after) == ()


def test_trees_whose_packages_are_not_known(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    write(good, header("a"))
    bad.mkdir()
    assert changed_packages(good, bad) is None
    path = write(bad, b"no header")
    assert changed_packages(good, bad) is None
    path.write_text("no database")
    assert changed_packages(good, bad) is None
    path.unlink()
    path.symlink_to(good / DATABASE)
    assert changed_packages(good, bad) is None, "a link leads into another OS"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of a package, with an epoch."""
    top = tmp_path_factory.mktemp("rpm")
    for version in ("1.0", "1.1~rc1"):
        spec = top / "some.spec"
        head = f"Name: some\nEpoch: 2\nVersion: {version}\nRelease: 3\nSummary: x\nLicense: x\nBuildArch: noarch\n"
        spec.write_text(f"{head}%description\nx\n%files\n")
        subprocess.run(["rpmbuild", "-bb", f"--define=_topdir {top}", spec], capture_output=True, check=True)
    return top / "RPMS/noarch"


@needs_rpm
def test_databases_of_the_real_rpm(made: Path, tmp_path: Path) -> None:
    for tree, package in (("before", "some-1.0-3.noarch.rpm"), ("after", "some-1.1~rc1-3.noarch.rpm")):
        directory = tmp_path / tree / "usr/lib/sysimage/rpm"
        directory.mkdir(parents=True)
        install = ("rpm", f"--dbpath={directory}", "--define=_db_backend sqlite", "-i", "--justdb", "--nodeps")
        subprocess.run([*install, str(made / package)], check=True)
        assert (directory / "rpmdb.sqlite").exists()
    changes = changed_packages(tmp_path / "before", tmp_path / "after")
    assert changes == (PackageChange("some", PackageChangeKind.UPGRADED, "2:1.0-3", "2:1.1~rc1-3"),)
