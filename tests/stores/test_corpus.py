"""Every store that a released version wrote opens, and what was under way in it comes to the same end.

The host is brought to the point by the code of today, and gets the old store in the place of its own.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.update.record_codec import record_to_dict
from nodeagent.host.store.opening import open_database
from tests.stores.scenarios import SCENARIOS, ending, point, until
from tests.world.cluster_host import ClusterHost
from tests.world.run import Host

pytestmark = pytest.mark.looptime

HERE = Path(__file__).parent
SCENARIO = {scenario.name: scenario for scenario in SCENARIOS}
CASES = [
    pytest.param(version, case, id=f"{version}-{case['scenario']}-{case['point']}")
    for version in ("0.1.0",)
    for case in json.loads((HERE / version / "manifest.json").read_text())
]


def load(host: Host, store: Path, path: Path) -> None:
    """Give the host this store instead of its own."""
    path.parent.mkdir(mode=0o700)
    path.write_bytes(gzip.decompress(store.read_bytes()))
    world = host.world
    replayed = str(world.record["update_id"])
    with closing(sqlite3.connect(path)) as db:
        originals = [key for (key,) in db.execute("SELECT key FROM originals")]
        updates = [update for (update,) in db.execute("SELECT DISTINCT update_id FROM snapshots")]
    with open_database(path) as database:
        record = database.load()
        world.record = record_to_dict(record)
        world.current, world.previous = database.current(), database.previous()
        world.configs = {digest: database.get_config(digest) for digest in host.texts}
        world.snapshots = {update: database.remembered(update) for update in updates}
        world.originals = {key: kept for key in originals if (kept := database.original(key)) is not None}
        world.made = database.made_dirs()
        world.history = database.history(200)[::-1]
        world.holder, world.request = database.lease(), database.request()
        maintenance = database.maintenance()
        assert (maintenance is None) == (world.holder is None or world.holder.name == "nodeagent")
    if isinstance(host, ClusterHost):
        for name in ("slot", "staging_slot", "cordon"):
            if getattr(host.around, name) == replayed:
                setattr(host.around, name, record.update_id)


@pytest.mark.parametrize(("version", "case"), CASES)
async def test_an_old_store_is_resumed(version: str, case: dict[str, Any], tmp_path: Path) -> None:
    host = await SCENARIO[case["scenario"]].prepare()
    assert await until(host, lambda record: point(record) == case["point"])
    store = HERE / version / f"{case['scenario']}.{case['point']}.db.gz"
    await asyncio.to_thread(load, host, store, tmp_path / "state" / "store.db")
    await host.settle()
    assert json.loads(json.dumps(asdict(ending(host)))) == case["ending"]
