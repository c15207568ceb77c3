# SPDX-License-Identifier: Apache-2.0
"""A network between nodes that outlives their reboots: a namespace for each, joined by a bridge in another one.

Nothing of it is in the machine's own network namespace. What a killed run leaves behind is removed by the next one.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from integration.hosts import process

PREFIX: Final = "nodeagent-"
NAMESPACES: Final = Path("/run/netns")
TIMEOUT: Final = 20.0
CLONE_NEWNET: Final = 0x40000000  # linux/sched.h


class NodeNetwork:
    """Node i has the address 10.79.0.i, and its pods have those of 10.78.i.0/24. The hub has 10.79.0.254, and reaches
    nodes and pods."""

    def __init__(self, nodes: tuple[str, ...]) -> None:
        self.nodes = nodes
        self._name = f"{PREFIX}{os.getpid()}"

    @property
    def hub(self) -> str:
        return f"{self._name}-hub"

    def namespace(self, node: str) -> str:
        return f"{self._name}-{node}"

    def address(self, node: str) -> str:
        return f"10.79.0.{self.nodes.index(node) + 1}"

    def pods(self, node: str) -> str:
        return f"10.78.{self.nodes.index(node) + 1}.0/24"

    def __enter__(self) -> Self:
        _sweep()
        _ip("netns", "add", self.hub)
        _ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.hub, "addr", "add", "10.79.0.254/24", "dev", "bridge")
        _ip("-n", self.hub, "link", "set", "bridge", "up")
        for number, node in enumerate(self.nodes, 1):
            self._join(node, f"node{number}")
        return self

    def _join(self, node: str, port: str) -> None:
        namespace = self.namespace(node)
        _ip("netns", "add", namespace)
        peer = ("type", "veth", "peer", "name", port, "netns", self.hub)
        _ip("link", "add", "eth0", "netns", namespace, *peer)
        _ip("-n", self.hub, "link", "set", port, "master", "bridge", "up")
        _ip("-n", namespace, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", namespace, "link", "set", device, "up")
        _ip("-n", namespace, "route", "add", "default", "via", "10.79.0.254")
        _ip("-n", self.hub, "route", "add", self.pods(node), "via", self.address(node))
        # The host may not write below /proc/sys, and the plugin of the bridge accepts the value that is there.
        forward = "/proc/sys/net/ipv4/ip_forward"
        _ip("netns", "exec", namespace, "sh", "-c", f"echo 1 >{forward}")

    def __exit__(self, *_: object) -> None:
        for name in (*map(self.namespace, self.nodes), self.hub):
            process.run(["ip", "netns", "del", name], timeout=TIMEOUT, check=False)

    def thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        """A thread, not started, whose sockets are in the hub."""

        def run() -> None:
            with (NAMESPACES / self.hub).open() as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            work()

        return threading.Thread(target=run, name=name, daemon=True)


def _ip(*argv: str) -> None:
    process.run(["ip", *argv], timeout=TIMEOUT)


def _sweep() -> None:
    """Remove the namespaces of processes that are gone."""
    for path in NAMESPACES.glob(f"{PREFIX}*"):
        owner = path.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            process.run(["ip", "netns", "del", path.name], timeout=TIMEOUT, check=False)
