# SPDX-License-Identifier: Apache-2.0
"""nodeagent's lease as the daemon would have it, many times in one process, and the others that it meets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psutil

from integration.cluster.api import ApiError, Object
from integration.cluster.cluster import ADMINS, LEASE_PATH, LEASES, SLOTS, Cluster
from nodeagent import typed
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.features.cluster.decide.lease import LeaseToken
from nodeagent.features.cluster.lease import KubeLease
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.update.ports.host import Clock

NMO: Final = "node-maintenance"


@dataclass
class Memory:
    """The token as the store would keep it: through the same form, so that nothing but data survives."""

    data: dict[str, Any] | None = None

    async def load(self) -> LeaseToken | None:
        return None if self.data is None else typed.convert(self.data, LeaseToken)

    async def save(self, token: LeaseToken | None) -> None:
        self.data = None if token is None else asdict(token)


@dataclass
class Agent:
    """One agent of `node`. `restarted` is the next process on the same host."""

    client: KubeClient
    host: HostIdentity
    memory: Memory = field(default_factory=Memory)
    clock: Clock = field(default_factory=SystemClock)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lease = KubeLease(self.client, self.host, self.memory, self.clock, **self.options)

    @property
    def lost(self) -> bool:
        return bool(self.memory.data and self.memory.data["lost"])

    def restarted(self) -> Agent:
        return Agent(self.client, self.host, self.memory, self.clock, self.options)


def client_of(cluster: Cluster, user: str = "nodeagent", *, admin: bool = True, timeout: float = 5.0) -> KubeClient:
    kubeconfig = cluster.kubeconfig(user, [ADMINS] if admin else [])
    return client_at(cluster, kubeconfig, timeout=timeout)


def client_at(cluster: Cluster, kubeconfig: Path, *, timeout: float = 5.0, clock: Clock | None = None) -> KubeClient:
    private = cluster.directory / "private"
    private.mkdir(mode=0o700, exist_ok=True)
    return KubeClient(ClusterAccess(str(kubeconfig), private=str(private)), clock or SystemClock(), timeout=timeout)


async def goodbye(cluster: Cluster) -> None:
    """Resume the servers, and wait until this process has no connection to the API server any more. One that was given
    up takes up to 30 s to end (asyncio's TLS), and ends at once where the server answers."""
    cluster.resume()
    process = psutil.Process()
    with suppress(TimeoutError):
        async with asyncio.timeout(40):
            while any(cluster.port in each.raddr[1:] for each in process.net_connections("tcp")):
                await asyncio.sleep(0.05)


def lease_of(cluster: Cluster, node: str) -> Object | None:
    return cluster.admin.find(f"{LEASE_PATH}/node-{node}")


def foreign(
    cluster: Cluster, node: str, *, duration: int | None = 3600, ahead: float = 0.0, holder: str = NMO
) -> Object:
    """Another program takes the lease, free or not, as one whose clock is `ahead` seconds ahead would write it."""
    now = (datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=ahead)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: TID251
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration, "acquireTime": now, "renewTime": now}
    before = lease_of(cluster, node)
    if before is None:
        body: Object = {"metadata": {"name": f"node-{node}"}, "spec": {**spec, "leaseTransitions": 0}}
        return cluster.admin.create(LEASE_PATH, body)
    more = {"leaseTransitions": before["spec"]["leaseTransitions"] + 1}
    return cluster.admin.patch(f"{LEASE_PATH}/node-{node}", {"spec": {**spec, **more}})


def written(cluster: Cluster) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the audit log has of the leases: their names, and every write that the API server accepted, oldest first.
    A request without an answer does not count: its sender does not know the result, and repeats it."""
    for event in cluster.audit():
        what = event.get("objectRef") or {}
        if what.get("namespace") not in (LEASES, SLOTS) or event["verb"] not in ("create", "update", "patch", "delete"):
            continue
        answer = event.get("responseObject") or {}
        if event["responseStatus"]["code"] < 300 and (answer or event["verb"] == "delete"):
            yield what.get("name") or answer["metadata"]["name"], event


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def taken_too_early(cluster: Cluster, *nodes: str) -> list[str]:
    """Every acquisition of a lease that another holder held, and every time that was written
    ahead of the server's clock. The API server's own log says so, not the agents.

    A busy server logs the answer to a delete after that to the create which follows it. A create that it accepted
    proves that there was no lease, and a delete that it received before deletes none that was created since."""
    found = []
    held = {f"node-{node}": ("", 0.0) for node in nodes}
    created = dict.fromkeys(held, 0.0)
    for name, event in written(cluster):
        if name not in held:
            continue
        at, (holder, until) = seconds(event["stageTimestamp"]), held[name]
        if event["verb"] == "delete":
            if seconds(event["requestReceivedTimestamp"]) >= created[name]:
                held[name] = ("", 0.0)
            continue
        if event["verb"] == "create":
            holder, created[name] = "", at
        spec = event["responseObject"]["spec"]
        now = spec["holderIdentity"]
        if holder not in ("", now) and at <= until:
            found.append(f"{now} took {name} from {holder} {until - at:.3f} s too early")
        if seconds(spec["renewTime"]) > at:
            found.append(f"{now} wrote {spec['renewTime']} at {event['stageTimestamp']}")
        held[name] = (now, seconds(spec["renewTime"]) + spec["leaseDurationSeconds"])
    return found


__all__ = ["NMO", "Agent", "ApiError", "Memory", "client_at", "client_of", "foreign", "lease_of", "taken_too_early"]
