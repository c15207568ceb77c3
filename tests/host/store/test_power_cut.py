# SPDX-License-Identifier: Apache-2.0
"""Power cuts: of all that SQLite wrote, only what it synced is certain. A transaction that was reported is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

import pytest

from nodeagent.host.store.opening import open_database
from tests.host.store.crash import look
from tests.host.store.power_cut import CALLS, replay
from tests.support.needs import needs

UPDATES = 4
CUTS_PER_CALL = 3

WRITER = """
import os, sys
from pathlib import Path
from nodeagent.host.store.opening import open_database
from tests.host.store.store_data import *
with open_database(Path(sys.argv[1])) as database:
    for number in range(1, int(sys.argv[2]) + 1):
        database.put_config(config(number))
        database.remember(f"u{number}", snapshots(number))
        database.keep_originals(snapshots(number)[:1])
        database.promote(record(number), config(number).digest, entry(number))
        os.write(1, f"{number}\\n".encode())
"""


@needs("strace")
def test_whatever_a_power_cut_leaves_opens_and_has_what_was_reported(tmp_path: Path) -> None:
    path, trace = tmp_path / "store/state.db", tmp_path / "trace"
    with open_database(path):
        pass
    path.with_name("state.db-journal").unlink(missing_ok=True)  # the first journal is made under the eyes of strace
    first = {str(path): path.read_bytes()}
    command = [
        "strace",
        "-f",
        "-y",
        "-xx",
        "-e",
        "signal=none",
        "-s",
        "1000000",
        "-o",
        str(trace),
        "-e",
        f"trace={CALLS}",
    ]
    done = subprocess.run(
        [*command, sys.executable, "-c", WRITER, str(path), str(UPDATES)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "ptrace" in done.stderr:
        pytest.skip("this environment does not let strace trace")
    assert done.returncode == 0, done.stderr

    chance, cuts, seen = Random(1), 0, set()
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        for disk, printed in replay(trace, path.parent, first):
            for _ in range(CUTS_PER_CALL):
                place = Path(folder) / "after"
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(mode=0o700)
                for name, content in disk.cut(chance).items():
                    (place / Path(name).name).write_bytes(content)
                with open_database(place / path.name) as database:
                    number = look(database)
                assert printed <= number <= printed + 1
                cuts += 1
                seen.add(number)
    print({"cuts": cuts})
    assert seen == set(range(UPDATES + 1))
    assert cuts > 300
