# SPDX-License-Identifier: Apache-2.0
"""Opening the store's file: whose it is, who else has it open, what state it is in.

*Journal.* A rollback journal in mode TRUNCATE with ``synchronous=FULL``, not WAL: everything is in one file when
there is no writer, any SQLite opens it, and a reader without write access needs no shared memory beside it. In
TRUNCATE mode FULL also syncs the truncation of the journal, which is the commit; in mode DELETE a power cut could
bring the deleted journal back, and with it the old state.

*Never reset.* The file appears complete or not at all, so one that is empty, cut short or damaged is an error with a
hint and never a reason to begin again.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from nodeagent.errors import Retryable, Terminal
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.store.database import Database, Reader
from nodeagent.host.store.rows import record_to_row
from nodeagent.host.store.schema import (
    HEADER_BYTES,
    check_header,
    check_tables,
    corrupt,
    migrate,
    prepare,
    store_errors,
    transaction,
)
from nodeagent.reasons import Reason
from nodeagent.update.record import Record

# A reader holds its lock for milliseconds.
_BUSY_SECONDS = 5.0
# Seconds of integrity_check. An ordinary store takes some milliseconds.
_CHECK_SECONDS = 5.0
# SQLite instructions between two checks of the clock.
_CHECK_STEPS = 10_000
_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open the store for the daemon, or create it. All calls come from one thread.

    Raises ``Terminal`` (``StoreCorrupt``, ``StoreTooNew``, ``ForeignStore``, ``NoSpace``, ...) or ``Retryable``
    (``StoreBusy``).
    """
    name = str(path)
    with ExitStack() as stack:
        with translated("open", name):
            folder = _claim(path.parent)
            stack.callback(os.close, folder)
            if _look(folder, path) is None:
                _create(folder, path)
        with store_errors(name):
            db = _connect(path, "rw")
            stack.callback(db.close)
            # A rollback journal, not a WAL: read-only readers need no write access to it, and there is one file less to
            # lose.
            db.execute("PRAGMA journal_mode = TRUNCATE")
            # Each transaction is on the disk when it returns. The record relies on that.
            db.execute("PRAGMA synchronous = FULL")
            # Deleted rows may have contained secrets of managed files.
            db.execute("PRAGMA secure_delete = ON")
            _check(name, db)
            migrate(db)
            check_tables(db)
        yield Database(db, name)


@contextmanager
def read_only_open(path: Path) -> Iterator[Reader]:
    """Open the store for ``nodeagent status`` while the daemon is down or busy. Creates and changes nothing.

    Takes no lock but SQLite's shared one, during each query. Raises ``Terminal`` with reason ``NoStore`` if there is
    none, and ``Retryable`` with ``StoreNeedsRecovery`` if a write was cut short and the daemon has not run since.
    """
    name = str(path)
    with translated("read", name):
        try:
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
                # The header is read before SQLite opens the file, which might start a recovery.
                header = file.read(HEADER_BYTES)
        except FileNotFoundError as error:
            raise Terminal(
                f"there is no store at {name}", reason=Reason.NO_STORE, hint="nodeagent never ran here"
            ) from error
    check_header(name, header)
    with store_errors(name):
        db = _connect(path, "ro")
    try:
        yield Reader(db, name)
    finally:
        db.close()


@contextmanager
def open_copy(path: Path) -> Iterator[Database]:
    """Open a copy of the store in memory, an empty one if there is none, for a plan while the daemon is down.

    The file is only read. What the plan writes is lost. Raises what ``read_only_open`` does, but not ``NoStore``.
    """
    name = str(path)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db, store_errors(name):
        try:
            with read_only_open(path) as reader:
                reader.copy_to(db)
            migrate(db)
        except Terminal as error:
            if error.reason != Reason.NO_STORE:
                raise
            _fill(db)
        check_tables(db)
        yield Database(db, name)


