# SPDX-License-Identifier: Apache-2.0
"""What a fleet costs its API server while it waits, while it is updated and at rest. Prints one JSON object.

    python -m integration.bench.fleet [--server 30,60,120] [--seconds 900]

Requests are counted, so the figures do not depend on the machine; exponents are those of the growth with the number of
nodes, over three sizes of one run. ``good``: the requests of a roll-out with one slot for 50 nodes, and the requests
per second at rest and waiting, grow with an exponent of at most 1.1. ``--server`` adds roll-outs of so many hosts in
memory with a real API server and etcd (``make cluster-tools``), with one slot for ten: a minute or two for each.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

from integration.bench.fleet import course, server, waiting_line
from integration.bench.fleet.virtual import exponent, run
from integration.hosts.errors import Unavailable

SIZES: Final = [100, 200, 400]
# Seconds of an update: short ones give the nodes that wait more to do for each update of another.
HOLD: Final = 60.0
# As in a fleet: drain, reboot, and until it is ready.
LONG_HOLD: Final = 600.0
MOST: Final = 1.1


def grown(found: list[dict[str, Any]], key: str) -> float:
    return exponent([each["nodes"] for each in found], [each[key] for each in found])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--server", default="", metavar="SIZES", help="roll-outs with a real API server, as in 30,60,120"
    )
    parser.add_argument("--seconds", type=float, default=900.0, help="virtual time of the queues of thousands")
    options = parser.parse_args()
    rollouts = [run(course.roll_out(nodes, nodes // 50, HOLD)) for nodes in SIZES]
    rest = [run(course.at_rest(nodes, 600.0)) for nodes in SIZES]
    waiting = [waiting_line.queue(nodes, max(1, nodes // 50), LONG_HOLD, 3600.0) for nodes in SIZES]
    exponents = {
        "rollout_requests": grown(rollouts, "requests"),
        "requests_per_second_at_rest": grown(rest, "requests_per_second"),
        "requests_per_second_waiting": grown(waiting, "requests_per_second"),
    }
    found: dict[str, Any] = {
        "bench": "fleet",
        "exponents": exponents,
        "rollout": rollouts,
        "rest": rest,
        "waiting": waiting,
        "thousands": [
            waiting_line.queue(5_000, 50, LONG_HOLD, options.seconds),
            waiting_line.queue(50_000, 500, LONG_HOLD, options.seconds * 0.8),
        ],
        "good": all(each <= MOST for each in exponents.values()),
    }
    if options.server:
        try:
            found["server"] = server.measured([int(size) for size in options.server.split(",")])
        except Unavailable as error:
            print(f"fleet: no API server: {error}", file=sys.stderr)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
