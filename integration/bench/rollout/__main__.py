# SPDX-License-Identifier: Apache-2.0
"""Takes a kubelet change, a new image of etcd and a rolling reboot through three nodes, and prints JSON.

    python -m integration.bench.rollout

One client puts a key into etcd and one queries a service with a disruption budget, each twenty times a second, with a
second for an attempt. `violations` is empty if never more than one member of etcd was away, no leader was stopped, the
budget was kept and one node was disrupted at a time. Needs what the tests of `integration/hosts/node` need.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from integration.demo import Story, package_of
from integration.hosts.container import container_host
from integration.hosts.container.package import installed_image
from integration.hosts.errors import Unavailable
from integration.hosts.node.fleet import Fleet
from integration.hosts.node.node_image import node_image
from integration.hosts.node.node_programs import ETCD_NEXT, NodePrograms
from integration.hosts.node.rollout import roll, violations
from integration.hosts.node.standalone import control_plane

CHANGES: Final[dict[str, dict[str, Any]]] = {
    "kubelet": {"pods": 42},
    "etcd": {"pods": 42, "image": ETCD_NEXT},
    "reboot": {"pods": 42, "image": ETCD_NEXT, "release": "2"},
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def running() -> Iterator[Fleet]:
    """A fleet at its first config. Raises Unavailable where none can be booted."""
    programs = NodePrograms.find()
    with contextlib.redirect_stdout(sys.stderr):
        tarball = package_of(Story())
    image = installed_image(node_image(say), tarball)
    container_host.sweep()
    with contextlib.ExitStack() as stack:
        stack.callback(programs.close)
        stack.callback(image.close)
        cluster, inside = stack.enter_context(control_plane(programs))
        fleet = stack.enter_context(Fleet(cluster, image, programs, inside))
        fleet.wait_up()
        fleet.deploy()
        roll(fleet, "first")
        yield fleet


def main() -> None:
    result: dict[str, Any] = {"processors": os.cpu_count(), "load": os.getloadavg()[0]}
    try:
        with running() as fleet:
            for name, changes in CHANGES.items():
                say(f"{name}: through {len(fleet.hosts)} nodes")
                seen = roll(fleet, name, **changes)
                result[name] = {**asdict(seen), "violations": violations(seen)}
    except Unavailable as error:
        raise SystemExit(f"no fleet: {error}") from None
    result["good"] = not any(result[name]["violations"] for name in CHANGES)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
