# SPDX-License-Identifier: Apache-2.0
"""The tables of the store, and how an older store becomes a newer one.

Migrations only go forward. After an OS rollback an older agent meets the store of a newer one: it reads the version
out of the file's header, before SQLite has opened it, and refuses without having touched anything.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.reasons import Reason

# An extended code holds the primary one in its low byte.
_PRIMARY = 0xFF
_START_AFRESH = (
    "stop nodeagent and move the file away to start afresh: whatever already matches the desired config is then no"
    " change, but the history and the originals of files we replaced are lost"
)


def corrupt(path: str, what: str) -> Terminal:
    return Terminal(f"the store {path} is damaged: {what}", reason=Reason.STORE_CORRUPT, hint=_START_AFRESH)


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except UnicodeDecodeError as error:
        # SQLite quotes the invalid text.
        raise corrupt(path, "text in it is not UTF-8") from error


def _translate(error: sqlite3.Error, path: str) -> AgentError:
    if isinstance(error, sqlite3.ProgrammingError):
        # A bug of nodeagent, such as a call from another thread.
        return Terminal(f"{path}: {error}", reason=Reason.STORE_FAULT)
    # Text that is not UTF-8 is reported by the module, without a code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    if code == sqlite3.SQLITE_READONLY_ROLLBACK:
        return Retryable(
            f"the last write to {path} was cut short",
            reason=Reason.STORE_NEEDS_RECOVERY,
            hint="starting nodeagent puts it right; nothing is lost",
        )
    match code & _PRIMARY:
        case sqlite3.SQLITE_FULL:
            return Terminal(f"no space left to write {path}; its old state is whole", reason=Reason.NO_SPACE)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Retryable(f"another process keeps {path} locked", reason=Reason.STORE_BUSY)
        # Our statements are constants and tested: what does not fit them is the schema that the file claims to have.
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_ERROR | sqlite3.SQLITE_FORMAT:
            return corrupt(path, str(error))
        case sqlite3.SQLITE_READONLY:
            return Terminal(f"{path} is on a read-only file system", reason=Reason.READ_ONLY)
        case sqlite3.SQLITE_IOERR:
            return Terminal(f"{path}: {error} ({error.sqlite_errorname})", reason=Reason.DISK_FAULT)
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return Terminal(f"{path} cannot be opened", reason=Reason.PERMISSION_DENIED)
        case _:
            return Terminal(f"{path}: {error}", reason=Reason.STORE_FAULT)


# "noda": identifies the file as a store of nodeagent, also for file(1).
APPLICATION_ID = 0x6E6F6461
# https://www.sqlite.org/fileformat.html, 1.3
HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"

# One list of statements per schema version, beginning with version 1. Never change one that was released.
MIGRATIONS: Sequence[Sequence[str]] = (
    (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
        "CREATE TABLE record (id INTEGER PRIMARY KEY CHECK (id = 1), json TEXT NOT NULL, sum TEXT NOT NULL)",
        "CREATE TABLE configs (seq INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, name TEXT NOT NULL,"
        " text BLOB NOT NULL)",
        "CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, update_id TEXT NOT NULL, key TEXT NOT NULL,"
        " meta TEXT NOT NULL, sum TEXT NOT NULL, content BLOB NOT NULL, UNIQUE (update_id, key))",
        "CREATE TABLE originals (key TEXT PRIMARY KEY, meta TEXT NOT NULL, sum TEXT NOT NULL, content BLOB NOT NULL)",
        "CREATE TABLE made_dirs (path TEXT PRIMARY KEY)",
        "CREATE TABLE history (seq INTEGER PRIMARY KEY, json TEXT NOT NULL)",
        "CREATE TABLE lease (id INTEGER PRIMARY KEY CHECK (id = 1), json TEXT NOT NULL)",
    ),
)

_COLUMNS = {
    "meta": "key, value",
    "record": "id, json, sum",
    "configs": "seq, digest, name, text",
    "snapshots": "seq, update_id, key, meta, sum, content",
    "originals": "key, meta, sum, content",
    "made_dirs": "path",
    "history": "seq, json",
    "lease": "id, json",
}


def check_header(path: str, header: bytes) -> None:
    """``header`` is the start of the file. Raises ``Terminal``: ``StoreCorrupt`` or ``StoreTooNew``."""
    if len(header) < HEADER_BYTES or not header.startswith(_MAGIC):
        raise corrupt(path, "it is not an SQLite database" if header else "it is empty")
    version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
    if application != APPLICATION_ID:
        raise corrupt(path, "it was not written by nodeagent")
    if version > len(MIGRATIONS):
        raise Terminal(
            f"the store {path} has version {version}, from a newer nodeagent; this one knows up to {len(MIGRATIONS)}"
            " and has not touched it",
            reason=Reason.STORE_TOO_NEW,
            hint="this happens after an OS rollback: update the OS again, or move the file away to start afresh",
        )


def prepare(db: sqlite3.Connection) -> None:
    """Settings that are part of the file; only before there is any table."""
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def migrate(db: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> bool:
    """Migrate, in one transaction for each version. Return whether there was anything to do."""
    version_before = int(db.execute("PRAGMA user_version").fetchone()[0])
    for version, statements in enumerate(migrations[version_before:], start=version_before + 1):
        with transaction(db):
            for statement in statements:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {version}")
    return version_before < len(migrations)


def check_tables(db: sqlite3.Connection) -> None:
    """A file can be a sound database and still not be a store: then this fails."""
    for table, columns in _COLUMNS.items():
        db.execute(f"SELECT {columns} FROM {table} LIMIT 0")  # noqa: S608 - both are constants of this module


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # Some errors (a full disk) have rolled back already, so that this fails. Otherwise the journal does it at the
        # next start.
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
