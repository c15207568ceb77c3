# SPDX-License-Identifier: Apache-2.0
"""A control plane: etcd, kube-apiserver, a certificate authority, and no controllers.

There is no controller manager, scheduler or kubelet: whatever those would do, a test does itself, so it happens when
the test wants it. RBAC and the Node authorizer decide; the custom resources that nodeagent reads are there in a
minimal form.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from integration.cluster import pki
from integration.cluster.api import Api, ApiError
from integration.cluster.programs import Binaries
from integration.cluster.server import Server, free_port

HERE: Final = Path(__file__).parent
READY_TIMEOUT: Final = 240.0
ADMINS: Final = "system:masters"
LEASES: Final = "medik8s-leases"
LEASE_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES}/leases"
SLOTS: Final = "nodeagent"
SLOT_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SLOTS}/leases"
ISSUER: Final = "https://kubernetes.default.svc"


class Cluster:
    """Its files are in `directory`: certificates, logs, etcd's data, the audit log."""

    def __init__(self, binaries: Binaries, directory: Path) -> None:
        self.directory = directory
        self.authority = pki.Authority(directory / "pki")
        self.port = free_port()
        self.etcd_port = etcd_port = free_port()
        self._server_names = ("DNS:localhost", "IP:127.0.0.1", "IP:10.0.0.1")
        certificate, key = self.authority.server("apiserver", *self._server_names)
        token_key = pki.signing_key(directory / "pki" / "tokens.key")
        self._audit = directory / "audit.log"
        self.admin = self.api("admin", [ADMINS])
        etcd_url = f"http://127.0.0.1:{etcd_port}"
        # fmt: off
        self.etcd = Server("etcd", [
            str(binaries.etcd), "--name=one", f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={etcd_url}", f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{free_port()}",
            "--unsafe-no-fsync",  # no test cuts the power of this cluster
            "--log-level=warn",
        ], directory / "etcd.log", lambda: _healthy(etcd_port))
        self.apiserver = Server("kube-apiserver", [
            str(binaries.kube_apiserver), f"--etcd-servers={etcd_url}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={self.port}",
            f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}",
            f"--client-ca-file={self.authority.certificate}",
            f"--service-account-issuer={ISSUER}", f"--service-account-signing-key-file={token_key}",
            f"--service-account-key-file={token_key}", "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=Node,RBAC", "--enable-bootstrap-token-auth",
            "--enable-admission-plugins=NodeRestriction",
            "--disable-admission-plugins=ServiceAccount",  # no controller makes the default service accounts here
            "--endpoint-reconciler-type=none", "--profiling=false",
            f"--audit-policy-file={HERE / 'audit.yaml'}", f"--audit-log-path={self._audit}",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=10000",  # MB: a log that is rotated away is one that no checker reads
        ], directory / "apiserver.log", self._serves)
        # fmt: on

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.etcd.start()
        self.etcd.wait_ready(READY_TIMEOUT)
        self.apiserver.start()
        self.apiserver.wait_ready(READY_TIMEOUT)
        definitions = [yaml.safe_load(path.read_text()) for path in sorted((HERE / "crds").glob("*.yaml"))]
        for definition in definitions:
            self.admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for definition in definitions:
            self.wait_served(definition)
        for name in (LEASES, SLOTS):
            self.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})

    def restart_apiserver(self) -> None:
        self.apiserver.stop()
        self.apiserver.start()
        self.apiserver.wait_ready(READY_TIMEOUT)

    def resume(self) -> None:
        """Whatever was paused goes on."""
        self.etcd.resume()
        self.apiserver.resume()

    def close(self) -> None:
        self.apiserver.kill()
        self.etcd.kill()

    def api(self, user: str, groups: Sequence[str] = ()) -> Api:
        name = user.replace(":", "-")
        return Api(self.port, self.authority.certificate, *self.authority.client(name, user, groups))

    def kubeconfig(self, user: str, groups: Sequence[str] = (), *, token_file: Path | None = None) -> Path:
        """A kubeconfig that names files, so that they can be rotated: `authority.client` with the same name does it."""
        name = user.replace(":", "-")
        credentials: dict[str, str]
        if token_file is not None:
            credentials = {"tokenFile": str(token_file)}
        else:
            certificate, key = self.authority.client(name, user, groups)
            credentials = {"client-certificate": str(certificate), "client-key": str(key)}
        cluster = {"server": self.url, "certificate-authority": str(self.authority.certificate)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": credentials}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(json.dumps(document))
        path.chmod(0o600)
        return path

    def token(self, namespace: str, account: str, seconds: int = 600) -> str:
        """A token of a service account, which is made if it is not there."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        if self.admin.find(f"{accounts}/{account}") is None:
            self.admin.create(accounts, {"metadata": {"name": account}})
        answer = self.admin.create(f"{accounts}/{account}/token", {"spec": {"expirationSeconds": seconds}})
        token: str = answer["status"]["token"]
        return token

    def audit(self) -> Iterator[dict[str, Any]]:
        """Every request that was answered, oldest first, as audit.k8s.io/v1 events."""
        with self._audit.open() as lines:
            for line in lines:
                yield json.loads(line)

    def node(self, name: str, **metadata: Any) -> dict[str, Any]:
        return self.admin.create("/api/v1/nodes", {"metadata": {"name": name, **metadata}})

    def _serves(self) -> bool:
        try:
            return self.admin.get("/readyz") == {"text": "ok"}
        except (OSError, ApiError):
            return False

    def wait_served(self, definition: dict[str, Any]) -> None:
        spec = definition["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        deadline = time.monotonic() + READY_TIMEOUT
        while True:
            try:
                self.admin.get(path)
            except ApiError as error:  # 404 at first, then 429 while its storage is made
                assert error.status in (404, 429), error
                assert time.monotonic() < deadline, f"{path} is not served"
                time.sleep(0.05)
            else:
                return


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
