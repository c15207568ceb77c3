# SPDX-License-Identifier: Apache-2.0
"""How much longer an update takes while three unprivileged users read the history without end.

Prints one JSON object. The history is full: 200 entries with 1.3 MB. Each user has two connections with eight calls
outstanding on each, at the lowest priority (nice 19). Times are medians, in seconds, from the request of an update of
14 files until it is done. ``ratio`` is the time with the flood by the time without. ``good`` says whether it is at most
1.5. It boots a test host, so it needs root; a minute.

    python -m integration.bench.flood [--repeat N]
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from typing import Final

from integration.bench.rest.__main__ import Quiet
from integration.demo import package_of
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import base_image
from integration.hosts.container.package import installed_image
from integration.hosts.errors import Unavailable
from nodeagent.update.ports.store import HistoryEntry

AIM: Final = 1.5
REPEAT: Final = 5
# The bus knows only users that the host has.
USERS: Final = (65534, 1, 2)
FILES: Final = 14
ENTRIES: Final = 200
# Characters of a message, so that the history has the size of the documentation.
MESSAGE: Final = 6000


def fill_history(host: Host) -> None:
    """Put old entries into the store of an agent that does not run."""
    old = HistoryEntry("", "a", "b", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z", "reverted")
    store = host.root / agent.STORE.lstrip("/")
    with closing(sqlite3.connect(store)) as db, db:
        for number in range(ENTRIES):
            entry = replace(old, update_id=f"{number:032x}", message="x" * MESSAGE)
            db.execute("INSERT INTO history (json) VALUES (?)", (json.dumps(asdict(entry)),))


@contextmanager
def flood(host: Host, answers: list[int]) -> Iterator[None]:
    """Let all users flood the daemon inside the context. ``answers`` gets the number of calls of each."""
    command = [sys.executable, "-m", "integration.bench.flood.client"]
    clients = [
        subprocess.Popen(
            [*command, str(uid), str(host.container.leader)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for uid in USERS
    ]
    try:
        time.sleep(3)
        yield
        answers += [int(client.communicate(timeout=30)[0]) for client in clients]
    finally:
        for client in clients:
            client.kill()
            client.wait()


def update(host: Host, number: int) -> float:
    """Return the seconds of an update."""
    name = f"config-{number}"
    files = {f"/etc/bench.d/{each}": f"{number}\n" for each in range(FILES)}
    began = time.monotonic()
    agent.apply(host, agent.machine_config(name, files=files))
    agent.wait_done(host, name, timeout=120)
    return time.monotonic() - began


def run(repeat: int) -> dict[str, object]:
    story = Quiet()
    with Host(installed_image(base_image(story.say), package_of(story))) as host:
        agent.settings(host)
        host.write(agent.POLICY, agent.policy(files={"/etc/bench.d": ["None"]}))
        host.boot()
        agent.wait_daemon(host)
        host.run(["systemctl", "stop", agent.UNIT])
        fill_history(host)
        host.run(["systemctl", "start", agent.UNIT])
        agent.wait_daemon(host)
        update(host, 0)
        quiet, flooded, answers = list[float](), list[float](), list[int]()
        # In turns, so that another load of this machine meets both.
        for number in range(1, repeat + 1):
            quiet.append(update(host, 2 * number))
            with flood(host, answers):
                flooded.append(update(host, 2 * number + 1))
    alone, beside = statistics.median(quiet), statistics.median(flooded)
    return {
        "bench": "flood",
        "repeat": repeat,
        "users": len(USERS),
        "seconds": {"alone": round(alone, 2), "beside the flood": round(beside, 2), "longest": round(max(flooded), 2)},
        "answers": sum(answers),
        "ratio": round(beside / alone, 2),
        "good": beside <= AIM * alone,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=REPEAT)
    options = parser.parse_args()
    try:
        print(json.dumps(run(options.repeat), indent=1))
    except Unavailable as error:
        print(f"flood: cannot run here: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
