# SPDX-License-Identifier: Apache-2.0
"""Clocks that jump: that of the API server in its ``Date`` header, and that of the agent, which counts in a suspend.

No clock of the machine is set: the server's time is shifted by a proxy, ours by the clock that the agent is given.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from integration.cluster.cluster import LEASE_PATH, Cluster
from integration.cluster.other_holders import NMO, Agent, client_at, foreign, lease_of
from integration.cluster.tls_proxy import TlsProxy, bound_token, tls_proxy_of
from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import Refused
from nodeagent.features.cluster.decide.lease import BEHIND
from nodeagent.host.clock import SystemClock

OP = "3f2b"
WHY = "update to rendered-2"
_numbers = itertools.count(1)


class Jumping(SystemClock):
    """Ours, ``ahead`` seconds ahead of the machine's."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.fixture
def clock() -> Jumping:
    return Jumping()


@pytest.fixture
def tls_proxy(cluster: Cluster) -> Iterator[TlsProxy]:
    with tls_proxy_of(cluster, cluster.authority) as made:
        yield made


@pytest.fixture
async def agent(
    cluster: Cluster, node: str, tls_proxy: TlsProxy, clock: Jumping, tmp_path: Path
) -> AsyncIterator[Agent]:
    token = tmp_path / "token"
    token.write_text(bound_token(cluster, f"clocks-{next(_numbers)}"))
    async with client_at(
        cluster, tls_proxy.kubeconfig(token, cluster.authority.certificate), timeout=2.0, clock=clock
    ) as client:
        yield Agent(client, HostIdentity(node, "host-a"), clock=clock)
    cluster.resume()


def suspend(tls_proxy: TlsProxy, clock: Jumping, seconds: float) -> None:
    """The machine slept: all clocks went on."""
    tls_proxy.ahead += seconds
    clock.ahead += seconds


async def refused(what: object, reason: str) -> str:
    with pytest.raises(Refused) as caught:
        await what  # type: ignore[misc]
    assert caught.value.reason == reason
    return caught.value.message


def renewed(cluster: Cluster, node: str) -> float:
    lease = lease_of(cluster, node)
    assert lease is not None
    at = parse_time(lease["spec"]["renewTime"])
    assert at is not None
    return at


@pytest.mark.cluster_failure(
    "a clock jumps, or the host was suspended",
    "measures the server's time again. "
    "Its own lease does not count until the server has answered, and a lease of another holder does not become free "
    "any sooner",
)
async def test_after_a_suspend_the_lease_counts_only_when_the_server_says_so(
    cluster: Cluster, node: str, agent: Agent, tls_proxy: TlsProxy, clock: Jumping
) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    suspend(tls_proxy, clock, 3600)
    cluster.apiserver.pause()
    await refused(agent.lease.check(OP, offline=True), "LeaseExpired")
    cluster.apiserver.resume()
    before = tls_proxy.now()
    await agent.lease.check(OP)
    assert before - 60 < renewed(cluster, node) + BEHIND <= tls_proxy.now(), "renewed, by the server's time of now"
    kept = lease_of(cluster, node)
    assert kept is not None
    assert kept["spec"]["leaseTransitions"] == 0


@pytest.mark.cluster_failure("a clock jumps, or the host was suspended")
async def test_after_a_suspend_another_holder_has_the_node(
    cluster: Cluster, node: str, agent: Agent, tls_proxy: TlsProxy, clock: Jumping
) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    suspend(tls_proxy, clock, 3600)
    foreign(cluster, node, ahead=1800, holder="NodeHealthCheck-nhc-worker")
    assert "NodeHealthCheck" in await refused(agent.lease.check(OP), "LeaseLost")
    assert agent.lost


@pytest.mark.cluster_failure("a clock jumps, or the host was suspended")
async def test_a_server_whose_clock_was_set_forward_frees_nothing(
    cluster: Cluster, node: str, agent: Agent, tls_proxy: TlsProxy
) -> None:
    foreign(cluster, node, duration=3600)
    await refused(agent.lease.acquire("nodeagent", OP, WHY), "LeaseHeld")
    tls_proxy.ahead = 2 * 3600
    message = await refused(agent.lease.acquire("nodeagent", OP, WHY), "LeaseHeld")
    assert "changed not long ago" in message, "by our own clock it was not still for its whole duration"
    assert lease_of(cluster, node)["spec"]["holderIdentity"] == NMO  # type: ignore[index]


@pytest.mark.cluster_failure("a clock jumps, or the host was suspended")
async def test_a_server_whose_clock_was_set_back(
    cluster: Cluster, node: str, agent: Agent, tls_proxy: TlsProxy
) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    tls_proxy.ahead = -3600
    await agent.lease.check(OP, need=3000)
    assert renewed(cluster, node) <= tls_proxy.now(), "what others judge by is not ahead of the server's clock"
    await agent.lease.release(OP)

    foreign(cluster, node, duration=60)  # written before the clock was set
    assert "ahead of the API server" in await refused(agent.lease.acquire("nodeagent", OP, WHY), "LeaseHeld")
    cluster.admin.delete(f"{LEASE_PATH}/node-{node}")
    await agent.lease.acquire("nodeagent", OP, WHY)
