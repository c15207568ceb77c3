"""What SQLite's errors mean for us. Messages name the file and the fault, never a value that was in a statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.reasons import Reason

__all__ = ["corrupt", "store_errors"]

_PRIMARY = 0xFF  # an extended code holds the primary one in its low byte
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
    except UnicodeDecodeError as error:  # SQLite quotes what it stumbled over
        raise corrupt(path, "text in it is not UTF-8") from error


def _translate(error: sqlite3.Error, path: str) -> AgentError:
    if isinstance(error, sqlite3.ProgrammingError):
        return Terminal(
            f"{path}: {error}", reason=Reason.STORE_FAULT
        )  # a bug of ours, such as a call from another thread
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
