# SPDX-License-Identifier: Apache-2.0
"""What each dependency costs on every node: time to import, and size on the disk.

Prints one JSON object. The time is that of the CPU, the least of ``--runs`` fresh processes (the machine may have other
work; the median is there as well), warm, after ``import asyncio``, for the modules that nodeagent itself imports of it;
``asyncio_ms`` is for comparison with other machines. The size is that of the installed files without bytecode,
``mb_with_needs`` with the packages that it asks for. The comments in pyproject.toml have these figures. Nothing is
judged here: what a dependency may cost is a decision.

    python -m integration.bench.imports [--runs N]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

IMPORTS: Final = {
    "dbus-next": "import dbus_next",
    "msgspec": "import msgspec",
    "PyYAML": "import yaml",
    # It imports rich if it is installed, as it is with the tools of the checks, but on no node.
    "structlog": "sys.modules['rich'] = None\nimport structlog",
    "psutil": "import psutil",
    "pyudev": "import pyudev",
    "kubernetes": "from nodeagent.kube import _import\n_import.load()",
}
AFTER: Final = "import asyncio"
PROGRAM: Final = """
import sys, time
{before}
start = time.process_time()
{statement}
print((time.process_time() - start) * 1000)
"""
TIMEOUT: Final = 60


def milliseconds(statement: str, before: str) -> float:
    program = PROGRAM.format(before=before, statement=statement)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return float(done.stdout)


def megabytes(found: Distribution) -> float:
    paths = [Path(str(found.locate_file(file))) for file in found.files or () if "__pycache__" not in file.parts]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def needed(name: str, known: dict[str, Distribution]) -> dict[str, Distribution]:
    """``name`` and all that it asks for without extras, as far as it is installed."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key not in known:
        try:
            known[key] = distribution(name)
        except PackageNotFoundError:  # its marker is not for this Python
            return known
        for line in known[key].requires or ():
            if "extra ==" not in line and (word := re.match(r"[\w.-]+", line)):
                needed(word.group(), known)
    return known


def times_of(statement: str, before: str, runs: int) -> list[float]:
    milliseconds(statement, before)  # into the page cache
    return [milliseconds(statement, before) for _ in range(runs)]


def measure(name: str, runs: int) -> dict[str, object]:
    times = times_of(IMPORTS[name], AFTER, runs)
    everything = needed(name, {})
    return {
        "version": distribution(name).version,
        "import_ms": round(min(times), 1),
        "import_ms_median": round(statistics.median(times), 1),
        "mb": round(megabytes(distribution(name)), 2),
        "mb_with_needs": round(sum(megabytes(found) for found in everything.values()), 2),
        "needs": sorted(everything.keys() - {re.sub(r"[-_.]+", "-", name).lower()}),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="import time and size of each dependency")
    parser.add_argument("--runs", type=int, default=9)
    args = parser.parse_args()
    asyncio = min(times_of("import asyncio", "", args.runs))
    packages = {name: measure(name, args.runs) for name in IMPORTS}
    report = {
        "schema": "nodeagent/bench-imports/v1",
        "python": sys.version.split()[0],
        "asyncio_ms": round(asyncio, 1),
        "packages": packages,
    }
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
