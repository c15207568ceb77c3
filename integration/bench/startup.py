# SPDX-License-Identifier: Apache-2.0
"""Processor time of the start of the commands, against ``python -c "import asyncio"`` with the same interpreter.

Prints one JSON object. The limit is the project's: at most seven times, which is about half a second. Runs are
interleaved and the median of each counts. ``status`` is asked without a daemon where none is running; that is the
slower of its two ways. ``good`` says whether all keep it; a clock never fails a run.

    python -m integration.bench.startup [--runs N]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodeagent.cli.main import COMMANDS

MAX_TIMES_BASE = 7.0
BASE = "import asyncio"


def config(name: str, content: str) -> str:
    files = [{"path": "/etc/containers/registries.d/a.yaml", "mode": 420, "contents": {"source": f"data:,{content}"}}]
    return json.dumps(
        {
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": name},
            "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}}},
        }
    )


def commands(directory: Path) -> dict[str, Sequence[str]]:
    """Return the commands to time, by name; only those that exist."""
    a, b = directory / "a.json", directory / "b.json"
    a.write_text(config("rendered-worker-a", "a"))
    b.write_text(config("rendered-worker-b", "b"))
    words = {
        "plan": ["plan", "--from", str(a), "--to", str(b)],
        "plan --json": ["plan", "--from", str(a), "--to", str(b), "--json"],
        "explain": ["explain", "/etc/hosts"],
        "status": ["status"],
        "version": ["version"],
    }
    known = {command.name for command in COMMANDS}
    found = {name: ["-m", "nodeagent", *rest] for name, rest in words.items() if rest[0] in known}
    return {BASE: ["-c", BASE], **found}


def measure(programs: Mapping[str, Sequence[str]], runs: int) -> dict[str, float]:
    """Median seconds of processor time by name, which another program on this machine changes least."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for run in range(runs + 1):
        for name, words in programs.items():
            before = spent()
            subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            if run:  # the first round fills caches and writes bytecode
                times[name].append(spent() - before)
    return {name: statistics.median(values) for name, values in times.items()}


def spent() -> float:
    """Seconds of processor time of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as directory:
        seconds = measure(commands(Path(directory)), runs)
    base = seconds.pop(BASE)
    ratios = {name: round(value / base, 2) for name, value in seconds.items()}
    good = all(ratio <= MAX_TIMES_BASE for ratio in ratios.values())
    print(
        json.dumps(
            {
                "schema": "nodeagent/bench-startup/v1",
                "base_ms": round(base * 1000, 1),
                "ms": {name: round(value * 1000, 1) for name, value in seconds.items()},
                "times_base": ratios,
                "limit": MAX_TIMES_BASE,
                "good": good,
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