def _claim(folder: Path) -> int:
    """Make the directory private, and lock it. The lock ends with the returned handle, or with the process."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    fd = os.open(folder, _OPEN_DIR)
    try:
        info = os.fstat(fd)
        _refuse_foreign(folder, info)
        # An admin may have opened the directory. The store contains password hashes and file contents.
        if info.st_mode & 0o077:
            os.fchmod(fd, 0o700)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Retryable(
                f"another nodeagent{_lock_owner(info)} has the store in {folder} open",
                reason=Reason.STORE_BUSY,
                hint="only one daemon can run on a host; see systemctl status nodeagent",
            ) from error
    except BaseException:
        os.close(fd)
        raise
    return fd


def _lock_owner(info: os.stat_result) -> str:
    """Return " (pid N)" if the kernel shows the owner of the lock, otherwise "".

    Lines of /proc/locks end in ``PID MAJOR:MINOR:INODE START END``; see proc_locks(5).
    """
    with suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if "FLOCK" in words and "->" not in words and words[5].rpartition(":")[2] == str(info.st_ino):
                return f" (pid {words[4]})"
    return ""


def _look(folder: int, path: Path) -> int | None:
    """Return the size of the file, None if it is missing. Nothing is opened for writing here."""
    try:
        # O_NONBLOCK: opening a named pipe must not block.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(path.name, flags, dir_fd=folder)
    except FileNotFoundError:
        _refuse_orphan(folder, path)
        return None
    try:
        info = os.fstat(fd)
        _refuse_foreign(path, info)
        if not stat.S_ISREG(info.st_mode):
            raise Terminal(f"{path} is not a file", reason=Reason.FOREIGN_STORE)
        check_header(str(path), os.read(fd, HEADER_BYTES))
        if info.st_mode & 0o077:
            os.fchmod(fd, 0o600)
        return info.st_size
    finally:
        os.close(fd)


def _refuse_foreign(path: Path, info: os.stat_result) -> None:
    if info.st_uid != os.geteuid():
        raise Terminal(
            f"{path} belongs to uid {info.st_uid}, not to uid {os.geteuid()} of nodeagent, and is not trusted",
            reason=Reason.FOREIGN_STORE,
        )


def _refuse_orphan(folder: int, path: Path) -> None:
    """Raise ``Terminal`` for a journal with data whose store is missing: SQLite would apply it to a new store."""
    with suppress(FileNotFoundError):
        if os.stat(f"{path.name}-journal", dir_fd=folder).st_size:
            raise corrupt(str(path), "it is gone, and left an unfinished journal behind")


def _create(folder: int, path: Path) -> None:
    """Make a store with its tables and an empty record."""
    # It gets its name when it is complete, so that a kill leaves either no store or a valid one.
    fresh = path.with_name(f"{path.name}.new")
    for name in (fresh.name, f"{fresh.name}-journal"):
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(fresh.name, flags, 0o600, dir_fd=folder))
    with store_errors(str(path)):
        db = _connect(fresh, "rw")
        try:
            _fill(db)
        finally:
            db.close()
    os.rename(fresh.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    # The sync of the directory makes the new name durable.
    os.fsync(folder)


def _fill(db: sqlite3.Connection) -> None:
    prepare(db)
    migrate(db)
    with transaction(db):
        db.execute("INSERT INTO record (id, json, sum) VALUES (1, ?, ?)", record_to_row(Record()))


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # https://www.sqlite.org/uri.html
    uri = f"file:{quote(bytes(path))}?mode={mode}"
    # isolation_level None: the module begins no transactions of its own, so BEGIN and COMMIT are explicit.
    db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_SECONDS)
    db.execute("PRAGMA temp_store = MEMORY")
    # The file is untrusted input: its schema must not call functions.
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    return db


def _check(path: str, db: sqlite3.Connection) -> None:
    """Check the integrity of the store, for ``_CHECK_SECONDS`` at most."""
    # A check that takes longer ends without a result. The checksums of the rows then find damage when it is read.
    end = time.monotonic() + _CHECK_SECONDS
    db.set_progress_handler(lambda: time.monotonic() > end, _CHECK_STEPS)
    try:
        findings = [str(row[0]) for row in db.execute("PRAGMA integrity_check(1)")]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return
    finally:
        db.set_progress_handler(None, 0)
    if findings != ["ok"]:
        raise corrupt(path, findings[0] if findings else "the check gave no answer")
