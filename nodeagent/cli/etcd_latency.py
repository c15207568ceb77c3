"""`nodeagent etcd latency`: what etcd's disk took before, during and after an update, from pages of its metrics.

Pages are kept with ``--save`` at the moments that matter and compared later, on any machine; or two are taken now, some
seconds apart. What a histogram cannot say is not said: see ``core.etcd.latency``.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodeagent.cli._io import emit
from nodeagent.cli._render import table
from nodeagent.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodeagent.core.etcd.histogram import Exceedances, Quantile
    from nodeagent.core.etcd.latency import Figures, Scrape

__all__ = ["add_arguments", "run"]

SCHEMA = "nodeagent/etcd-latency/v1"
_MS = 1000
_TAKEN = re.compile(r"# taken at (\S+)\n")
"""Our first line of a page that was kept, a comment for everybody else: RFC 3339."""


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "p99 of wal_fsync and backend_commit before, during and after an update"
    latency = commands.add_parser("latency", help=about)
    for when in ("before", "during", "after"):
        pages = f"pages of metrics kept {when} the update, two or more, oldest first"
        latency.add_argument(f"--{when}", nargs="+", default=[], metavar="FILE", help=pages)
    latency.add_argument("--save", metavar="FILE", help="save a metrics snapshot and exit")
    latency.add_argument(
        "--seconds", type=float, default=30.0, metavar="N", help="without files: how long to watch (default: 30)"
    )
    latency.add_argument("--url", default="", metavar="URL", help="URL of the metrics (default: detected)")
    latency.add_argument("--ca", default="", metavar="FILE", help="authority of its certificate (PEM)")
    latency.add_argument("--cert", default="", metavar="FILE", help="client certificate (PEM)")
    latency.add_argument("--key", default="", metavar="FILE", help="its key (PEM)")
    latency.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")


def run(args: argparse.Namespace) -> int:
    from nodeagent.core.etcd.latency import When, figures

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
            reason="NoMetrics",
            hint="nodeagent etcd latency --save FILE keeps one; etcd serves them at /metrics",
        )
    if args.json:
        emit({"schema": SCHEMA, "figures": [_as_dict(each) for each in found]})
    else:
        _describe(found)
    return 0


async def _page(args: argparse.Namespace) -> str:
    """With the time at which it was taken."""
    from nodeagent.core.etcd.histogram import parse
    from nodeagent.core.etcd.latency import HISTOGRAMS
    from nodeagent.fence.sensors.protected import Metrics, etcd_metrics
    from nodeagent.host.clock import SystemClock
    from nodeagent.host.etcd.detect import detect
    from nodeagent.host.etcd.options import Options

    found = None if args.url else await asyncio.to_thread(detect)
    options = Options() if found is None else found.options
    scrape = await etcd_metrics(Metrics(args.url, args.ca, args.cert, args.key), options)
    text = await scrape()
    parse(text, HISTOGRAMS.values())  # what makes no sense is worth no file
    return f"# taken at {SystemClock().now()}\n{text}"


async def _watched(args: argparse.Namespace) -> list[Scrape]:
    first = await _page(args)
    await asyncio.sleep(args.seconds)
    return [_scrape(first, "the page"), _scrape(await _page(args), "the page")]


def _kept(name: str) -> Scrape:
    from nodeagent.cli._io import read

    return _scrape(read(name).decode(errors="replace"), name)


def _scrape(text: str, name: str) -> Scrape:
    from nodeagent.core.etcd.histogram import parse
    from nodeagent.core.etcd.latency import HISTOGRAMS, Scrape

    taken = _TAKEN.match(text)
    try:
        # A page that somebody else kept says nothing of its time; that of the file is near.
        at = datetime.fromisoformat(taken[1]).timestamp() if taken else Path(name).stat().st_mtime
    except (ValueError, OSError) as error:
        raise InvalidInput(f"{name}: when it was taken is not known", reason="CannotRead") from error
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
        "restarts": each.resets,
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
    if restarts := max(each.resets for each in found):
        print(f"etcd began to count anew {restarts} times meanwhile; what came right before that is lost")


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
