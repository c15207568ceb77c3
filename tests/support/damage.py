# SPDX-License-Identifier: Apache-2.0
"""Ways in which a file, or a row of the store, may be damaged."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

__all__ = ["FILES", "STORE_FILES", "VALUES", "columns", "damage_row"]

DEEP = "[" * 200_000
RANDOM = random.Random(7)


def _truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _nothing(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def _itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def _missing(path: Path) -> None:
    path.unlink()


def _written(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data) and None


FILES: dict[str, Callable[[Path], None]] = {
    "truncated": _truncate,
    "empty": _written(b""),
    "random": _written(RANDOM.randbytes(5000)),
    "zeroes": _written(bytes(5000)),
    "not UTF-8": _written(b"\xff\xfe: \xff\n"),
    "deep": _written(b"a: " + DEEP.encode()),
    "deep mapping": _written(b"{a: " * 50_000),
    "anchors": _written(b"a: &a [x]\n" + b"".join(b"b%d: &b%d [*a, *a]\n" % (n, n) for n in range(500))),
    "a list": _written(b"- 1\n- 2\n"),
    "a number": _written(b"5\n"),
    "huge number": _written(b"actions: {timeout: " + b"9" * 5000 + b"}\n"),
    "wrong types": _written(b"node_name: [1]\nreboot: 5\nactions: {timeout: {x: 1}}\nfiles: 5\nspec: []\n"),
    "unknown keys": _written(b"x: 1\nreboot: {y: 2}\n"),
    "a date": _written(b"a: 2024-99-99\n"),
    "tags": _written(b"!!python/object/apply:os.system ['true']\n"),
    "a tag that does not fit": _written(b"reboot: {allow: !!bool maybe}\n"),
    "half a surrogate pair": _written(b'"\\ud800": "\\udfff"\nnode_name: "\\ud800"\nlog: {level: "\\ud800"}\n'),
    "huge": _written(b"#" + b"x" * (40 << 20)),
    "a directory": _nothing,
    "a pipe": _pipe,
    "a dangling link": _link,
    "a link to itself": _itself,
    "missing": _missing,
}


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def _other_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE record")
        db.commit()


def _other_application(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA application_id = 1")


def _middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = RANDOM.randbytes(len(data) - 4096)
    path.write_bytes(data)


def _owner(path: Path) -> None:
    os.chown(path, 12345, 12345)


def _journal_alone(path: Path) -> None:
    path.rename(path.with_name(path.name + "-journal"))


def _whole_directory(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("")


STORE_FILES: dict[str, Callable[[Path], None]] = {
    **{name: FILES[name] for name in ("truncated", "empty", "random", "zeroes", "a directory", "a pipe")},
    **{name: FILES[name] for name in ("a dangling link", "a link to itself", "missing")},
    "newer schema": _newer,
    "a table is gone": _other_tables,
    "of another program": _other_application,
    "pages overwritten": _middle,
    "of another user": _owner,
    "a journal alone": _journal_alone,
    "no directory": _whole_directory,
}

VALUES: dict[str, object] = {
    "truncated": "{",
    "empty": "",
    "random": RANDOM.randbytes(300),
    "deep": DEEP,
    "deep object": '{"a":' * 100_000,
    "a list": "[1]",
    "null": "null",
    "a number": 5,
    "a large number": 2**62,
    "wrong types": '{"version":1,"phase":5,"update_id":[],"name":7,"since":{},"until":"soon","operation":null}',
    "newer": '{"version":99,"phase":"Pondering","update_id":"u1","operation":"x"}',
    "huge": "x" * (4 << 20),
    "lone surrogate": '{"name":"\\ud800"}',
}


def columns(database: Path) -> Iterator[tuple[str, str]]:
    with closing(sqlite3.connect(database)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in sorted(tables):
            for row in db.execute(f"PRAGMA table_info({table})"):
                yield table, row[1]


def damage_row(database: Path, table: str, column: str, value: object) -> None:
    """Each row of the table, as far as its constraints let it be done."""
    with closing(sqlite3.connect(database)) as db:
        db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
        db.commit()
