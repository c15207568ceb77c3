# SPDX-License-Identifier: Apache-2.0
"""The queries and transactions of the store, in SQL. Blocking, and bound to the thread that opened the connection."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.coordination.operations import BY_OPERATOR
from nodeagent.errors import AgentError, Terminal
from nodeagent.host.store.record_codec import NewerRecord
from nodeagent.host.store.rows import (
    from_json,
    record_from_row,
    record_to_row,
    salvage_record,
    snapshot_from_row,
    snapshot_to_row,
    to_json,
)
from nodeagent.host.store.schema import corrupt, store_errors, transaction
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.store import ApplyRequest, HistoryEntry, Snapshot
from nodeagent.update.record import Record

TOO_NEW = Reason.RECORD_TOO_NEW
# Notes whose rows have no prefix, so that agents of this format which know no such note read them, too.
_PLAIN_NOTES: Final = frozenset({BY_OPERATOR})

_UNKNOWN_TIME = "1970-01-01T00:00:00.000Z"

# Entries. At one update a day this is about six months.
HISTORY_LIMIT = 200

# Newest entries that keep their plan and trail, of up to 100 kB each.
DETAILED_LIMIT = 20

# Unreferenced configs that are kept: a config that was just added is referenced later.
_SPARE_CONFIGS = 2

# Free pages (of 4 KiB) that the file may keep; a revert of a large file must not leave it large permanently.
_SPARE_PAGES = 4096


class Reader:
    """The queries, which also work on a store that is open read-only."""

    def __init__(self, db: sqlite3.Connection, path: str) -> None:
        self._db = db
        self._path = path

    def close(self) -> None:
        with self._guard():
            self._db.close()

    def copy_to(self, other: sqlite3.Connection) -> None:
        with self._guard():
            self._db.backup(other)

    def load(self) -> Record:
        with self._guard():
            row = self._db.execute("SELECT json, sum FROM record WHERE id = 1").fetchone()
            if row is None:
                raise ValueError("it has no record")
            try:
                return record_from_row(*row)
            except NewerRecord as error:
                raise Terminal(
                    f"the record in {self._path} is of a newer nodeagent: {error}", reason=TOO_NEW
                ) from error

    def current(self) -> str:
        return self._meta("current")

    def previous(self) -> str:
        return self._meta("previous")

    def note(self, key: str) -> str:
        """Return the text that was stored under this name, "" if there is none."""
        return self._meta(_row_of(key))

    def _meta(self, key: str) -> str:
        with self._guard():
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return str(row[0]) if row else ""

    def get_config(self, digest: str) -> ConfigSource:
        with self._guard():
            row = self._db.execute("SELECT name, digest, text FROM configs WHERE digest = ?", (digest,)).fetchone()
            if row is None:
                raise ValueError(f"the config {digest[:12]} is not in it")
            if not isinstance(row[0], str) or not isinstance(row[2], bytes):
                raise TypeError(f"the config {digest[:12]} is of the wrong type")
            # The digest is the key of the config, so it also proves that the text is undamaged.
            if hashlib.sha256(row[2]).hexdigest() != digest:
                raise ValueError(f"the config {digest[:12]} has a wrong checksum")
            return ConfigSource(*row)

    def config_named(self, name: str) -> ConfigSource | None:
        """Return the newest kept config of this name, None if there is none."""
        with self._guard():
            row = self._db.execute("SELECT digest FROM configs WHERE name = ? ORDER BY seq DESC", (name,)).fetchone()
            return self.get_config(row[0]) if row else None

    def fetched(self) -> ConfigSource | None:
        """Return the config that a cluster named last; None if it named none."""
        digest = self._meta("fetched")
        return self.get_config(digest) if digest else None

    def history(self, limit: int) -> list[HistoryEntry]:
        """Return the newest entries, newest first."""
        return self.entries(self.history_rows(limit))

    def history_rows(self, limit: int) -> Sequence[str]:
        """Return the rows of the newest entries, newest first. ``entries`` reads them, in any thread."""
        with self._guard():
            rows = self._db.execute("SELECT json FROM history ORDER BY seq DESC LIMIT ?", (limit,)).fetchall()
            return tuple(text for (text,) in rows)

    def entries(self, rows: Sequence[str]) -> list[HistoryEntry]:
        with self._guard():
            return [from_json(HistoryEntry, text) for text in rows]

    def lease(self) -> Holder | None:
        with self._guard():
            return self._holder()

    def _holder(self) -> Holder | None:
        """Return the holder of the lease, also for a damaged row."""
        # A damaged row still means that the lease is held: by the current update, or by an unknown holder, which is
        # shown as a maintenance until an operator stops it.
        row = self._db.execute("SELECT json FROM lease WHERE id = 1").fetchone()
        if row is None:
            return None
        try:
            return from_json(Holder, row[0])
        except (ValueError, TypeError, KeyError):
            with suppress(AgentError):
                record = self.load()
                if record.operation:
                    return Holder("nodeagent", record.operation, f"update to {record.to_name}", record.since)
            return Holder("unknown", f"{BY_OPERATOR}.damaged", "the row of the lease is damaged", _UNKNOWN_TIME)

    def request(self) -> ApplyRequest | None:
        with self._guard():
            text = self._meta("request")
            try:
                return from_json(ApplyRequest, text) if text else None
            except (ValueError, TypeError, KeyError):
                # The operator repeats the request. A damaged one must not block updates.
                return None

    @contextmanager
    def _guard(self) -> Iterator[None]:
        with store_errors(self._path):
            try:
                yield
            except (ValueError, TypeError, KeyError) as error:
                raise corrupt(self._path, str(error)) from error


class Database(Reader):
    """The open store. Every method is one transaction, on the disk when it returns."""

    def save(self, record: Record) -> None:
        with self._writing():
            self._save(record)

    def begin(self, record: Record) -> None:
        """Save the record of a new update, and drop the request that it carries out."""
        with self._writing():
            self._save(record)
            self._drop_request(record.to_digest)

    def keep_request(self, request: ApplyRequest) -> None:
        with self._writing():
            self._db.execute("REPLACE INTO meta (key, value) VALUES ('request', ?)", (to_json(request),))

    def drop_request(self, digest: str) -> None:
        with self._writing():
            self._drop_request(digest)

    def _drop_request(self, digest: str) -> None:
        if (request := self.request()) is not None and request.digest == digest:
            self._db.execute("DELETE FROM meta WHERE key = 'request'")

    def set_record_aside(self, reason: str, message: str) -> Record:
        """Replace a record that cannot be read by a degraded one, and keep its text as a note."""
        with self._writing():
            row = self._db.execute("SELECT CAST(json AS BLOB) FROM record WHERE id = 1").fetchone()
            text = bytes(row[0]).decode(errors="replace") if row and row[0] is not None else ""
            holder = self._db.execute("SELECT json FROM lease WHERE id = 1").fetchone()
            record = replace(salvage_record(text, holder[0] if holder else ""), reason=reason, message=message)
            self._db.execute("REPLACE INTO meta (key, value) VALUES ('note:record-set-aside', ?)", (text,))
            self._save(record)
            return record

    def put_config(self, source: ConfigSource) -> None:
        with self._writing():
            self._put_config(source)

    def keep_fetched(self, source: ConfigSource | None) -> None:
        """Keep the config until another one takes its place, independently of updates."""
        with self._writing():
            if source is None:
                self._db.execute("DELETE FROM meta WHERE key = 'fetched'")
            else:
                self._put_config(source)
                self._db.execute("REPLACE INTO meta (key, value) VALUES ('fetched', ?)", (source.digest,))

    def remember(self, update_id: str, snapshots: Sequence[Snapshot]) -> None:
        with self._writing():
            self._db.executemany(
                # A repetition after a kill keeps the first snapshots: the disk may have the new files by then.
                "INSERT INTO snapshots (update_id, key, meta, sum, content) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                ((update_id, *snapshot_to_row(snapshot)) for snapshot in snapshots),
            )

    def remembered(self, update_id: str) -> list[Snapshot]:
        with self._guard():
            rows = self._db.execute(
                "SELECT key, meta, sum, content FROM snapshots WHERE update_id = ? ORDER BY seq", (update_id,)
            ).fetchall()
            return [snapshot_from_row(*row) for row in rows]

    def keep_originals(self, snapshots: Sequence[Snapshot]) -> None:
        """Keep all of them in one transaction, because each costs several syncs."""
        with self._writing():
            self._db.executemany(
                # The first original counts. Later the path has what an update wrote.
                "INSERT INTO originals (key, meta, sum, content) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (snapshot_to_row(snapshot) for snapshot in snapshots),
            )

    def original(self, key: str) -> Snapshot | None:
        with self._guard():
            row = self._db.execute("SELECT key, meta, sum, content FROM originals WHERE key = ?", (key,)).fetchone()
            return snapshot_from_row(*row) if row else None

    def forget_originals(self, keys: Sequence[str]) -> None:
        with self._writing():
            self._db.executemany("DELETE FROM originals WHERE key = ?", ((key,) for key in keys))

    def made_dirs(self) -> list[str]:
        with self._guard():
            rows = self._db.execute("SELECT path FROM made_dirs ORDER BY path").fetchall()
            return [path for (path,) in rows if isinstance(path, str)]

    def add_made_dirs(self, paths: Sequence[str]) -> None:
        with self._writing():
            self._db.executemany(
                "INSERT INTO made_dirs (path) VALUES (?) ON CONFLICT DO NOTHING", ((path,) for path in paths)
            )

    def promote(self, record: Record, current: str, entry: HistoryEntry) -> None:
        """End an update with a good end: its config becomes the current one."""
        self._end_update(record, entry, current)

    def close_update(self, record: Record, entry: HistoryEntry) -> None:
        """End an update that failed. The current config remains."""
        self._end_update(record, entry, None)

    def _end_update(self, record: Record, entry: HistoryEntry, current: str | None) -> None:
        # The history and the record change in one transaction, so a kill cannot lose an end or report it twice.
        with self._writing():
            self._save(record)
            if current is not None:
                self._db.execute(
                    "INSERT OR REPLACE INTO meta (key, value)"
                    # A config that is applied again must not become its own predecessor.
                    " SELECT 'previous', value FROM meta WHERE key = 'current' AND value <> ?",
                    (current,),
                )
                self._db.execute("REPLACE INTO meta (key, value) VALUES ('current', ?)", (current,))
            self._db.execute("INSERT INTO history (json) VALUES (?)", (to_json(entry),))
            self._db.execute(
                "DELETE FROM history WHERE seq <= (SELECT max(seq) FROM history) - ?",
                (HISTORY_LIMIT,),
            )
            self._trim_details()
            # Snapshots serve the revert of one update, which has ended.
            self._db.execute("DELETE FROM snapshots")
            self._collect_configs(record)
        self._shrink()

    def _trim_details(self) -> None:
        rows = self._db.execute(
            "SELECT seq, json FROM history WHERE seq <= (SELECT max(seq) FROM history) - ?"
            """ AND json LIKE '%"trail":{"%'""",
            (DETAILED_LIMIT,),
        ).fetchall()
        for seq, text in rows:
            # A damaged entry is reported when it is read.
            with suppress(ValueError, TypeError, KeyError):
                brief = replace(from_json(HistoryEntry, text), plan={}, trail={})
                self._db.execute("UPDATE history SET json = ? WHERE seq = ?", (to_json(brief), seq))

    def end_trail(self, record: Record, update_id: str, trail: Mapping[str, Any]) -> None:
        with self._writing():
            self._save(record)
            row = self._db.execute("SELECT seq, json FROM history ORDER BY seq DESC LIMIT 1").fetchone()
            with suppress(ValueError, TypeError, KeyError):
                if row and (entry := from_json(HistoryEntry, row[1])).update_id == update_id:
                    whole = to_json(replace(entry, trail=trail))
                    self._db.execute("UPDATE history SET json = ? WHERE seq = ?", (whole, row[0]))

    # The check and the write are one transaction, so that of two operations only one gets the lease.
    def take_lease(self, wanted: Holder) -> Holder:
        """Give the lease to ``wanted`` if it is free. Returns the holder afterwards."""
        with self._writing():
            if (has := self._holder()) is not None:
                return has
            self._db.execute("INSERT INTO lease (id, json) VALUES (1, ?)", (to_json(wanted),))
            return wanted

    def write_lease(self, holder: Holder) -> None:
        """Write the holder if its operation has the lease."""
        with self._writing():
            has = self._holder()
            if has is not None and has.operation == holder.operation:
                self._db.execute("REPLACE INTO lease (id, json) VALUES (1, ?)", (to_json(holder),))

    def keep_note(self, key: str, text: str) -> None:
        """Keep a text; "" removes it."""
        with self._writing():
            if text:
                self._db.execute("REPLACE INTO meta (key, value) VALUES (?, ?)", (_row_of(key), text))
            else:
                self._db.execute("DELETE FROM meta WHERE key = ?", (_row_of(key),))

    def drop_lease(self, operation: str) -> None:
        with self._writing():
            has = self._holder()
            if has is not None and has.operation == operation:
                self._db.execute("DELETE FROM lease")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._guard(), transaction(self._db):
            yield

    def _save(self, record: Record) -> None:
        self._db.execute("REPLACE INTO record (id, json, sum) VALUES (1, ?, ?)", record_to_row(record))

    def _put_config(self, source: ConfigSource) -> None:
        # A known config gets a new sequence number as well, so that it is the newest and is kept as a spare one.
        self._db.execute("DELETE FROM configs WHERE digest = ?", (source.digest,))
        self._db.execute(
            "INSERT INTO configs (digest, name, text) VALUES (?, ?, ?)", (source.digest, source.name, source.text)
        )

    def _collect_configs(self, record: Record) -> None:
        # A revert, a repair and a rollback need these configs.
        partial = record.lasting.partial.digest if record.lasting.partial is not None else ""
        failed = record.lasting.failed_digest
        needed = (record.from_digest, record.to_digest, failed, partial, *record.unfinished)
        self._db.execute(
            f"DELETE FROM configs WHERE digest NOT IN ({', '.join('?' * len(needed))})"  # noqa: S608 - placeholders only
            " AND digest NOT IN (SELECT value FROM meta WHERE key IN ('current', 'previous', 'fetched'))"
            " AND seq NOT IN (SELECT seq FROM configs ORDER BY seq DESC LIMIT ?)",
            (*needed, _SPARE_CONFIGS),
        )

    def _shrink(self) -> None:
        # The update is closed already, so a failure is harmless. The next update tries again.
        with suppress(sqlite3.Error):
            (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
            if free > _SPARE_PAGES:
                # execute() would stop after the first page.
                self._db.executescript("PRAGMA incremental_vacuum")


def _row_of(note: str) -> str:
    return note if note in _PLAIN_NOTES else f"note:{note}"
