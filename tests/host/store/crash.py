# SPDX-License-Identifier: Apache-2.0
"""Kills a writer of the store again and again, and looks each time at what it left. A program, run by test_store_crash.

Everything is forked from this one process, which has no threads; so a round takes milliseconds.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import sys
import time
from pathlib import Path

from nodeagent.host.store.database import Database
from nodeagent.host.store.opening import open_database
from tests.host.store.store_data import config, entry, record, snapshots


def write_without_end(path: Path, number: int, report: int) -> None:
    """Write one update after the other, and print each number when its transaction is on the disk."""
    with open_database(path) as database:
        os.write(report, b"open\n")
        while True:
            number += 1
            database.put_config(config(number))
            database.remember(f"u{number}", snapshots(number))
            database.keep_originals(snapshots(number)[:1])
            database.promote(record(number), config(number).digest, entry(number))
            os.write(report, f"{number}\n".encode())


def look(database: Database) -> int:
    """The number of the last update, if all parts of the store agree that it is that."""
    state = database.load()
    number = int(state.update_id.removeprefix("u") or 0)
    if number == 0:
        return 0
    assert state == record(number), "the record is not of one update"
    assert database.current() == config(number).digest, "current config and record differ"
    assert database.get_config(database.current()) == config(number)
    assert database.history(1) == [entry(number)], "history and record differ"
    assert database.remembered(f"u{number}") == [], "snapshots outlived their update"
    coming = database.remembered(f"u{number + 1}")
    assert coming in ([], snapshots(number + 1)), "snapshots in part"
    for one in (number, number + 1):
        kept = database.original(f"path:/etc/{one}")
        assert kept in ([snapshots(one)[0]] if one == number else [None, snapshots(one)[0]]), "an original is wrong"
    return number


def a_round(path: Path, number: int, seconds: float, opened: bool) -> tuple[int, bool]:
    """Kills a writer after about ``seconds``, counted from its start or from when it has ``opened`` the store.

    Returns the number now, and whether a journal was to be played back.
    """
    out, report = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        write_without_end(path, number, report)
        os._exit(0)
    os.close(report)
    if opened:
        ready, _, _ = select.select([out], [], [], 20)
        assert ready, "the writer does not begin"
    time.sleep(seconds)
    os.kill(child, signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)
    # What a power cut would have left, if the disk wrote what was written so far: the files as they are now.
    copy = path.parent.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path.parent, copy)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = b""
    while data := os.read(out, 1 << 16):
        said += data
    os.close(out)
    printed = [int(line) for line in said.split() if line != b"open"]
    journal = path.with_name(f"{path.name}-journal")
    hot = journal.exists() and journal.stat().st_size > 0
    found = []
    for place in (path, copy / path.name):
        with open_database(place) as database:
            found.append(look(database))
    assert found[0] == found[1], "the copy differs from the original"
    least = printed[-1] if printed else number
    assert least <= found[0] <= least + 1, f"printed {least}, found {found[0]}"
    return found[0], hot


def main(folder: str, rounds: int) -> None:
    path = Path(folder) / "store/state.db"
    chance = random.Random()
    with open_database(path):
        pass
    number, hot = 0, 0
    for _ in range(rounds):
        number, was_hot = a_round(path, number, chance.uniform(0, 0.02), opened=chance.random() < 0.8)
        hot += was_hot
    print(json.dumps({"rounds": rounds, "updates": number, "hot_journals": hot}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
