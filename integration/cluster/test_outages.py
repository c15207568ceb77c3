# SPDX-License-Identifier: Apache-2.0
"""Answers that say nothing about the request: of a gateway in front of a real API server, and of the server itself.

Odd answers, a busy server and a position that is too old are outages. Nothing about a config follows from them, so
they refuse no update and degrade no node.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.controller import Controller, Memory
from integration.cluster.other_holders import client_at, lease_of
from integration.cluster.sim_node import SimNode
from integration.cluster.test_restarted import OUTAGES, Follower, troubles
from integration.cluster.tls_proxy import TlsProxy, bound_token
from nodeagent.core.coordination.kube_objects import KubeObject
from nodeagent.features.cluster import handshake
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.kube import client as client_module
from nodeagent.update import wait
from nodeagent.update.ports.events import UpdateWaiting
from tests.world.run import config

NODES: Final = 3
SLOTS: Final = 2
PAGE: Final = {"Content-Type": "text/html"}
JSON: Final = {"Content-Type": "application/json"}
QUEUE: Final = {"SlotHeld", "SlotContended"}


class Odd(NamedTuple):
    """``done``: the part of the requests that are carried out nevertheless."""

    status: int
    headers: dict[str, str]
    text: bytes
    done: float


ODD: Final = {
    "the page of a gateway": Odd(200, PAGE, b"<html>please log in</html>", 0.5),
    "the fault of a gateway": Odd(502, PAGE, b"<html>bad gateway</html>", 0.5),
    "nothing behind it": Odd(503, {"Retry-After": "1"}, b"no endpoints available for service", 0.0),
    "half of an answer": Odd(200, JSON, b'{"metadata": {"name": "', 1.0),
    "an answer without content": Odd(200, JSON, b"{}", 1.0),
    "busy": Odd(429, {"Retry-After": "1"}, b'{"kind": "Status", "reason": "TooManyRequests"}', 0.0),
    "busy for long": Odd(429, {"Retry-After": "600"}, b"too many requests", 0.0),
    "too old": Odd(410, JSON, b'{"kind": "Status", "code": 410, "reason": "Expired"}', 0.0),
}

# One of each kind; the others take minutes together.
USUAL: Final = {"the page of a gateway", "nothing behind it", "half of an answer", "busy"}


class Gateway(TlsProxy):
    """Gives ``odd`` for an answer to a ``part`` of the requests. It lets no watch through.

    ``before`` gets the target of each request.
    """

    odd: Odd | None = None
    part = 1.0
    answered = 0

    def __init__(self, cluster: Cluster) -> None:
        self.before: Callable[[str], None] = lambda _: None
        self._chance = random.Random(1)
        super().__init__(cluster, cluster.authority)

    def ask(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.before(target)
        if "watch=true" in target:
            return 405, {"Date": self.date()}, b""
        odd = self.odd if self._chance.random() < self.part else None
        if odd is None:
            return super().ask(method, target, headers, body)
        if self._chance.random() < odd.done:
            super().ask(method, target, headers, body)
        self.answered += 1
        return odd.status, {**odd.headers, "Date": self.date()}, odd.text


@pytest.fixture
def gateway(cluster: Cluster) -> Iterator[Gateway]:
    """Its clients have the kubeconfig of the user ``front``."""
    made = Gateway(cluster)
    token = cluster.directory / "front.token"
    token.write_text(bound_token(cluster, f"front-{made.url.rpartition(':')[2]}"))
    made.kubeconfig(token, cluster.authority.certificate)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.finding(
    "cluster: answers that say nothing", "Odd answers of a gateway refuse no update, and degrade no node."
)
@pytest.mark.cluster_failure(
    "a gateway answers for the API server, or the server is busy", "waits as if the server were down; asks again"
)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in USUAL else [pytest.mark.long]) for name in ODD]
)
async def test_updates_go_on_beside_odd_answers(
    cluster: Cluster, gateway: Gateway, make_node: Callable[[], str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "LONGEST_FOR_HOLDER", 1.0)
    pool = gateway.url.rpartition(":")[2]
    members = [SimNode(cluster, make_node(), pool=pool, slots=SLOTS, user="front") for _ in range(NODES)]
    for member in members:
        member.want(config("one", {"/etc/app/x": "1"}))
    gateway.odd, gateway.part = ODD[name], 0.15
    await asyncio.wait_for(asyncio.gather(*(member.settle() for member in members)), 240)
    assert gateway.answered >= NODES
    for member in members:
        assert member.outcomes() == ["done"]
        assert troubles(member) == []
        waits = {event.reason for event in member.world.events if isinstance(event, UpdateWaiting)}
        assert waits <= OUTAGES | {"KubeExpired"} | QUEUE
        assert lease_of(cluster, member.node) is None
        assert not member.cordoned


@pytest.mark.finding(
    "cluster: answers that say nothing", "While a config cannot be fetched because of odd answers, the last one stays."
)
@pytest.mark.parametrize("name", ODD)
async def test_the_desired_config_stays_beside_odd_answers(
    cluster: Cluster, gateway: Gateway, node: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "READ_FIRST_PAUSE", 0.2)
    monkeypatch.setattr(handshake, "READ_LONGEST_PAUSE", 1.0)
    controller, follower = Controller(cluster, node), Follower()
    first, second = f"{node}-first", f"{node}-second"
    for each in (first, second):
        controller.make(each, x="1")
    controller.desire(first)
    async with client_at(cluster, cluster.directory / "front.kubeconfig", timeout=5.0) as client:
        shake = follower.shake = Handshake(
            client, node, Memory(), changed=lambda _: None, on_error=follower.fault, every=0.3
        )
        running = asyncio.create_task(shake.run())
        try:
            await until_desired(follower, first)
            # A config is fetched through odd answers: the Node is read, and then the config is not.
            gateway.before = lambda target: setattr(
                gateway, "odd", ODD[name] if second in target or gateway.answered else None
            )
            await asyncio.to_thread(controller.desire, second)
            async with asyncio.timeout(60):
                while not follower.reasons:
                    assert await follower.desired() == first
                    await asyncio.sleep(0.05)
            for _ in range(10):
                assert await follower.desired() == first
                await asyncio.sleep(0.1)
            gateway.before, gateway.odd = (lambda _: None), None
            await until_desired(follower, second)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert set(follower.reasons) <= OUTAGES | {"KubeExpired"}


async def until_desired(follower: Follower, name: str) -> None:
    async with asyncio.timeout(60):
        while await follower.desired() != name:
            await asyncio.sleep(0.05)


def compact(cluster: Cluster) -> None:
    """Have etcd forget all but the present versions, as each API server does after some minutes."""
    connection = http.client.HTTPConnection("127.0.0.1", cluster.etcd_port, timeout=20)

    def ask(path: str, **body: Any) -> Any:
        connection.request("POST", f"/v3/kv/{path}", json.dumps(body))
        response = connection.getresponse()
        assert response.status == 200
        return json.loads(response.read())

    revision = ask("range", key=base64.b64encode(b"none").decode())["header"]["revision"]
    ask("compaction", revision=revision, physical=True)
    connection.close()


@pytest.mark.finding(
    "cluster: answers that say nothing", "A list of which the position is too old in the middle begins again."
)
async def test_a_list_whose_position_is_too_old_begins_again(
    cluster: Cluster, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server that was started again has no old lists in its memory, and etcd has forgotten them."""
    monkeypatch.setattr(client_module, "CHUNK", 3)
    space = f"paged-{gateway.url.rpartition(':')[2]}"
    path = f"/api/v1/namespaces/{space}/configmaps"
    await asyncio.to_thread(cluster.admin.create, "/api/v1/namespaces", {"metadata": {"name": space}})
    for number in range(8):
        await asyncio.to_thread(cluster.admin.create, path, {"metadata": {"name": f"c{number}"}})
    targets: list[str] = []

    def before(target: str) -> None:
        targets.append(target)
        if len(targets) == 2:
            assert "continue=" in target
            cluster.admin.create(path, {"metadata": {"name": "c8"}})
            compact(cluster)
            cluster.apiserver.kill()
            cluster.apiserver.start()
            cluster.apiserver.wait_ready(240)

    gateway.before = before
    async with client_at(cluster, cluster.directory / "front.kubeconfig", timeout=300.0) as client:
        found = await client.objects(path, KubeObject)
    assert [each["metadata"]["name"] for each in found] == [f"c{number}" for number in range(9)]
    assert ["continue=" in target for target in targets] == [False, True, False, True, True]
