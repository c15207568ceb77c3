# SPDX-License-Identifier: Apache-2.0
"""The packages that differ between the trees of two deployments, read from RPM's databases in them.

Only that of SQLite is read, which RPM has by default since 4.16 (Fedora 33, RHEL 9). The program rpm is not asked: an
image need not have it, and it may write to its database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from nodeagent.core.plan.os_changes import PackageChange
from nodeagent.features.bootc.decide.packages import Package, package_changes, package_of

_DATABASES: Final = ("usr/lib/sysimage/rpm/rpmdb.sqlite", "usr/share/rpm/rpmdb.sqlite")
# Packages of one image.
_MAX_PACKAGES: Final = 50_000
# Bytes of a header that are read. Name, version and architecture are before the lists of files.
_HEADER: Final = 1 << 18
_QUERY: Final = f"SELECT substr(blob, 1, {_HEADER}) FROM Packages LIMIT {_MAX_PACKAGES + 1}"  # noqa: S608 - numbers


def changed_packages(before: Path, after: Path) -> tuple[PackageChange, ...] | None:
    """Return the packages that differ between two trees, None if one has no database that can be read. Blocks."""
    databases = [_database(tree) for tree in (before, after)]
    if databases[0] is None or databases[1] is None:
        return None
    try:
        # Equal files of two trees of libostree are one file.
        if databases[0].samefile(databases[1]):
            return ()
        return package_changes(_packages(databases[0]), _packages(databases[1]))
    except (OSError, sqlite3.Error, ValueError):
        # Then the files are counted.
        return None


def _database(tree: Path) -> Path | None:
    """Return the database, which is no link: one would lead into the running OS."""
    for name in _DATABASES:
        path = tree / name
        if path.is_file() and path.resolve().is_relative_to(tree.resolve()):
            return path
    return None


def _packages(database: Path) -> Iterator[Package]:
    # Nothing else has it open, and no file may be made beside it, which the usual locks would need.
    uri = f"file:{quote(str(database))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        for number, (header,) in enumerate(connection.execute(_QUERY)):
            # A column of SQLite may hold any type.
            if number >= _MAX_PACKAGES or not isinstance(header, bytes):
                raise ValueError("no database of packages")
            if (package := package_of(header)) is not None:
                yield package
