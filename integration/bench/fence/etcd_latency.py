# SPDX-License-Identifier: Apache-2.0
"""Compare the latency of etcd's disk before, during and after an update, from pages of its metrics.

``--save`` stores a page at each moment of interest. The pages are compared later, on any machine. Without files, two
pages are read now, some seconds apart. Each figure states its number of samples; a quantile without enough samples is
left out.

    python -m integration.bench.fence.etcd_latency --save before-1
    python -m integration.bench.fence.etcd_latency --before before-1 before-2 --during before-2 during-1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

from integration.bench.fence.buckets import Exceedances, Quantile, bounded_quantile, exceedances
from nodeagent.cli._render import table
from nodeagent.errors import AgentError, InvalidInput
from nodeagent.features.fence.decide.histogram import BACKEND_COMMIT, WAL_FSYNC, Histogram, increase, parse, restarted
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.features.fence.sensors.sensors import etcd_metrics
from nodeagent.host.clock import SystemClock
from nodeagent.host.etcd.detect import detect
from nodeagent.host.etcd.options import Options
from nodeagent.reasons import Reason

SCHEMA = "nodeagent/bench-etcd-latency/v1"
HISTOGRAMS: Mapping[str, str] = {"wal_fsync": WAL_FSYNC, "backend_commit": BACKEND_COMMIT}
BOUNDS = (0.008, 0.016, 0.128, 1.024)
"""Seconds. All are bounds of etcd's buckets, so that counts above them are exact. The first two are around etcd's
advice for the WAL (10 ms), the third is above its warning (100 ms), the last about its election timeout (1 s)."""
_Q = 0.99
_MS = 1000
_TAKEN = re.compile(r"# taken at (\S+)\n")
"""The first line of a saved page, a comment for other readers: RFC 3339."""


class When(StrEnum):
    BEFORE = "before"
    DURING = "during"
    AFTER = "after"
    NOW = "now"
    """Without any update."""


@dataclass(frozen=True, slots=True)
class Scrape:
    at: float
    """Seconds on a monotonic clock."""
    histograms: Mapping[str, Histogram]


@dataclass(frozen=True, slots=True)
class Figures:
    """One histogram (``wal_fsync``, ``backend_commit``) in one span of time."""

    name: str
    when: When
    seconds: float
    """Length of the span."""
    p99: Quantile
    above: tuple[tuple[float, Exceedances], ...]
    restarts: int


def figures(scrapes: Mapping[When, Sequence[Scrape]]) -> tuple[Figures, ...]:
    """Return figures by histogram, then by time. A span with fewer than two scrapes of the histogram is left out.

    If the last scrape of one span is the first one of the next, no sample between them is lost.
    """
    found = []
    for name, metric in HISTOGRAMS.items():
        for when in When:
            have = [scrape for scrape in scrapes.get(when, ()) if metric in scrape.histograms]
            histograms = [scrape.histograms[metric] for scrape in have]
            over = increase(histograms)
            if over is not None:
                exceeded = tuple((bound, exceedances(bound, over)) for bound in BOUNDS)
                span = have[-1].at - have[0].at
                restarts = sum(restarted(earlier, later) for earlier, later in pairwise(histograms))
                found.append(Figures(name, when, span, bounded_quantile(_Q, over), exceeded, restarts))
    return tuple(found)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for when in ("before", "during", "after"):
        pages = f"pages of metrics saved {when} the update, two or more, oldest first"
        parser.add_argument(f"--{when}", nargs="+", default=[], metavar="FILE", help=pages)
    parser.add_argument("--save", metavar="FILE", help="save a metrics snapshot and exit")
    parser.add_argument(
        "--seconds", type=float, default=30.0, metavar="N", help="without files: length of the span (default: 30)"
    )
    parser.add_argument("--url", default="", metavar="URL", help="URL of the metrics (default: detected)")
    parser.add_argument("--ca", default="", metavar="FILE", help="authority of its certificate (PEM)")
    parser.add_argument("--cert", default="", metavar="FILE", help="client certificate (PEM)")
    parser.add_argument("--key", default="", metavar="FILE", help="its key (PEM)")
    parser.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return _run(arguments().parse_args(argv))
    except AgentError as error:
        print(f"{error.reason}: {error.message}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(error, file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    if args.save:
        Path(args.save).write_text(asyncio.run(_page(args)))
        return 0
    files = {When.BEFORE: args.before, When.DURING: args.during, When.AFTER: args.after}
    if any(files.values()):
        found = figures({when: [_kept(name) for name in names] for when, names in files.items()})
    else:
        found = figures({When.NOW: asyncio.run(_watched(args))})
    if not found:
        raise InvalidInput(
            "two pages of one span are needed, with etcd's histograms in them",
            reason=FenceReason.NO_METRICS,
        )
    if args.json:
        print(json.dumps({"schema": SCHEMA, "figures": [_as_dict(each) for each in found]}))
    else:
        _describe(found)
    return 0


async def _page(args: argparse.Namespace) -> str:
    """Return a page of metrics, after a line with its time."""
    found = None if args.url else await asyncio.to_thread(detect)
    options = Options() if found is None else found.options
    own = {"trusted-ca-file": args.ca, "cert-file": args.cert, "key-file": args.key}
    own["listen-metrics-urls"] = args.url.removesuffix("/metrics")
    scrape = await etcd_metrics(Options({**options.flags, **{name: value for name, value in own.items() if value}}))
    text = await scrape()
    parse(text, HISTOGRAMS.values())
    return f"# taken at {SystemClock().now()}\n{text}"


async def _watched(args: argparse.Namespace) -> list[Scrape]:
    first = await _page(args)
    await asyncio.sleep(args.seconds)
    return [_scrape(first, "the page"), _scrape(await _page(args), "the page")]


def _kept(name: str) -> Scrape:
    return _scrape(Path(name).read_text(errors="replace"), name)


def _scrape(text: str, name: str) -> Scrape:
    taken = _TAKEN.match(text)
    try:
        # A page of another program has no time; that of the file is near.
        at = datetime.fromisoformat(taken[1]).timestamp() if taken else Path(name).stat().st_mtime
    except (ValueError, OSError) as error:
        raise InvalidInput(f"{name}: its time is not known", reason=Reason.CANNOT_READ) from error
    return Scrape(at, parse(text, HISTOGRAMS.values()))


def _as_dict(each: Figures) -> dict[str, Any]:
    p99 = each.p99
    known = p99.standing != "too-few"
    return {
        "name": each.name,
        "when": str(each.when),
        "seconds": round(each.seconds, 3),
        "samples": p99.samples,
        "p99": {
            "standing": str(p99.standing),
            "ms": _ms(p99.seconds) if p99.standing == "estimate" else None,
            "over_ms": _ms(p99.low) if known else None,
            "up_to_ms": _ms(p99.high) if p99.standing == "estimate" else None,
        },
        "above": [{"ms": _ms(bound), "least": over.least, "most": over.most} for bound, over in each.above],
        "restarts": each.restarts,
    }


def _describe(found: Sequence[Figures]) -> None:
    bounds = [f">{_ms(bound):g} ms" for bound, _ in found[0].above]
    rows = [
        [
            each.name,
            str(each.when),
            f"{each.seconds:.0f} s",
            f"{each.p99.samples:.0f}",
            _p99(each.p99),
            *(_over(over) for _, over in each.above),
        ]
        for each in found
    ]
    table(["", "WHEN", "FOR", "SAMPLES", "P99", *bounds], rows, right=[2, 3, *range(5, 5 + len(bounds))])
    if restarts := max(each.restarts for each in found):
        print(f"etcd restarted {restarts} times; the samples right before that are lost")


def _p99(p99: Quantile) -> str:
    match str(p99.standing):
        case "too-few":
            return "too few samples"
        case "beyond":
            return f"over {_ms(p99.low):g} ms"
        case _:
            return f"{_ms(p99.seconds):.1f} ms ({_ms(p99.low):g} to {_ms(p99.high):g})"


def _over(over: Exceedances) -> str:
    return f"{over.least:.0f}" if over.least == over.most else f"{over.least:.0f} to {over.most:.0f}"


def _ms(seconds: float) -> float:
    return round(seconds * _MS, 3)


if __name__ == "__main__":
    sys.exit(main())
