# SPDX-License-Identifier: Apache-2.0
"""The transport: what is sent, what is repeated, what becomes of each fault, and credentials that are rotated."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from nodeagent.core.coordination.kube_objects import KubeObject
from nodeagent.errors import AgentError, Refused, Retryable, Terminal, Unreachable
from nodeagent.kube import client
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    KubeFault,
    NoAnswer,
    NotFound,
    Rejected,
    ServerFault,
    Throttled,
    Unauthorized,
)
from nodeagent.update.stages.coordination import POLL
from tests.kube.server import CUT, HANG, Answer, Server, serving

SECRET = "very-secret-token"


class Clock:
    ahead = 0.0

    def now(self) -> str:
        return "2026-01-01T00:00:00.000Z"

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def kubeconfig(directory: Path, server: str, **user: Any) -> Path:
    path = directory / "kubeconfig"
    document = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def connect(tmp_path: Path) -> Callable[..., KubeClient]:
    def make(server: Server, clock: Clock | None = None, *, timeout: float = 30.0, **user: Any) -> KubeClient:
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", **(user or {"token": SECRET}))
        return KubeClient(ClusterAccess(str(path), private=str(tmp_path)), clock or Clock(), timeout=timeout)

    return make


Connect = Callable[..., KubeClient]


def thing(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}}


async def test_what_is_sent(connect: Connect) -> None:
    async with serving(Answer(body={"kind": "Node"})) as server, connect(server) as kube:
        assert await kube.get("/api/v1/nodes/n1", resourceVersion="0") == {"kind": "Node"}
        await kube.create("/api/v1/things", {"a": 1})
        await kube.patch("/api/v1/things/x", {"a": 2})
        await kube.delete("/api/v1/things/x", uid="u", resource_version="7")
    get, create, patch, delete = server.requests
    assert (get.method, get.target) == ("GET", "/api/v1/nodes/n1?resourceVersion=0")
    assert get.headers["authorization"] == f"Bearer {SECRET}"
    assert get.headers["user-agent"].startswith("nodeagent/")
    assert (create.method, create.body) == ("POST", {"a": 1})
    assert (patch.headers["content-type"], patch.body) == ("application/merge-patch+json", {"a": 2})
    assert delete.body["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert kube.requests == 4


async def test_a_list_comes_in_chunks(connect: Connect) -> None:
    pages = [
        Answer(body={"metadata": {"continue": "more"}, "items": [thing("a")]}),
        Answer(body={"metadata": {}, "items": [thing("b")]}),
    ]
    async with serving(*pages) as server, connect(server) as kube:
        found = await kube.objects("/api/v1/pods", KubeObject, fieldSelector="spec.nodeName=n1")
    assert [each["metadata"]["name"] for each in found] == ["a", "b"]
    assert server.requests[1].target == "/api/v1/pods?limit=500&fieldSelector=spec.nodeName%3Dn1&continue=more"


@pytest.mark.parametrize(
    ("status", "said", "kind", "family"),
    [
        (400, "", Rejected, Terminal),
        (401, "", Unauthorized, Unreachable),
        (403, "", Forbidden, Refused),
        (404, "", NotFound, Terminal),
        (409, "Conflict", Conflict, Retryable),
        (409, "AlreadyExists", AlreadyExists, Retryable),
        (410, "Expired", Gone, Retryable),
        (422, "Invalid", Rejected, Terminal),
        (429, "", Throttled, Retryable),
        (500, "", ServerFault, Retryable),
        (504, "", ServerFault, Retryable),
    ],
)
async def test_each_status_is_one_kind(
    connect: Connect, status: int, said: str, kind: type[KubeFault], family: type[Exception]
) -> None:
    body = {"kind": "Status", "reason": said, "message": "because of that"}
    async with serving(Answer(status, body)) as server, connect(server) as kube:
        with pytest.raises(kind, match="GET /x: because of that") as caught:
            await kube.get("/x")
    assert type(caught.value) is kind
    assert isinstance(caught.value, family)
    assert caught.value.status == status
    assert SECRET not in caught.value.message


DENIED = Answer(
    403, {"message": 'nodes "n" is forbidden: User "nodeagent:n" cannot get resource "nodes" in API group ""'}
)
BY_POLICY = [
    "leases is forbidden: ValidatingAdmissionPolicy 'nodeagent' denied request",
    "ValidatingAdmissionPolicy 'nodeagent' denied request: a node cannot change it",
    "ValidatingAdmissionPolicy 'nodeagent' denied request: User \"x\" is another node",
]


@pytest.mark.finding(
    "cluster: an authorizer that is not ready",
    "A refusal of an authorizer that has not read its roles yet is asked again.",
)
@pytest.mark.parametrize("method", ["get", "patch"])
async def test_an_api_server_that_starts_refuses_for_a_moment(connect: Connect, method: str) -> None:
    async with serving(DENIED, DENIED, Answer(body={"a": 1})) as server, connect(server) as kube:
        assert await (kube.get("/x") if method == "get" else kube.patch("/x", {})) == {"a": 1}


@pytest.mark.finding(
    "cluster: an authorizer that is not ready", "A refusal that stays is an answer, and is not waited for again."
)
async def test_a_refusal_that_stays_is_an_answer(connect: Connect) -> None:
    async with serving(DENIED) as server, connect(server) as kube:
        for expected in (client.FORBIDDEN_ATTEMPTS, 1, 1):
            before = len(server.requests)
            with pytest.raises(Forbidden):
                await kube.get("/x")
            assert len(server.requests) - before == expected
        server.answer = lambda _: Answer()
        await kube.get("/x")
        server.answer = lambda _: DENIED
        before = len(server.requests)
        with pytest.raises(Forbidden):
            await kube.get("/x")
        assert len(server.requests) - before == client.FORBIDDEN_ATTEMPTS, "it was allowed in between"


@pytest.mark.parametrize("message", BY_POLICY)
async def test_a_refusal_by_a_policy_is_an_answer(connect: Connect, message: str) -> None:
    async with serving(Answer(403, {"message": message})) as server, connect(server) as kube:
        with pytest.raises(Forbidden):
            await kube.patch("/x", {})
        assert len(server.requests) == 1


async def test_reads_are_repeated_and_writes_are_not(connect: Connect) -> None:
    async with serving(Answer(503), CUT, Answer(body={"n": 1})) as server, connect(server) as kube:
        assert await kube.get("/x") == {"n": 1}
        assert len(server.requests) == 3
    for fault, kind, timeout in ((Answer(503), ServerFault, 30.0), (CUT, NoAnswer, 30.0), (HANG, NoAnswer, 1.0)):
        async with serving(fault, Answer()) as server, connect(server, timeout=timeout) as kube:
            with pytest.raises(kind):
                await kube.patch("/x", {})
            assert len(server.requests) == 1, "it may have been done"


async def test_reads_are_not_repeated_without_end(connect: Connect) -> None:
    async with serving(Answer(500)) as server, connect(server) as kube:
        with pytest.raises(ServerFault):
            await kube.get("/x")
        assert len(server.requests) == 3


async def test_a_throttled_write_is_repeated(connect: Connect) -> None:
    async with serving(Answer(429, headers={"Retry-After": "0"}), Answer()) as server, connect(server) as kube:
        await kube.create("/x", {})
        assert len(server.requests) == 2
    async with serving(Answer(429, headers={"Retry-After": "7"})) as server, connect(server) as kube:
        with pytest.raises(Throttled) as caught:
            await kube.create("/x", {}, throttled=1)
        assert (caught.value.retry_after, len(server.requests)) == (7.0, 1)


async def test_a_long_retry_after_is_raised_at_once(connect: Connect) -> None:
    async with serving(Answer(429, headers={"Retry-After": "60"})) as server, connect(server) as kube:
        with pytest.raises(Throttled):
            await kube.get("/x")
        assert len(server.requests) == 1


async def test_an_answer_that_is_no_object_is_no_success(connect: Connect) -> None:
    for text in ("<html>welcome to the hotel</html>", "[]", ""):
        async with serving(Answer(200, text)) as server, connect(server) as kube:
            with pytest.raises(ServerFault, match="no JSON object"):
                await kube.patch("/x", {})


@pytest.mark.finding("daemon: no bug ends it", "An answer of the API server has a limit in bytes, objects and shape.")
@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        '{"items": [{"metadata": {"name": "\\ud800", "uid": "u", "resourceVersion": "1"}}]}',
    ],
)
async def test_an_odd_answer_is_a_fault_of_the_server(connect: Connect, text: str) -> None:
    async with serving(Answer(200, text)) as server, connect(server) as kube:
        with pytest.raises(ServerFault):
            await kube.patch("/x", {})
        with pytest.raises(ServerFault):
            await kube.objects("/x", KubeObject)


@pytest.mark.finding("daemon: no bug ends it", "An answer of the API server has a limit in bytes, objects and shape.")
async def test_an_answer_is_read_up_to_a_limit(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER", 1000)
    room = 1000 - len(json.dumps({"data": ""}))
    async with serving(Answer(200, {"data": "x" * room})) as server, connect(server) as kube:
        assert (await kube.get("/x"))["data"]
    async with serving(Answer(200, {"data": "x" * (room + 1)})) as server, connect(server) as kube:
        with pytest.raises(ServerFault, match="larger than 1000 bytes"):
            await kube.patch("/x", {})


@pytest.mark.finding("daemon: no bug ends it", "An answer of the API server has a limit in bytes, objects and shape.")
async def test_a_list_without_end_is_given_up(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ITEMS", 10)
    pages = [Answer(body={"metadata": {"continue": str(number)}, "items": [thing("a")] * 3}) for number in range(9)]
    async with serving(*pages) as server, connect(server) as kube:
        with pytest.raises(ServerFault, match="more than 10 objects"):
            await kube.objects("/x", KubeObject)
    monkeypatch.setattr(client, "MAX_PAGES", 3)
    async with serving(*pages) as server, connect(server) as kube:
        with pytest.raises(ServerFault, match="more than 3 parts"):
            await kube.objects("/x", KubeObject)


async def test_a_list_of_as_many_objects_as_are_read(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ITEMS", 3)
    body = {"metadata": {}, "items": [thing("a")] * 3}
    async with serving(Answer(body=body)) as server, connect(server) as kube:
        assert len(await kube.objects("/x", KubeObject)) == 3
        assert len(await kube.metadata("/x", KubeObject, not_older="1")) == 3
    body["items"] = [thing("a")] * 4
    async with serving(Answer(body=body)) as server, connect(server) as kube:
        for listed in (kube.objects("/x", KubeObject), kube.metadata("/x", KubeObject, not_older="1")):
            with pytest.raises(ServerFault, match="more than 3 objects"):
                await listed


async def test_the_metadata_of_a_list_are_one_answer_from_the_cache(connect: Connect) -> None:
    async with serving(Answer(body={"items": [thing("a")]}), Answer(body={"items": None})) as server:
        async with connect(server) as kube:
            assert await kube.metadata("/x", KubeObject, not_older="7") == [thing("a")]
            assert await kube.metadata("/x", KubeObject, not_older="7") == []
        assert server.requests[0].target == "/x?resourceVersion=7&resourceVersionMatch=NotOlderThan"
        assert "as=PartialObjectMetadataList" in server.requests[0].headers["accept"]
    for text in ("<html>welcome to the hotel</html>", "[]", '{"items": 7}', '{"items": [{"metadata": {"name": 7}}]}'):
        async with serving(Answer(200, text)) as server, connect(server) as kube:
            with pytest.raises(ServerFault, match="not a list of the API"):
                await kube.metadata("/x", KubeObject, not_older="7")


async def test_a_node_that_the_cluster_does_not_have(connect: Connect) -> None:
    async with serving(Answer(404)) as server, connect(server) as kube:
        with pytest.raises(Refused, match="there is no Node n1 in the cluster") as caught:
            await kube.node("n1")
    assert caught.value.reason == "NodeUnknown"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"message": "because"}, "GET /x: because"),
        # The form of a gateway, which is none of the API.
        ({"message": "because", "details": "wait"}, "GET /x: because"),
        ({"message": ["because"]}, "GET /x: status 404"),
        ("<html>no</html>", "GET /x: status 404"),
    ],
)
async def test_the_words_of_a_refusal(connect: Connect, body: Any, message: str) -> None:
    async with serving(Answer(404, body)) as server, connect(server) as kube:
        with pytest.raises(NotFound) as caught:
            await kube.get("/x")
    assert caught.value.message == message


async def test_a_redirect_is_no_answer_of_an_api_server(connect: Connect) -> None:
    async with serving(Answer(300, {"items": []})) as server, connect(server) as kube:
        with pytest.raises(Rejected, match="status 300"):
            await kube.get("/x")


async def test_the_refusals_that_are_remembered_are_limited(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_KNOWN", 2)
    async with serving(DENIED) as server, connect(server) as kube:
        for path in ("/a", "/b", "/c"):
            with pytest.raises(Forbidden):
                await kube.get(path)
        assert kube._refused == {"GET /c"}
        before = len(server.requests)
        with pytest.raises(Forbidden):
            await kube.get("/c")
    assert len(server.requests) - before == 1


async def test_a_list_whose_position_is_too_old_begins_again(connect: Connect) -> None:
    first = Answer(body={"metadata": {"continue": "x"}, "items": [thing("a")]})
    last = Answer(body={"metadata": {}, "items": [thing("b")]})
    gone = Answer(410, {"reason": "Expired", "message": "the provided continue parameter is too old"})
    async with serving(first, gone, first, last) as server, connect(server) as kube:
        assert [each["metadata"]["name"] for each in await kube.objects("/things", KubeObject)] == ["a", "b"]
        assert ["continue" in request.target for request in server.requests] == [False, True, False, True]
    async with serving(first, gone, first, gone) as server, connect(server) as kube:
        with pytest.raises(AgentError) as caught:
            await kube.objects("/things", KubeObject)
        assert (caught.value.reason, len(server.requests)) == ("KubeExpired", 4)


@pytest.mark.finding(
    "attack: lists without an end", "A list whose parts do not advance is given up at once, as a fault of the server."
)
@pytest.mark.parametrize(
    "page",
    [
        {"kind": "PodList", "items": [], "metadata": {"continue": "x"}},
        {"items": None, "metadata": {"continue": "x"}},
        {"items": [thing("a")], "metadata": {"continue": "x"}},
    ],
)
async def test_a_list_that_does_not_advance_is_given_up(connect: Connect, page: dict[str, Any]) -> None:
    async with serving(Answer(body=page)) as server, connect(server) as kube:
        with pytest.raises(ServerFault, match="does not advance"):
            await kube.objects("/x", KubeObject)
        assert len(server.requests) <= 2


@pytest.mark.finding(
    "cluster: connections at rest", "The polls of an agent at rest use one connection, which stays open between them."
)
async def test_a_connection_stays_open_between_two_polls(connect: Connect) -> None:
    async with serving(Answer(body=thing("n"))) as server, connect(server) as client:
        await client.get("/version")
        assert client._connected is not None
        open_for = client._connected[0].pool_manager.connector._keepalive_timeout
    # The second number is that of the HTTP server of an API server, which closes it otherwise during a request.
    assert 1.2 * POLL < open_for < 90


async def test_a_server_that_does_not_listen(connect: Connect) -> None:
    async with serving(Answer()) as server:
        kube = connect(server)
    async with kube:
        with pytest.raises(NoAnswer) as caught:
            await kube.get("/x")
    assert caught.value.reason == "KubeUnreachable"


async def test_the_clock_of_the_server(connect: Connect) -> None:
    async with serving(Answer()) as server, connect(server) as kube:
        await kube.get("/x")
        assert kube.server_clock.earliest(time.monotonic()) == pytest.approx(1795251600.0, abs=0.5)
    async with serving(Answer(headers={"Date": "soon"})) as server, connect(server) as kube:
        await kube.get("/x")
        assert kube.server_clock.at is None


async def test_a_token_that_was_rotated_is_read_again(connect: Connect, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    clock = Clock()
    async with serving(Answer()) as server, connect(server, clock, tokenFile="token") as kube:
        server.answer = lambda r: Answer(200 if r.headers["authorization"] == f"Bearer {token.read_text()}" else 401)
        await kube.get("/x")
        token.write_text("second-one")
        await kube.get("/x")
        assert [r.headers["authorization"] for r in server.requests] == [
            "Bearer first",
            "Bearer first",  # not looked at in the first seconds: the 401 says it
            "Bearer second-one",
        ]
        token.write_text("third-token")
        clock.ahead = 11.0
        await kube.get("/x")
        assert server.requests[-1].headers["authorization"] == "Bearer third-token"
        assert len(server.requests) == 4, "seen before it was refused"


async def test_a_token_that_stays_bad_is_tried_twice(connect: Connect) -> None:
    async with serving(Answer(401)) as server, connect(server) as kube:
        with pytest.raises(Unauthorized):
            await kube.get("/x")
        assert len(server.requests) == 2


def test_the_service_account_of_a_pod(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "ca.crt").write_text("not read: no connection is made")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with ClusterAccess(environ=environ, service_account=tmp_path).loaded() as identity:
        pass
    assert identity.host == "https://[fd00::1]:443"
    assert "pod-token" not in repr(identity)
    assert not identity.changed()
    (tmp_path / "token").write_text("another")
    assert identity.changed()


def test_a_plugin_gives_the_credentials(tmp_path: Path, no_blocking_calls: BlockBuster) -> None:
    status = {"token": "of-the-plugin"}
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    (tmp_path / "credential").write_text(json.dumps(credential))
    plugin = {"apiVersion": credential["apiVersion"], "command": "cat", "args": [str(tmp_path / "credential")]}
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", exec=plugin)
    # The library reads files in the loop that it needs for the plugin, which is one of a thread of its own.
    no_blocking_calls.deactivate()
    try:
        with ClusterAccess(str(path), private=str(tmp_path)).loaded() as identity:
            settings = asyncio.run(identity.configuration.auth_settings())
    finally:
        no_blocking_calls.activate()
    assert [setting["value"] for setting in settings.values()] == ["Bearer of-the-plugin"]


def test_a_kubeconfig_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kubeconfig")
    access = ClusterAccess(str(tmp_path / "kubeconfig"), private=str(tmp_path))
    with pytest.raises(Terminal, match="it is no regular file") as caught, access.loaded():
        pass
    assert caught.value.reason == "KubeconfigInvalid"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "clusters: 7", '{"current-context": "x", "contexts": []}', f"token: [{SECRET}"]
)
async def test_an_invalid_kubeconfig_is_named_and_not_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    async with KubeClient(ClusterAccess(str(path), private=str(tmp_path)), Clock()) as kube:
        with pytest.raises(Terminal) as caught:
            await kube.get("/x")
    assert caught.value.reason == "KubeconfigInvalid"
    assert str(path) in caught.value.message
    assert SECRET not in caught.value.message


@pytest.mark.finding(
    "commands: usage errors and hints", "A kubeconfig that is not there is a plain sentence, and exit status 2."
)
async def test_no_kubeconfig(tmp_path: Path) -> None:
    async with KubeClient(ClusterAccess(str(tmp_path / "none")), Clock()) as kube:
        with pytest.raises(Terminal, match=r"^[^ ]+: No such file or directory$"):
            await kube.get("/x")


async def test_an_authority_needs_no_more_than_for_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ssl.create_default_context

    def as_since_python_3_13(*args: Any, **options: Any) -> ssl.SSLContext:
        context = made(*args, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", as_since_python_3_13)
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", token=SECRET)
    rest, _ = await asyncio.to_thread(client._connect, ClusterAccess(str(path), private=str(tmp_path)))
    try:
        assert not rest.ssl_context.verify_flags & ssl.VERIFY_X509_STRICT
    finally:
        await rest.close()
