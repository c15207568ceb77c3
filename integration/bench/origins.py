# SPDX-License-Identifier: Apache-2.0
"""What the origins of the interpreter cost a host: size of the package, time to start, and resident memory.

Builds the package with each, unpacks it, and runs the origins in turn. Times are those of the CPU in milliseconds, the
least and the median of ``--runs``, because the machine may have other work. The memory is that of a process that has
imported the daemon, in MiB. Nothing is judged.

    python -m integration.bench.origins [--runs N] [ORIGIN...]     source needs `make interpreter`
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
IMPORT: Final = "import sys; sys.path.append(sys.argv[1])\n"
PROGRAMS: Final = {
    "pass": "pass",
    "asyncio": "import asyncio",
    "daemon": f"{IMPORT}import nodeagent.agent.daemon",
    "version": f"{IMPORT}from nodeagent.cli.main import entry\nsys.argv[1:] = ['version']\nentry()",
}
MEMORY: Final = f"""{IMPORT}import nodeagent.agent.daemon
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith(("VmRSS", "RssAnon"))))
"""
TIMEOUT: Final = 120


def unpack(origin: str, place: Path) -> tuple[Path, Path]:
    """Return the interpreter and the site-packages of a package with this origin."""
    argv: list[str | Path] = [
        sys.executable,
        ROOT / "packaging" / "build.py",
        "--interpreter",
        origin,
        "--out",
        place / "dist",
    ]
    subprocess.run(argv, check=True, stdout=sys.stderr)
    (tar,) = (place / "dist").glob("nodeagent-*.tar.gz")
    (place / "tree").mkdir()
    subprocess.run(["tar", "--extract", "--file", tar, "--directory", place / "tree"], check=True)
    home = place / "tree/usr/lib/nodeagent"
    (packages,) = home.glob("lib/python3.*/site-packages")
    return home / "bin/python3", packages


def milliseconds(python: Path, packages: Path, program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv: list[str | Path] = [python, "-BIS", "-c", program, packages]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def mebibytes(python: Path, packages: Path) -> tuple[float, float]:
    """Return all resident memory, and the anonymous part."""
    argv: list[str | Path] = [python, "-BIS", "-c", MEMORY, packages]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=TIMEOUT)
    total, anonymous = (int(each) / 1024 for each in done.stdout.split())
    return total, anonymous


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def measure(built: dict[str, tuple[Path, Path]], runs: int) -> dict[str, dict[str, list[float]]]:
    times: dict[str, dict[str, list[float]]] = {origin: defaultdict(list) for origin in built}
    for number in range(runs + 1):
        for origin, (python, packages) in built.items():
            for name, program in PROGRAMS.items():
                taken = milliseconds(python, packages, program)
                # The first round reads the files into the page cache.
                if number:
                    times[origin][name].append(taken)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description="size, start and memory of the origins of the interpreter")
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("origins", nargs="*", default=["testing"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        for origin in args.origins:
            (top / origin).mkdir()
        built = {origin: unpack(origin, top / origin) for origin in args.origins}
        times = measure(built, args.runs)
        report = {}
        for origin, (python, packages) in built.items():
            memory = [mebibytes(python, packages) for _ in range(5)]
            tree, dist = top / origin / "tree", top / origin / "dist"
            report[origin] = {
                "cpu_ms_least": {name: round(min(each), 1) for name, each in times[origin].items()},
                "cpu_ms_median": {name: round(statistics.median(each), 1) for name, each in times[origin].items()},
                "rss_mib": round(statistics.median(total for total, _ in memory), 1),
                "anonymous_mib": round(statistics.median(anonymous for _, anonymous in memory), 1),
                "tree_mb": round(megabytes(tree), 1),
                "interpreter_mb": round(megabytes(python.parents[1]) - megabytes(packages), 1),
                "tar_mb": round(sum(path.stat().st_size for path in dist.glob("*.tar.gz")) / 1e6, 1),
                "image_mb": round((dist / "nodeagent.raw").stat().st_size / 1e6, 1),
            }
    print(json.dumps({"schema": "nodeagent/bench-origins/v1", "origins": report}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
