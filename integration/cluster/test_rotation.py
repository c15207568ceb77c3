# SPDX-License-Identifier: Apache-2.0
"""Certificates, authorities and tokens that are rotated or revoked in the middle of an operation."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.other_holders import Agent, client_at, lease_of
from integration.cluster.pki import Authority
from integration.cluster.tls_proxy import TlsProxy, bound_token, revoke, tls_proxy_of
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import Unreachable

OP = "3f2b"
WHY = "update to rendered-2"
_numbers = itertools.count(1)


@dataclass
class Scene:
    """An agent whose credentials are files: ``ca`` is what it trusts, ``token`` what it shows (the Secret's name)."""

    cluster: Cluster
    tls_proxy: TlsProxy
    directory: Path
    agent: Agent
    secret: str

    @property
    def ca(self) -> Path:
        return self.directory / "ca.crt"

    def trust(self, *authorities: Authority) -> None:
        """As a config map is updated, or a file by its rotation: another one takes the place."""
        replace(self.ca, "".join(each.certificate.read_text() for each in authorities))

    def show(self, token: str) -> None:
        replace(self.directory / "token", token)


def replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


@pytest.fixture
def tls_proxy(cluster: Cluster) -> Iterator[TlsProxy]:
    with tls_proxy_of(cluster, cluster.authority) as made:
        yield made


@pytest.fixture
async def scene(cluster: Cluster, node: str, tls_proxy: TlsProxy, tmp_path: Path) -> AsyncIterator[Scene]:
    secret = f"rotation-{next(_numbers)}"
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text(bound_token(cluster, secret))
    ca.write_bytes(cluster.authority.certificate.read_bytes())
    async with client_at(cluster, tls_proxy.kubeconfig(token, ca)) as client:
        yield Scene(cluster, tls_proxy, tmp_path, Agent(client, HostIdentity(node, "host-a")), secret)


async def unreachable(scene: Scene) -> Unreachable:
    with pytest.raises(Unreachable) as caught:
        await scene.agent.lease.check(OP)
    assert not scene.agent.lost
    return caught.value


@pytest.mark.cluster_failure("credentials are rotated, revoked or expire")
async def test_a_new_certificate_of_the_server(scene: Scene) -> None:
    await scene.agent.lease.acquire("nodeagent", OP, WHY)
    scene.tls_proxy.use(scene.cluster.authority)
    await scene.agent.lease.check(OP)


@pytest.mark.cluster_failure("credentials are rotated, revoked or expire")
async def test_a_new_authority_is_trusted_from_the_next_connection_on(scene: Scene) -> None:
    await scene.agent.lease.acquire("nodeagent", OP, WHY)
    new = Authority(scene.directory / "new", "new-ca")
    scene.tls_proxy.use(new)
    assert "certificate" in (await unreachable(scene)).message.lower()
    scene.trust(scene.cluster.authority, new)
    await scene.agent.lease.check(OP)
    # And the old one goes for good.
    scene.trust(new)
    scene.tls_proxy.use(new)
    await scene.agent.lease.check(OP, need=3000)
    kept = lease_of(scene.cluster, scene.agent.host.node)
    assert kept is not None
    assert kept["spec"]["leaseTransitions"] == 0
    await scene.agent.lease.release(OP)


async def test_a_server_with_a_foreign_certificate_is_not_trusted(scene: Scene) -> None:
    await scene.agent.lease.acquire("nodeagent", OP, WHY)
    scene.tls_proxy.use(Authority(scene.directory / "mallory", "mallory"))
    for _ in range(2):
        await unreachable(scene)
    scene.tls_proxy.use(scene.cluster.authority)
    await scene.agent.lease.check(OP)


@pytest.mark.cluster_failure(
    "credentials are rotated, revoked or expire",
    "reads them again; while they are refused, waits as if the API server were down; names a missing right",
)
async def test_a_token_that_is_revoked_in_the_middle(scene: Scene) -> None:
    await scene.agent.lease.acquire("nodeagent", OP, WHY)
    revoke(scene.cluster, scene.secret)
    await wait_unauthorized(scene)
    # As without an API server: what was written lasts, so a step that cannot wait goes by the time that is left.
    await scene.agent.lease.check(OP, need=60, offline=True)
    scene.show(bound_token(scene.cluster, f"{scene.secret}-new"))
    await scene.agent.lease.check(OP, need=3000)
    await scene.agent.lease.release(OP)
    assert lease_of(scene.cluster, scene.agent.host.node) is None


async def wait_unauthorized(scene: Scene) -> None:
    """An API server believes a token for ten seconds after it has looked at it."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            await scene.agent.lease.check(OP)
        except Unreachable as error:
            assert error.reason == "KubeUnauthorized"
            return
        await asyncio.sleep(0.5)
    raise AssertionError("the token is still good")
