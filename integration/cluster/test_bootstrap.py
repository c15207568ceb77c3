# SPDX-License-Identifier: Apache-2.0
"""`nodeagent bootstrap` against a real API server and the real signer, with the rights of packaging/kubernetes."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from integration.cluster import programs
from integration.cluster.api import Api, ApiError
from integration.cluster.cluster import ADMINS, Cluster
from integration.cluster.server import Server
from integration.cluster.test_rights import path_of
from integration.hosts.container.conftest import required
from nodeagent.cli.main import main
from nodeagent.core.coordination.kube_objects import CertificateRequest
from nodeagent.errors import AgentError
from nodeagent.features.certificates import requests
from nodeagent.features.certificates.cli._steps import bootstrap
from nodeagent.features.certificates.decide.approval import Applicant
from nodeagent.features.certificates.decide.client_certificate import request_name, request_object, user_of
from nodeagent.features.certificates.requests import approve
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.decode import decoded
from nodeagent.kube.errors import Conflict
from nodeagent.settings.load import load
from nodeagent.settings.schema import Settings

MANIFESTS: Final = Path(__file__).parents[2] / "packaging" / "kubernetes"
REQUESTS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SECRETS: Final = "/api/v1/namespaces/kube-system/secrets"
# Seconds for a run that waits for nothing: generous, because the machine may be busy.
DEADLINE: Final = 300.0
SECRET: Final = "0123456789abcdef"
IN_AN_HOUR: Final = 3600


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "POLL", 0.1)


@pytest.fixture(scope="module")
def signing(control_plane: Cluster) -> Iterator[Cluster]:
    """The control plane with the rights, and the controllers that sign requests and check bootstrap tokens."""
    for name in ("nodeagent.yaml", "bootstrap.yaml"):
        for document in yaml.safe_load_all((MANIFESTS / name).read_text()):
            path = path_of(document)
            if control_plane.admin.find(f"{path}/{document['metadata']['name']}") is None:
                control_plane.admin.create(path, document)
    if control_plane.admin.find("/api/v1/namespaces/kube-system") is None:
        control_plane.admin.create("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
    program = required(lambda: programs.NODE_MODULE.find("kube-controller-manager"), "no controllers here")
    authority = control_plane.authority.certificate
    controllers = Server(
        "kube-controller-manager",
        [
            str(program),
            f"--kubeconfig={control_plane.kubeconfig('signer', [ADMINS])}",
            "--secure-port=0",
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            "--controllers=certificatesigningrequest-signing-controller",
            f"--cluster-signing-cert-file={authority}",
            f"--cluster-signing-key-file={authority.with_suffix('.key')}",
        ],
        control_plane.directory / "signer.log",
        bool,
    )
    controllers.start()
    try:
        wait_in_force(control_plane)
        yield control_plane
    finally:
        controllers.kill()


def wait_in_force(cluster: Cluster) -> None:
    """A policy is compiled a moment after its creation."""
    probe = cluster.api("nodeagent:probe", ["nodeagent"])
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            probe.create(REQUESTS, foreign("elsewhere"))
        except ApiError as error:
            if error.status == 403 and "nodeagent-NODE-HASH" in str(error):
                return
            assert error.status == 409, error
        assert time.monotonic() < deadline
        time.sleep(0.2)


def foreign(name: str, **spec: Any) -> dict[str, Any]:
    """A sound request of another program."""
    key = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    request = subprocess.run([*key, "-subj", "/CN=x", "-keyout", "/dev/null"], check=True, capture_output=True).stdout
    about = {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], **spec}
    return {"metadata": {"name": name}, "spec": {"request": base64.b64encode(request).decode(), **about}}


@dataclass
class Joining:
    """A host before it has a certificate: settings, state and bootstrap kubeconfig in one directory."""

    cluster: Cluster
    node: str
    directory: Path
    settings: Settings
    threads: ThreadPoolExecutor | None = None

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def pem(self) -> Path:
        return self.directory / "state" / "client" / "client.pem"

    @property
    def user(self) -> str:
        return user_of(self.node)

    def bootstrap_token(self, identity: str, *, lasts: float = IN_AN_HOUR) -> None:
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + lasts))  # noqa: TID251 - the API server compares it with its own clock
        data = {
            "token-id": identity,
            "token-secret": SECRET,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:nodeagent",
            "expiration": until,
        }
        secret = {
            "metadata": {"name": f"bootstrap-token-{identity}"},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": data,
        }
        self.cluster.admin.create(SECRETS, secret)
        self.use({"token": f"{identity}.{SECRET}"})

    def use(self, user: Mapping[str, str], server: str = "") -> None:
        """Write the bootstrap kubeconfig."""
        # A file: the library keeps the path of one that it made for a text as long as the process runs.
        authority = str(self.cluster.authority.certificate)
        document = {
            "current-context": "c",
            "clusters": [
                {
                    "name": "k",
                    "cluster": {"server": server or self.cluster.url, "certificate-authority": authority},
                }
            ],
            "users": [{"name": "u", "user": dict(user)}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        }
        (self.directory / "bootstrap-kubeconfig").write_text(json.dumps(document))

    def start(self, *, wait: float = DEADLINE, renew: bool = False) -> Future[int]:
        """Run the command in a thread: a process of its own takes seconds for its imports."""
        source = self.directory / "bootstrap-kubeconfig"
        assert self.threads is not None
        return self.threads.submit(lambda: bootstrap(self.settings, source, wait=wait, renew=renew))

    def start_process(self) -> subprocess.Popen[str]:
        words = ["bootstrap", "--from", str(self.directory / "bootstrap-kubeconfig"), "--wait", str(DEADLINE)]
        # The command with other directories of settings, and polls that do not wait for an operator.
        code = (
            "import sys; from nodeagent.settings.load import load; load.__defaults__ = ((sys.argv.pop(1),),); "
            "from nodeagent.features.certificates import requests; requests.POLL = 0.1; "
            "from nodeagent.cli.main import main; sys.exit(main(sys.argv[1:]))"
        )
        return subprocess.Popen([sys.executable, "-c", code, str(self.directory / "config.d"), *words], text=True)

    def fails(self, **options: Any) -> AgentError:
        with pytest.raises(AgentError) as caught:
            self.start(**options).result(DEADLINE * 2)
        return caught.value

    def run(self, **options: Any) -> None:
        assert self.start(**options).result(DEADLINE * 2) == 0

    def requests(self) -> list[dict[str, Any]]:
        items = self.cluster.admin.get(REQUESTS)["items"]
        return [item for item in items if item["metadata"]["name"].startswith(f"nodeagent-{self.node}-")]

    def names(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.requests()}

    def wait_request(self, known: Collection[str] = ()) -> str:
        """The name of a request that is not in `known`. Two may be created in the same second."""
        deadline = time.monotonic() + DEADLINE
        while not (found := self.names().difference(known)):
            assert time.monotonic() < deadline, "no request"
            time.sleep(0.05)
        return found.pop()

    def decide(self, name: str, kind: str = "Approved", by: Api | None = None) -> None:
        path = f"{REQUESTS}/{name}"
        request = self.cluster.admin.get(path)
        condition = {"type": kind, "status": "True", "reason": "ByAdmin", "message": "checked"}
        request["status"]["conditions"] = [condition]
        (by or self.cluster.admin).request("PUT", f"{path}/approval", request)

    def join(self) -> None:
        running = self.start()
        self.decide(self.wait_request())
        assert ended(running) == 0


def ended(running: Future[int]) -> int:
    return running.result(DEADLINE * 2)


def denied(running: Future[int]) -> str:
    with pytest.raises(AgentError) as caught:
        running.result(DEADLINE * 2)
    return str(caught.value.reason)


_tokens = iter(f"a{number:05}" for number in range(1000))


@pytest.fixture
def joining(signing: Cluster, node: str, tmp_path: Path) -> Iterator[Joining]:
    for name in ("state", "config.d"):
        (tmp_path / name).mkdir()
    settings = {
        "node_name": node,
        "state_dir": str(tmp_path / "state"),
        "cluster": {"kubeconfig": str(tmp_path / "kubeconfig")},
    }
    (tmp_path / "config.d" / "50.yaml").write_text(json.dumps(settings))
    with ThreadPoolExecutor() as threads:
        made = Joining(signing, node, tmp_path, load((tmp_path / "config.d",)).settings, threads)
        made.bootstrap_token(next(_tokens))
        yield made
        signing.resume()


async def who(joining: Joining) -> str:
    async with KubeClient(ClusterAccess(str(joining.kubeconfig)), SystemClock()) as client:
        answer = await client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    name: str = answer["status"]["userInfo"]["username"]
    return name


async def test_a_node_joins(joining: Joining, capsys: pytest.CaptureFixture[str]) -> None:
    joining.join()
    assert await who(joining) == joining.user
    assert stat.S_IMODE(joining.pem.stat().st_mode) == 0o600
    assert stat.S_IMODE(joining.kubeconfig.stat().st_mode) == 0o600
    assert [path.name for path in joining.pem.parent.iterdir()] == ["client.pem"]
    before = joining.pem.read_bytes()
    joining.run()
    assert "is renewed from" in capsys.readouterr().out
    assert joining.pem.read_bytes() == before
    assert len(joining.requests()) == 1


@pytest.mark.parametrize("node", ["worker-b-7x2kq.europe-west3-c.c.clusters-of-the-test-department.internal"])
async def test_a_node_with_a_long_name_joins(joining: Joining) -> None:
    """With its prefix the name is longer than the 64 characters that openssl allows."""
    joining.join()
    assert await who(joining) == joining.user


def renew(joining: Joining) -> None:
    known = joining.names()
    running = joining.start(renew=True)
    joining.decide(joining.wait_request(known))
    assert ended(running) == 0


async def test_a_renewal_needs_no_bootstrap_credentials_and_no_restart(joining: Joining) -> None:
    joining.join()
    (joining.directory / "bootstrap-kubeconfig").unlink()
    before = joining.pem.read_bytes()
    async with KubeClient(ClusterAccess(str(joining.kubeconfig)), SystemClock()) as daemon:
        await daemon.node(joining.node)
        await asyncio.to_thread(renew, joining)
        assert joining.pem.read_bytes() != before
        # Ten seconds later it would notice; here at once.
        daemon._checked = -1e9
        await daemon.node(joining.node)
        connected = daemon._connected
        assert connected is not None
        assert not connected[1].changed()
    assert await who(joining) == joining.user


def test_a_request_that_is_denied(joining: Joining) -> None:
    running = joining.start()
    joining.decide(joining.wait_request(), "Denied")
    assert denied(running) == "CertificateDenied"
    assert not joining.kubeconfig.exists()
    # The next run does not press on with a second request.
    error = joining.fails()
    assert (error.exit_code, len(joining.requests())) == (4, 1)
    # The remedy of the hint.
    joining.cluster.admin.delete(f"{REQUESTS}/{joining.requests()[0]['metadata']['name']}")
    joining.join()


def test_a_denied_renewal_leaves_the_certificate(joining: Joining) -> None:
    joining.join()
    before = joining.pem.read_bytes()
    known = joining.names()
    running = joining.start(renew=True)
    joining.decide(joining.wait_request(known), "Denied")
    assert denied(running) == "CertificateDenied"
    assert joining.pem.read_bytes() == before


def test_no_approval_in_time_is_continued_by_the_next_run(joining: Joining) -> None:
    error = joining.fails(wait=0)
    assert (error.exit_code, error.reason) == (4, "CertificatePending")
    joining.decide(joining.wait_request())
    joining.run()
    assert len(joining.requests()) == 1


def test_the_api_server_is_away(joining: Joining) -> None:
    running = joining.start(wait=DEADLINE)
    name = joining.wait_request()
    joining.cluster.apiserver.pause()
    time.sleep(1)
    joining.cluster.apiserver.resume()
    joining.decide(name)
    assert ended(running) == 0


def test_no_api_server_at_all(joining: Joining) -> None:
    joining.use({"token": "a.b"}, server="https://127.0.0.1:1")
    error = joining.fails(wait=0)
    assert (error.exit_code, error.reason) == (5, "KubeUnreachable")
    assert not joining.kubeconfig.exists()


def test_a_bootstrap_token_that_ended(joining: Joining) -> None:
    joining.bootstrap_token(next(_tokens), lasts=-60)
    error = joining.fails()
    assert (error.reason, "the one in it may have ended" in error.hint) == ("KubeUnauthorized", True)
    assert joining.requests() == []
    joining.bootstrap_token(next(_tokens))
    joining.join()


def test_a_certificate_for_another_node_is_not_used(joining: Joining) -> None:
    """The request of this node is replaced by one of another node, with the key of this one."""
    assert joining.fails(wait=0).reason == "CertificatePending"
    request = joining.directory / "state" / "client" / "request.pem"
    key = request.read_text().partition("-----BEGIN CERTIFICATE REQUEST")[0]
    command = ["openssl", "req", "-new", "-key", "/dev/stdin", "-subj", "/O=nodeagent/CN=nodeagent:other"]
    other = subprocess.run(command, input=key, capture_output=True, text=True, check=True).stdout
    request.write_text(key + other)
    known = joining.names()
    running = joining.start()
    # It notices that, and requests one for its own name with a key of its own.
    joining.decide(joining.wait_request(known))
    assert ended(running) == 0
    assert key not in joining.pem.read_text()


@pytest.mark.parametrize("moment", ["requested", "approved"])
def test_a_kill(joining: Joining, moment: str) -> None:
    running = joining.start_process()
    name = joining.wait_request()
    if moment == "approved":
        running.send_signal(signal.SIGSTOP)
        joining.decide(name)
    running.kill()
    running.wait()
    if moment == "requested":
        joining.decide(name)
    joining.run()
    assert len(joining.requests()) == 1
    assert [path.name for path in joining.pem.parent.iterdir()] == ["client.pem"]


def test_the_rights_of_the_bootstrap_end_there(joining: Joining) -> None:
    """The token and the agent may request client certificates under their own names, and approve none."""
    joining.join()
    agent = joining.cluster.api(joining.user, ["nodeagent"])
    name = joining.requests()[0]["metadata"]["name"]
    for body in (
        foreign("nodeagent-other-1"),
        foreign(f"nodeagent-{joining.node}-1", signerName="kubernetes.io/kube-apiserver-client-kubelet"),
        foreign(f"nodeagent-{joining.node}-1", usages=["server auth"]),
    ):
        with pytest.raises(ApiError) as caught:
            agent.create(REQUESTS, body)
        assert caught.value.status == 403
    for attempt in (
        lambda: agent.get(REQUESTS),
        lambda: agent.delete(f"{REQUESTS}/{name}"),
        lambda: joining.decide(name, by=agent),
    ):
        with pytest.raises(ApiError) as caught:
            attempt()
        assert caught.value.status == 403


@pytest.fixture
def approver(joining: Joining) -> Approver:
    """An operator with the role of an approver, and a kubeconfig."""
    user = f"approver-{joining.node}"
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nodeagent-approver"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    joining.cluster.admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    return Approver(joining.cluster.api(user), str(joining.cluster.kubeconfig(user)))


@dataclass
class Approver:
    api: Api
    kubeconfig: str

    def approve(self, *words: str) -> int:
        return main(["fleet", "approve", "--kubeconfig", self.kubeconfig, *words])


def test_the_role_of_an_approver_is_enough(joining: Joining, approver: Approver) -> None:
    running = joining.start()
    joining.decide(joining.wait_request(), by=approver.api)
    assert ended(running) == 0
    with pytest.raises(ApiError):
        approver.api.create(REQUESTS, foreign("nodeagent-x-1"))


def test_a_join_and_a_renewal_by_the_command(
    joining: Joining, approver: Approver, capsys: pytest.CaptureFixture[str]
) -> None:
    running = joining.start()
    name = joining.wait_request()
    # A first request is no renewal, and stays pending.
    assert approver.approve("--renewals") == 0
    assert approver.approve("--dry-run") in (0, 4)
    assert f"fits: {name} (first request of node {joining.node})" in capsys.readouterr().out
    assert "conditions" not in joining.cluster.admin.get(f"{REQUESTS}/{name}")["status"]
    assert approver.approve(name) == 0
    assert ended(running) == 0
    assert approver.approve(name) == 4
    assert "is pending" in capsys.readouterr().out
    known = joining.names()
    running = joining.start(renew=True)
    renewal = joining.wait_request(known)
    assert approver.approve("--renewals") == 0
    assert f"approved: {renewal} (renewal of node {joining.node})" in capsys.readouterr().out
    assert ended(running) == 0


def crafted(node: str, subject: str, *words: str, curve: str = "P-256") -> tuple[str, bytes]:
    """The name and the request of a client that has a bootstrap token, and more in mind than joining."""
    key = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{curve}", "-nodes"]
    command = [*key, "-config", "/dev/null", "-subj", subject, "-keyout", "/dev/null", *words]
    pem = subprocess.run(command, check=True, capture_output=True).stdout
    return request_name(node, pem), pem


def test_requests_that_are_not_exactly_those_of_a_node(
    joining: Joining, approver: Approver, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API server takes each of them from the token, and the signer would sign them."""
    node = joining.node
    token = joining.cluster.api(f"system:bootstrap:{node}", ["system:bootstrappers:nodeagent"])
    sound = f"/O=nodeagent/CN=nodeagent:{node}"
    attempts = {
        "its organization is not": crafted(node, f"/O=system:nodes/CN=nodeagent:{node}"),
        "its common name is not": crafted(node, "/O=nodeagent/CN=system:admin"),
        "one organization and one common": crafted(node, f"{sound}/CN=system:admin"),
        "it requests extensions": crafted(node, sound, "-addext", "subjectAltName=DNS:kubernetes.default"),
        "the curve P-256": crafted(node, sound, curve="P-384"),
        "its name is not the one": crafted(node, "/O=nodeagent/CN=nodeagent:other"),
    }
    for why, (name, pem) in attempts.items():
        token.create(REQUESTS, request_object(name, pem))
        assert approver.approve(name) == 4
        assert why in capsys.readouterr().out
        assert "conditions" not in joining.cluster.admin.get(f"{REQUESTS}/{name}")["status"]
    # A signature by another key: the API server itself refuses it, so the approver need not check it.
    name, pem = crafted(node, sound)
    der = bytearray(base64.b64decode(b"".join(pem.splitlines()[1:-1])))
    der[-1] ^= 1
    broken = b"\n".join([pem.splitlines()[0], base64.b64encode(der), pem.splitlines()[-1], b""])
    with pytest.raises(ApiError) as caught:
        token.create(REQUESTS, request_object(request_name(node, broken), broken))
    assert caught.value.status == 422
    # What it names is another object by the time of the approval.
    token.create(REQUESTS, request_object(name, pem))
    read = joining.cluster.admin.get(f"{REQUESTS}/{name}")
    joining.cluster.admin.delete(f"{REQUESTS}/{name}")
    token.create(REQUESTS, request_object(name, pem))

    async def late() -> None:
        async with KubeClient(ClusterAccess(approver.kubeconfig), SystemClock()) as client:
            await approve(client, decoded(CertificateRequest, read, "test"), Applicant(node, renewal=False))

    with pytest.raises(Conflict):
        asyncio.run(late())
    assert "conditions" not in joining.cluster.admin.get(f"{REQUESTS}/{name}")["status"]


def test_the_pem_is_one_file_with_its_key(joining: Joining) -> None:
    joining.join()
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(joining.pem)
