# SPDX-License-Identifier: Apache-2.0
"""How much staging an update of the OS costs etcd on the same disk: unfenced, as others do it, and with our fence.

    python -m integration.bench.fence [--filesystem xfs|ext4] [--rounds N] [--variants A,B,M,C,C-plain]
    make bench-fence

One boot of a machine whose disk is slowed to what a small cloud disk can do. Prints one JSON object: each phase, each
variant over all rounds, what makes the run inconclusive, and which aims were reached. With --out there is a picture
beside it. ``--fast`` leaves the disk as fast as it is, where the fence must stay out of the way; ``--innocent`` has a
third program on the disk. ``variants.py`` has the cases beyond A, B, M, C and C-plain.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from integration.bench.fence import report, rounds
from integration.bench.fence.fixtures import booted, say
from integration.bench.fence.picture import picture
from integration.bench.fence.publish import publish
from integration.bench.fence.rounds import Phase
from integration.bench.fence.stats import Entry
from integration.bench.fence.table import table
from integration.bench.fence.testbed import PUTS, RATE, Disk, Testbed
from integration.bench.fence.variants import FENCED, HEADLINE, PLAIN, VARIANTS
from integration.hosts.errors import HostRingError, Unavailable

SCHEMA = "nodeagent/bench-fence/v2"


def main() -> int:
    args = _arguments()
    for stop in (signal.SIGINT, signal.SIGTERM):  # also where a shell started this in the background
        signal.signal(stop, signal.default_int_handler)
    try:
        result, entries = measure(args)
    except Unavailable as error:
        say(f"bench-fence: cannot run here: {error}")
        return 2
    except HostRingError as error:
        say(f"bench-fence: FAILED: {error}")
        return 1
    print(json.dumps(result, indent=2))
    titles = {variant.name: variant.title for variant in VARIANTS.values()}
    say(table(result["variants"], titles))
    for line in (*result["doubts"], *(f"{name}: {aims}" for name, aims in result["aims"].items())):
        say(line)
    drawn = picture(_title(result), result["phases"], entries, titles)
    usual = f"fence-{args.filesystem}{'-fast' if args.fast else ''}{'-innocent' if args.innocent else ''}"
    name = args.name or usual
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
        (args.out / f"{name}.svg").write_text(drawn)
    if args.docs:
        publish(name, result, drawn, titles)
    return 0


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], list[Entry]]:
    variants = [VARIANTS[name] for name in args.variants.split(",")]
    phases: list[dict[str, Any]] = []
    disk = None if args.fast else Disk()
    with booted(args.filesystem, args.rounds) as (vm, source):
        testbed = Testbed(vm, source, disk, innocent=args.innocent, trace=args.trace)
        testbed.make()

        def heard(phase: Phase) -> bool:
            phases.append(report.of_phase(phase, testbed.entries(), RATE, testbed.others()))
            say(_line(phases[-1]))
            return report.quiet(phase.noise)

        with contextlib.suppress(KeyboardInterrupt):  # what was measured until then is reported
            rounds.run(testbed, source, variants, args.rounds, args.most, args.idle, heard)
        entries = testbed.entries()
        if args.trace:
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / "waits.jsonl").write_text(testbed.waits())
        kernel = vm.run(["uname", "-r"]).stdout.strip()
    counted = report.counted(phases)
    by_variant = report.of_variants(counted)
    doubts = report.doubts(counted, by_variant)
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "filesystem": args.filesystem,
        "kernel": kernel,
        "disk": None if disk is None else dataclasses.asdict(disk),
        "load": {"appends_per_s": RATE, "puts_per_s": PUTS, "files": source.files, "bytes": source.size},
        "processors": os.cpu_count(),
        "verdict": "inconclusive" if doubts else "conclusive",
        "doubts": doubts,
        "aims": {
            fence.name: report.aims(args.filesystem, by_variant, fence.name)
            for fence in (FENCED, PLAIN)
            if fence.name in by_variant and not doubts and not args.fast
        },
        "variants": by_variant,
        "phases": counted,
        "disturbed": [phase for phase in phases if phase not in counted],
    }
    return result, entries


def _line(phase: dict[str, Any]) -> str:
    times = " ".join(
        f"{name} {phase[f'{key}_ms']:g}" for name, key in (("p50", "p50"), ("p99", "p99"), ("max", "worst"))
    )
    staged = ""
    if phase["staging_s"] is not None:
        after = phase["after"]
        staged = f", staged in {phase['staging_s']:.0f} s; after: max {after['worst_ms']:g}, harm {after['harm_s']:g} s"
    noise = " ".join(f"{name} {value:g}" for name, value in phase["noise"].items())
    return f"round {phase['round']} {phase['variant']:>6}: ms: {times}; harm {phase['harm_s']:g} s{staged} ({noise})"


def _title(result: dict[str, Any]) -> str:
    disk = result["disk"]
    speed = "unlimited" if disk is None else f"{disk['iops']} IOPS, {disk['bytes_per_second'] / 1e6:g} MB/s"
    return f"Staging {result['load']['bytes'] / 1e6:.0f} MB beside etcd on {result['filesystem']}, {speed}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-fence", description="what staging costs etcd on the same disk")
    parser.add_argument("--filesystem", choices=("xfs", "ext4"), default="xfs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--most", type=int, default=0, help="rounds at most, until as many as asked for had the machine for themselves"
    )
    parser.add_argument("--variants", default=",".join(variant.name for variant in HEADLINE), help=", ".join(VARIANTS))
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of an idle phase")
    parser.add_argument("--fast", action="store_true", help="a disk that is not slowed")
    parser.add_argument("--innocent", action="store_true", help="with a third program on the disk")
    parser.add_argument("--name", help="what the result is called, in the folder and in the docs (fence-xfs, ...)")
    parser.add_argument("--out", type=Path, help="a folder for the JSON and the picture")
    parser.add_argument(
        "--trace", action="store_true", help="note where all tasks wait while an append is late (needs --out)"
    )
    parser.add_argument("--docs", action="store_true", help="write the result into docs/research/fence.md")
    args = parser.parse_args()
    if args.trace and args.out is None:
        parser.error("--trace needs --out")
    return args


if __name__ == "__main__":
    sys.exit(main())
