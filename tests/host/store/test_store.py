# SPDX-License-Identifier: Apache-2.0
"""The store: what the executor relies on, and what it says to files that are not its own or not whole."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.errors import AgentError, Cause, Retryable, Terminal
from nodeagent.host.store import opening
from nodeagent.host.store.database import DETAILED_LIMIT, HISTORY_LIMIT, Database
from nodeagent.host.store.opening import open_database, read_only_open
from nodeagent.host.store.rows import record_from_row
from nodeagent.host.store.schema import MIGRATIONS, migrate
from nodeagent.host.store.store import SqliteStore
from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import Lasting, Partial, Rejection
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.store import ApplyRequest, HistoryEntry, Snapshot
from nodeagent.update.record import Record
from nodeagent.update.states import Phase
from tests.host.store.store_data import config, entry, record, snapshots
from tests.support.disk import MS_BIND, MS_RDONLY, MS_REMOUNT, in_mount_namespace, mount, needs_root, tree


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nodeagent/state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(path) as opened:
        yield opened


async def test_what_is_written_to_a_copy_is_lost(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.put_config(config(1))
    before = path.read_bytes()
    async with SqliteStore(path, copy=True) as copied:
        assert await copied.get_config(config(1).digest) == config(1)
        await copied.save(record(1, Phase.WRITING))
        assert await copied.load() == record(1, Phase.WRITING)
    assert path.read_bytes() == before
    async with SqliteStore(path) as store:
        assert await store.load() == Record()


class TestContents:
    async def test_a_new_one_is_idle(self, store: SqliteStore) -> None:
        assert await store.load() == Record()
        assert await store.current() == ""
        assert await store.history(10) == []
        assert await store.made_dirs() == []
        assert await store.lease() is None

    async def test_record_and_configs_come_back(self, store: SqliteStore, path: Path) -> None:
        await store.put_config(config(1))
        await store.put_config(config(1))
        await store.save(record(1, Phase.WRITING))
        await store.close()
        await store.open()
        assert await store.load() == record(1, Phase.WRITING)
        assert await store.get_config(config(1).digest) == config(1)

    async def test_an_unknown_config_is_damage(self, store: SqliteStore) -> None:
        with pytest.raises(Terminal, match=config(3).digest[:12]) as caught:
            await store.get_config(config(3).digest)
        assert caught.value.reason == "StoreCorrupt"

    async def test_what_was_remembered_first_wins(self, store: SqliteStore) -> None:
        first = snapshots(7)
        await store.remember("u1", first[:2])
        await store.remember("u1", [replace(first[0], node=None), *first[1:]])
        await store.remember("u2", snapshots(8))
        assert await store.remembered("u1") == first
        assert await store.remembered("u3") == []

    async def test_originals(self, store: SqliteStore) -> None:
        first = snapshots(1)
        await store.keep_originals(first[:1])
        await store.keep_originals([replace(first[0], node=None)])
        await store.keep_originals(first)
        assert [await store.original(one.key) for one in first] == first
        await store.forget_originals([first[0].key, "path:/never/was"])
        assert await store.original(first[0].key) is None

    async def test_a_request_is_kept_until_its_update_begins(self, store: SqliteStore, path: Path) -> None:
        assert await store.request() is None
        first, second = ApplyRequest(config(1).digest), ApplyRequest(config(2).digest, config(1).digest, "meaning")
        await store.keep_request(first)
        await store.keep_request(second)
        await store.close()
        await store.open()
        assert await store.request() == second
        await store.drop_request(first.digest)
        await store.begin(replace(record(1), to_digest=first.digest))
        assert await store.request() == second, "it is for another config"
        await store.begin(begun := replace(record(2), to_digest=second.digest))
        assert (await store.request(), await store.load()) == (None, begun)
        await store.keep_request(first)
        await store.drop_request(first.digest)
        assert await store.request() is None

    async def test_made_dirs(self, store: SqliteStore) -> None:
        await store.add_made_dirs(["/b/c", "/b"])
        await store.add_made_dirs(["/b", "/a"])
        assert await store.made_dirs() == ["/a", "/b", "/b/c"]

    async def test_promote(self, store: SqliteStore) -> None:
        await store.put_config(config(1))
        await store.remember("u1", snapshots(1))
        await store.keep_originals(snapshots(1))
        await store.promote(record(1), config(1).digest, entry(1))
        assert await store.current() == config(1).digest
        assert await store.load() == record(1)
        assert await store.history(10) == [entry(1)]
        assert await store.remembered("u1") == []
        assert await store.original(snapshots(1)[0].key) == snapshots(1)[0]

    async def test_the_config_before_is_kept_however_many_come_and_fail(self, store: SqliteStore) -> None:
        assert await store.previous() == ""
        for number in (1, 2):
            await store.put_config(config(number))
            await store.promote(record(number), config(number).digest, entry(number))
        for number in range(10, 20):
            await store.put_config(config(number))
            await store.close_update(record(number), entry(number))
        await store.promote(record(2), config(2).digest, entry(2))
        assert (await store.current(), await store.previous()) == (config(2).digest, config(1).digest)
        assert await store.get_config(config(1).digest) == config(1)

    async def test_closing_without_success_leaves_the_current_config(self, store: SqliteStore) -> None:
        for number in (1, 2):
            await store.put_config(config(number))
        await store.promote(record(1), config(1).digest, entry(1))
        await store.close_update(replace(record(2), lasting=Lasting((Rejection(config(2).digest),))), entry(2))
        assert await store.current() == config(1).digest
        assert [one.update_id for one in await store.history(10)] == ["u2", "u1"]

    async def test_what_a_cluster_named_last_is_kept_through_other_updates(self, store: SqliteStore) -> None:
        assert await store.fetched() is None
        await store.keep_fetched(config(9))
        for number in range(1, 6):
            await store.put_config(config(number))
            await store.promote(record(number, Phase.RELEASING), config(number).digest, entry(number))
        await store.close()
        await store.open()
        assert await store.fetched() == config(9)
        await store.keep_fetched(config(5))
        assert await store.fetched() == config(5)
        await store.keep_fetched(None)
        assert await store.fetched() is None

    async def test_unreferenced_configs_are_removed(self, store: SqliteStore) -> None:
        for number in range(8):
            await store.put_config(config(number))
        await store.put_config(config(0))  # desired again: it waits for its turn
        await store.promote(
            replace(record(2), lasting=Lasting((Rejection(config(5).digest),))), config(3).digest, entry(1)
        )
        kept = []
        for number in range(8):
            try:
                kept.append((await store.get_config(config(number).digest)).name)
            except Terminal:
                continue
        # From, to, current, rejected, and the two that came last.
        assert kept == [f"rendered-{number}" for number in (0, 1, 2, 3, 5, 7)]

    async def test_the_config_that_the_host_has_in_part_is_kept(self, store: SqliteStore) -> None:
        for number in range(10):
            await store.put_config(config(number))
        lasting = Lasting(partial=Partial(config(4).digest, config(9).digest, "x", Cause(Reason.LEASE_HELD, "")))
        await store.close_update(replace(record(7), lasting=lasting), entry(7))
        assert (await store.load()).lasting == lasting
        assert await store.get_config(config(4).digest) == config(4)

    async def test_each_config_that_was_left_half_way_is_kept(self, store: SqliteStore) -> None:
        for number in range(10):
            await store.put_config(config(number))
        left = tuple(config(number).digest for number in (4, 2))
        await store.close_update(replace(record(7), unfinished=left), entry(7))
        for number in (2, 4):
            assert await store.get_config(config(number).digest) == config(number)
        with pytest.raises(Terminal):
            await store.get_config(config(3).digest)

    def test_history_is_bounded(self, path: Path) -> None:
        with open_database(path) as database:
            for number in range(HISTORY_LIMIT + 20):
                database.close_update(Record(), entry(number))
            numbers = [int(one.seconds) for one in database.history(10_000)]
        assert numbers == list(range(HISTORY_LIMIT + 19, 19, -1))

    def test_only_the_newest_entries_keep_their_details(self, path: Path) -> None:
        details = {"plan": {"changes": []}, "trail": {"phases": [1]}}
        with open_database(path) as database:
            for number in range(DETAILED_LIMIT + 5):
                database.close_update(Record(), replace(entry(number), **details))
            found = database.history(100)
        assert [bool(one.trail) for one in found] == [True] * DETAILED_LIMIT + [False] * 5
        assert [bool(one.plan) for one in found] == [True] * DETAILED_LIMIT + [False] * 5
        assert found[-1] == entry(0)

    def test_a_trail_is_completed_in_the_entry_of_its_update_only(self, path: Path) -> None:
        with open_database(path) as database:
            database.close_update(Record(), entry(1))
            database.end_trail(record(5), entry(1).update_id, {"phases": [1]})
            assert database.load() == record(5)
            database.end_trail(record(6), "another", {"phases": [2]})
            assert database.load() == record(6)
            assert [one.trail for one in database.history(5)] == [{"phases": [1]}]

    async def test_the_file_shrinks_after_a_large_revert(self, store: SqliteStore, path: Path) -> None:
        await store.remember("u1", [Snapshot("path:/large", RegularFile(b"x" * (20 << 20)))])
        assert path.stat().st_size > 20 << 20
        await store.close_update(Record(), entry(1))
        assert path.stat().st_size < 1 << 20

    async def test_secrets_that_were_dropped_are_overwritten(self, store: SqliteStore, path: Path) -> None:
        secret = b"a pull secret that must not be found"
        await store.remember(
            "u1", [Snapshot("path:/s", RegularFile(secret)), Snapshot("password:core", text="$6$hash")]
        )
        assert secret in path.read_bytes()
        await store.close_update(Record(), entry(1))
        await store.close()
        left = b"".join(file.read_bytes() for file in path.parent.iterdir())
        assert secret not in left
        assert b"$6$hash" not in left

    async def test_a_cancelled_caller_does_not_break_it(self, store: SqliteStore) -> None:
        for number in range(30):
            task = asyncio.create_task(store.save(record(number)))
            await asyncio.sleep(0 if number % 2 else 0.001)
            task.cancel()
        await store.save(record(99))
        assert await store.load() == record(99)

    async def test_after_closing_it_says_so(self, store: SqliteStore) -> None:
        await store.close()
        await store.close()
        with pytest.raises(Terminal) as caught:
            await store.load()
        assert caught.value.reason == "StoreClosed"

    async def test_a_close_that_is_cancelled_behind_another_call_closes_the_file(self, path: Path) -> None:
        store = SqliteStore(path)
        await store.open()
        go_on = threading.Event()
        slow = asyncio.create_task(store._in_thread(go_on.wait))
        close = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        close.cancel()
        with pytest.raises(asyncio.CancelledError):
            await close
        go_on.set()
        await slow
        async with asyncio.timeout(10):
            while True:
                with suppress(Retryable):  # its lock is gone when the file is closed
                    async with SqliteStore(path):
                        break


class TestWhose:
    async def test_modes_are_tight(self, path: Path) -> None:
        path.parent.mkdir(mode=0o755)
        async with SqliteStore(path) as store:
            await store.save(record(1))
            assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        path.chmod(0o644)
        async with SqliteStore(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    @needs_root
    @pytest.mark.parametrize("what", ["directory", "file"])
    async def test_of_another_owner(self, path: Path, what: str) -> None:
        async with SqliteStore(path):
            pass
        os.chown(path.parent if what == "directory" else path, 1000, 1000)
        await refused("ForeignStore", path)

    @pytest.mark.parametrize("what", ["directory", "file"])
    async def test_links_are_not_followed(self, path: Path, what: str) -> None:
        async with SqliteStore(path):
            pass
        place = path.parent if what == "directory" else path
        place.rename(place.with_name("elsewhere"))
        place.symlink_to("elsewhere")
        # For a directory, O_DIRECTORY speaks before O_NOFOLLOW does.
        await refused("NotADirectory" if what == "directory" else "LinkRefused", path)

    async def test_a_second_daemon_is_refused_with_the_pid(self, store: SqliteStore, path: Path) -> None:
        error = await refused("StoreBusy", path)
        assert isinstance(error, Retryable)
        assert f"pid {os.getpid()}" in error.message
        await store.save(record(1))

    async def test_a_reader_that_stays_is_named_as_the_cause(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opening, "_BUSY_SECONDS", 0.1)
        async with SqliteStore(path) as store:
            reader = sqlite3.connect(path, isolation_level=None)
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM record").fetchall()
            with pytest.raises(Retryable, match="another process") as caught:
                await store.save(record(1))
            assert caught.value.reason == "StoreBusy"
            reader.close()
            assert await store.load() == Record()
            await store.save(record(1))


async def refused(reason: str, path: Path) -> AgentError:
    with pytest.raises(AgentError) as caught:
        async with SqliteStore(path):
            pass
    assert caught.value.reason == reason
    return caught.value


class TestVersions:
    def test_a_newer_store_is_left_alone(self, path: Path) -> None:
        with open_database(path) as opened:
            opened.save(record(1))
        database = sqlite3.connect(path)
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        database.close()
        before, times = tree(path.parent), path.stat().st_mtime_ns
        for open_store in (open_database, read_only_open):
            with pytest.raises(Terminal, match=r"newer nodeagent.*has not touched it") as caught, open_store(path):
                pass
            assert caught.value.reason == "StoreTooNew"
        assert (tree(path.parent), path.stat().st_mtime_ns) == (before, times)

    def test_an_older_store_goes_forward_once(self, path: Path) -> None:
        with open_database(path) as opened:
            opened.save(record(1))
        later = (*MIGRATIONS, ("CREATE TABLE extra (x)", "INSERT INTO extra SELECT count(*) FROM record"))
        database = sqlite3.connect(path, isolation_level=None)
        assert migrate(database, later)
        assert not migrate(database, later)
        assert database.execute("SELECT * FROM extra").fetchall() == [(1,)]
        assert database.execute("PRAGMA user_version").fetchone() == (len(later),)
        assert record_from_row(*database.execute("SELECT json, sum FROM record").fetchone()) == record(1)
        database.close()

    def test_a_migration_that_fails_leaves_the_old_version(self, path: Path) -> None:
        with open_database(path):
            pass
        database = sqlite3.connect(path, isolation_level=None)
        with pytest.raises(sqlite3.OperationalError):
            migrate(database, (*MIGRATIONS, ("CREATE TABLE extra (x)", "INSERT INTO nowhere VALUES (1)")))
        assert database.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert not database.execute("SELECT * FROM sqlite_master WHERE name = 'extra'").fetchall()
        database.close()


def everything(database: Database) -> tuple[object, ...]:
    """All that is acted upon."""
    return (
        database.load(),
        database.get_config(config(1).digest),
        database.get_config(database.current()),
        database.remembered("u1"),
        [database.original(one.key) for one in snapshots(3)],
    )


@pytest.fixture
def filled(path: Path) -> tuple[Path, tuple[object, ...]]:
    with open_database(path) as database:
        database.put_config(config(1))
        database.promote(record(1), config(1).digest, entry(1))
        database.remember("u1", snapshots(11))
        database.keep_originals(snapshots(3))
        return path, everything(database)


class TestDamage:
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "empty"),
            (b"SQLite format 3\0", "not an SQLite database"),
            (b"garbage" * 10_000, "not an SQLite database"),
            (b"SQLite format 3\0" + bytes(8000), "not written by nodeagent"),
        ],
    )
    async def test_what_is_no_store(self, path: Path, content: bytes, words: str) -> None:
        path.parent.mkdir()
        path.write_bytes(content)
        error = await refused("StoreCorrupt", path)
        assert isinstance(error, Terminal)
        assert words in error.message
        assert "move the file away" in error.hint
        assert path.read_bytes() == content

    async def test_another_program_s_database(self, path: Path) -> None:
        path.parent.mkdir()
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE record (id, json, sum)")
        database.close()
        await refused("StoreCorrupt", path)

    def test_cut_short_anywhere(self, filled: tuple[Path, tuple[object, ...]], tmp_path: Path) -> None:
        path, _ = filled
        whole = path.read_bytes()
        for size in [*range(0, len(whole), 4096), *range(1, len(whole), 7919)]:
            path.write_bytes(whole[:size])
            with pytest.raises(Terminal) as caught, open_database(path) as database:
                everything(database)
            assert caught.value.reason == "StoreCorrupt", size
            assert path.stat().st_size == size

    def test_flipped_bits_are_found_or_do_no_harm(self, filled: tuple[Path, tuple[object, ...]]) -> None:
        path, before = filled
        whole, chance, found = path.read_bytes(), random.Random(1), 0
        for _ in range(400):
            data = bytearray(whole)
            for _ in range(chance.choice((1, 1, 4))):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
            try:
                with open_database(path) as database:
                    assert everything(database) == before
            except Terminal as error:
                assert error.reason in ("StoreCorrupt", "StoreTooNew", "ReadOnly"), error
                found += 1
        assert found > 100

    def test_overwritten_blocks_are_found_or_do_no_harm(self, filled: tuple[Path, tuple[object, ...]]) -> None:
        path, before = filled
        whole = path.read_bytes()
        for block in range(0, len(whole), 512):
            path.write_bytes(whole[:block] + bytes(512) + whole[block + 512 :])
            try:
                with open_database(path) as database:
                    assert everything(database) == before
            except Terminal as error:
                assert error.reason == "StoreCorrupt", error

    @pytest.mark.parametrize(
        "statement",
        [
            "DELETE FROM record",
            "UPDATE record SET json = replace(json, 'Releasing', 'Verifying')",
            "UPDATE record SET json = '{', sum = ''",
            "DROP TABLE snapshots",
            "ALTER TABLE originals DROP COLUMN sum",
            "UPDATE snapshots SET content = x'00' WHERE key LIKE 'path:%'",
            "UPDATE snapshots SET meta = replace(meta, ':416', ':438')",
            "UPDATE configs SET text = x'00'",
            "UPDATE meta SET value = 'gone'",
        ],
    )
    def test_damage_that_sqlite_cannot_see(self, filled: tuple[Path, tuple[object, ...]], statement: str) -> None:
        path, _ = filled
        database = sqlite3.connect(path)
        assert database.execute(statement).rowcount != 0
        database.commit()
        database.close()
        with pytest.raises(Terminal) as caught, open_database(path) as opened:
            everything(opened)
        assert caught.value.reason == "StoreCorrupt"

    async def test_a_journal_without_its_store(self, path: Path) -> None:
        path.parent.mkdir()
        path.with_name("state.db-journal").write_bytes(b"x" * 512)
        await refused("StoreCorrupt", path)
        assert not path.exists()

    async def test_a_start_that_was_killed_while_creating(self, path: Path) -> None:
        path.parent.mkdir()
        path.with_name("state.db.new").write_bytes(b"half")
        path.with_name("state.db.new-journal").write_bytes(b"half")
        async with SqliteStore(path) as store:
            assert await store.load() == Record()
        assert not path.with_name("state.db.new").exists()


@needs_root
class TestDisk:
    def test_full(self, tmp_path: Path) -> None:
        def work() -> None:
            mount("none", tmp_path, "tmpfs", options="size=256k,mode=700")
            path = tmp_path / "s/state.db"
            with open_database(path) as database:
                database.save(record(1))
                for number in range(3):
                    with pytest.raises(Terminal) as caught:
                        database.remember("u1", [Snapshot(f"path:/{number}", RegularFile(os.urandom(1 << 20)))])
                    assert caught.value.reason == "NoSpace"
                    assert database.load() == record(1)
                    assert database.remembered("u1") == []
                database.save(record(2))
            with open_database(path) as database:
                assert database.load() == record(2)

        in_mount_namespace(work)

    def test_full_at_the_first_start(self, tmp_path: Path) -> None:
        def work() -> None:
            mount("none", tmp_path, "tmpfs", options="size=32k,mode=700")
            with pytest.raises(Terminal) as caught, open_database(tmp_path / "s/state.db"):
                pass
            assert caught.value.reason == "NoSpace"
            assert not (tmp_path / "s/state.db").exists()

        in_mount_namespace(work)

    def test_read_only(self, path: Path, tmp_path: Path) -> None:
        with open_database(path) as database:
            database.save(record(1))

        def work() -> None:
            mount(str(path.parent), path.parent, flags=MS_BIND)
            mount("none", path.parent, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)
            with read_only_open(path) as reader:
                assert reader.load() == record(1)
            with pytest.raises(Terminal) as caught, open_database(path) as database:
                database.save(record(2))
            assert caught.value.reason == "ReadOnly"

        in_mount_namespace(work)


class TestReadOnly:
    def test_without_a_store(self, path: Path) -> None:
        for _ in range(2):
            with pytest.raises(Terminal) as caught, read_only_open(path):
                pass
            assert caught.value.reason == "NoStore"
            assert not path.parent.exists()
            path.parent.mkdir() if not path.parent.exists() else None
            path.parent.rmdir()

    async def test_while_the_daemon_writes(self, store: SqliteStore, path: Path) -> None:
        await store.put_config(config(0))
        await store.promote(record(0), config(0).digest, entry(0))
        await store.take_lease(Holder("me", "u0", "why", "now"))

        def read() -> None:
            with read_only_open(path) as reader:
                for _ in range(200):
                    number = int(reader.load().update_id[1:])
                    assert 0 <= number <= 40
                assert reader.current() == config(0).digest
                assert reader.get_config(reader.current()) == config(0)
                assert reader.history(5) == [entry(0)]
                assert reader.lease() == Holder("me", "u0", "why", "now")

        reading = asyncio.create_task(asyncio.to_thread(read))
        for number in range(40):
            await store.save(record(number))
        await reading

    def test_changes_nothing(self, filled: tuple[Path, tuple[object, ...]]) -> None:
        path, _ = filled

        def look() -> object:
            return tree(path.parent), [file.stat().st_mtime_ns for file in (path, path.parent)]

        before = look()
        with read_only_open(path) as reader:
            assert reader.load() == record(1)
            with pytest.raises(sqlite3.OperationalError):
                reader._db.execute("DELETE FROM record")
        assert look() == before

    def test_a_write_cut_short_is_named_and_left_to_the_daemon(self, path: Path, tmp_path: Path) -> None:
        with open_database(path) as database:
            database.save(record(1))
            # A copy made in the middle of a transaction is what a kill leaves behind.
            database._db.execute("PRAGMA cache_size = 1")
            database._db.execute("BEGIN IMMEDIATE")
            database._db.execute("UPDATE record SET json = 'half'")
            database._db.execute("INSERT INTO made_dirs SELECT hex(randomblob(5000))")
            database._db.execute("INSERT INTO made_dirs SELECT hex(randomblob(5000))")
            shutil.copytree(path.parent, tmp_path / "cut")
            database._db.execute("ROLLBACK")
        cut = tmp_path / "cut/state.db"
        assert (tmp_path / "cut/state.db-journal").stat().st_size > 0
        before = tree(cut.parent)
        with pytest.raises(Retryable) as caught, read_only_open(cut) as reader:
            reader.load()
        assert caught.value.reason == "StoreNeedsRecovery"
        assert tree(cut.parent) == before
        with open_database(cut) as database:
            assert database.load() == record(1)
            assert database.made_dirs() == []


async def test_a_note_is_kept_until_an_empty_one(path: Path) -> None:
    async with SqliteStore(path) as store:
        assert await store.note("lease") == ""
        for text in ("first", "second"):
            await store.keep_note("lease", text)
        await store.keep_note("other", "stays")
    async with SqliteStore(path) as store:
        assert await store.note("lease") == "second"
        await store.keep_note("lease", "")
    async with SqliteStore(path) as store:
        assert [await store.note(key) for key in ("lease", "other")] == ["", "stays"]


def test_the_loop_of_a_process_that_ends_without_closing(path: Path) -> None:
    """A daemon that dies of an exception must not hang in the store's thread."""
    code = (
        "import asyncio, sys\nfrom nodeagent.host.store.store import SqliteStore\n"
        "async def main():\n    await SqliteStore(sys.argv[1]).open()\nasyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=20)


def test_a_read_that_fails_leaves_no_lock(path: Path) -> None:
    with open_database(path) as opened:
        opened.save(record(1))
        opened.remember("u", snapshots(3))
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE snapshots SET sum = 'wrong'")
            other.commit()
            with pytest.raises(Terminal) as caught:
                opened.remembered("u")
            # The error keeps the frame of the read, which must have no open statement.
            assert caught.value.reason == "StoreCorrupt"
            other.execute("PRAGMA busy_timeout = 0")
            other.execute("DELETE FROM snapshots")
            other.commit()


@pytest.mark.finding("attack: expensive reads", "No write of the record waits behind a read of the history.")
class TestReadsOfTheHistory:
    async def test_they_never_enter_the_thread_of_the_database(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Counted: the thread does the writes and nothing else, however many reads there are."""
        for number in range(30):
            await store.close_update(record(number), entry(number))
        entered = 0
        in_thread = store._in_thread

        async def count(*args: Any, **kwargs: Any) -> Any:
            nonlocal entered
            entered += 1
            return await in_thread(*args, **kwargs)

        monkeypatch.setattr(store, "_in_thread", count)
        reads = [asyncio.create_task(store.history(1000)) for _ in range(40)]
        for number in range(5):
            await store.save(record(number))
        found = await asyncio.gather(*reads)
        assert entered == 5
        assert all(each == list(map(entry, range(29, -1, -1))) for each in found)

    async def test_a_read_that_takes_long_delays_no_write(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.close_update(record(1), entry(1))
        may_end, entries = threading.Event(), Database.entries

        def slow(self: Database, rows: Sequence[str]) -> list[HistoryEntry]:
            may_end.wait(60)
            return entries(self, rows)

        monkeypatch.setattr(Database, "entries", slow)
        read = asyncio.create_task(store.history(10))
        try:
            async with asyncio.timeout(30):
                await store.save(record(2))
                await store.close_update(record(2), entry(2))
            assert not read.done()
        finally:
            may_end.set()
        assert await read == [entry(1)]
        assert await store.history(10) == [entry(2), entry(1)]

    async def test_each_change_has_another_version(self, store: SqliteStore) -> None:
        seen = [store.history_version()]
        await store.promote(record(1), config(1).digest, entry(1))
        seen.append(store.history_version())
        await store.close_update(record(2), entry(2))
        seen.append(store.history_version())
        await store.save(record(3))
        assert store.history_version() == seen[2]
        await store.end_trail(record(3), entry(2).update_id, {"version": 1})
        seen.append(store.history_version())
        assert all(one != other for one, other in itertools.combinations(seen, 2))
        assert (await store.history(1))[0].trail == {"version": 1}
        assert [each.update_id for each in await store.history(1, 1)] == [entry(1).update_id]
