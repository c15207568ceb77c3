"""Make the stores of one version of nodeagent: ``python -m tests.stores.make DIRECTORY``, run with that version.

The result is committed once and never made again: later versions have to read what this one wrote.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import looptime

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.coordination.maintenance import Maintenance, is_maintenance
from nodeagent.core.update.record_codec import record_from_dict
from nodeagent.host.store.opening import open_database
from tests.stores.scenarios import SCENARIOS, Scenario, ending, point, until
from tests.world import World


def write(world: World, texts: dict[str, str], path: Path) -> None:
    """The store of a host, as the real adapter writes it."""
    with open_database(path) as database:
        for digest, text in texts.items():
            database.put_config(ConfigSource("", digest, text.encode()))
        for update, snapshots in world.snapshots.items():
            database.remember(update, snapshots)
        database.keep_originals(list(world.originals.values()))
        database.add_made_dirs(world.made)
        if world.holder is not None:
            database.take_lease(world.holder)
            if is_maintenance(world.holder.operation):
                since = world.holder.since
                database.keep_maintenance(Maintenance("1", "alice", "disk swap", since, began=since))
        if world.request is not None:
            database.keep_request(world.request)
        database.save(record_from_dict(world.record))
    with closing(sqlite3.connect(path)) as db:
        values = {"current": world.current, "previous": world.previous}
        db.executemany("REPLACE INTO meta (key, value) VALUES (?, ?)", [pair for pair in values.items() if pair[1]])
        rows = [(json.dumps(asdict(entry), sort_keys=True, separators=(",", ":")),) for entry in world.history]
        db.executemany("INSERT INTO history (json) VALUES (?)", rows)
        db.commit()


WHOLE = ("plain", "planned-reboot", "os", "drain")
COMMON = ("Staging-prepare", "Leasing-prepare", "Draining-prepare", "Writing-apply", "Acting-apply", "Idle-done")
"""Points at which other scenarios have the same store as these four."""


async def points(scenario: Scenario) -> list[str]:
    found: dict[str, None] = {}

    def note(record: dict[str, Any]) -> bool:
        found[point(record)] = None
        return False

    await until(await scenario.prepare(), note)
    whole = scenario.name in (*WHOLE, "maintenance")
    return [at for at in found if whole or at not in COMMON]


async def make(scenario: Scenario, at: str, folder: Path) -> dict[str, Any]:
    host = await scenario.prepare()
    assert await until(host, lambda record: point(record) == at)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "state" / "store.db"
        write(host.world, host.texts, path)
        (folder / f"{scenario.name}.{at}.db.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    await host.settle()
    return {"scenario": scenario.name, "point": at, "ending": asdict(ending(host))}


def run(work: Coroutine[Any, Any, Any]) -> Any:
    loop = looptime.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    made = [run(make(scenario, at, folder)) for scenario in SCENARIOS for at in run(points(scenario))]
    (folder / "manifest.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
