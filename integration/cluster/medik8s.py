# SPDX-License-Identifier: Apache-2.0
"""Another holder of the node lease: the lease library of medik8s itself, as its operators call it.

These tests see what the node-maintenance- and the node-healthcheck-operator do with what we write, not what we think
of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from dataclasses import dataclass
from typing import Any, Final

from integration.cluster import programs
from integration.cluster.api import Object
from integration.cluster.cluster import ADMINS, LEASE_PATH, LEASES, Cluster
from integration.hosts.container.conftest import required

# Seconds for one call, which takes less than one on a machine that does nothing else.
DEADLINE: Final = 300.0


class AlreadyHeld(Exception):
    """The message of the library."""


class Conflict(Exception):
    """Another client was faster."""


@dataclass
class Manager:
    """``later`` is how far ahead its wall clock is, in seconds: hours may pass for it in a moment."""

    cluster: Cluster
    identity: str
    later: float = 0.0

    async def request(self, node: str, seconds: int) -> Object:
        """Raises ``AlreadyHeld``, ``Conflict``."""
        found: Object = await self._call("request", node, f"--duration={seconds}s")
        return found

    async def invalidate(self, node: str) -> None:
        """Raises ``AlreadyHeld``."""
        await self._call("invalidate", node)

    async def is_kept_away(self, node: str) -> str:
        """What the library says if it may not take the node now; "" if it would take it. Writes nothing."""
        try:
            await self._call("request", node, "--dry-run")
        except AlreadyHeld as error:
            return str(error)
        return ""

    def find(self, node: str) -> Object | None:
        return self.cluster.admin.find(f"{LEASE_PATH}/node-{node}")

    async def _call(self, what: str, node: str, *options: str) -> Any:
        program = required(lambda: programs.find_peer("medik8s-lease"), "there is no lease library of medik8s here")
        kubeconfig = self.cluster.kubeconfig(f"medik8s-{self.identity}", [ADMINS])
        about = [f"--kubeconfig={kubeconfig}", f"--holder={self.identity}", f"--ahead={self.later}s"]
        done = await asyncio.to_thread(
            subprocess.run,
            [str(program), *about, *options, what, node],
            stdout=subprocess.PIPE,
            timeout=DEADLINE,
            check=True,
            env={**os.environ, "LEASE_NAMESPACE": LEASES},
        )
        answer = json.loads(done.stdout)
        if answer.get("held"):
            raise AlreadyHeld(answer["error"])
        if answer.get("conflict"):
            raise Conflict(answer["error"])
        assert "error" not in answer, answer
        return answer["lease"]


__all__ = ["AlreadyHeld", "Conflict", "Manager"]
