# SPDX-License-Identifier: Apache-2.0
"""A proxy between an agent and the API server that ends TLS, as a load balancer does.

Its certificate can be rotated, its connections cut, and its ``Date`` shifted, so that a test has an API server with a
clock or an authority of its own without touching the machine's. Everything else is the real one's; each client shows a
token, since a certificate does not get past the end of TLS.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from integration import tls
from integration.cluster.api import TIMEOUT
from integration.cluster.cluster import LEASES, Cluster
from integration.cluster.pki import Authority

ACCOUNT: Final = "through-the-front"
PASSED: Final = ("Content-Type", "Retry-After")


class TlsProxy:
    """``ahead``: seconds that its clock is ahead of the API server's."""

    def __init__(self, cluster: Cluster, authority: Authority) -> None:
        self.ahead = 0.0
        self._cluster = cluster
        self._context = tls.server(*_certificate(authority))
        self._behind = tls.client(cluster.authority.certificate)
        self._connections: set[socket.socket] = set()
        handler = type("Handler", (_Handler,), {"tls_proxy": self})
        self._server = tls.HttpsServer(handler, self._context)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def use(self, authority: Authority) -> None:
        """Present a new certificate of this authority from the next connection on, and end the present connections."""
        self._context.load_cert_chain(*_certificate(authority))
        self.cut()

    def cut(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.shutdown()
        self.cut()
        self._server.server_close()
        self._thread.join()

    def kubeconfig(self, token: Path, ca: Path) -> Path:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "front",
            "clusters": [{"name": "front", "cluster": {"server": self.url, "certificate-authority": str(ca)}}],
            "users": [{"name": "front", "user": {"tokenFile": str(token)}}],
            "contexts": [{"name": "front", "context": {"cluster": "front", "user": "front"}}],
        }
        path = token.with_name("front.kubeconfig")
        path.write_text(json.dumps(document))
        return path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def meets(self, connection: socket.socket) -> None:
        self._connections.add(connection)

    def parts(self, connection: socket.socket) -> None:
        self._connections.discard(connection)

    def ask(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The API server's answer, with the proxy's time."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._cluster.port, context=self._behind, timeout=TIMEOUT)
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            text = response.read()
            passed = {name: value for name in PASSED if (value := response.getheader(name)) is not None}
            return response.status, {**passed, "Date": self.date()}, text
        finally:
            connection.close()

    def now(self) -> float:
        """Seconds since the epoch by the proxy's clock."""
        return time.time() + self.ahead  # noqa: TID251 - the clock of the machine

    def date(self) -> str:
        return formatdate(int(self.now()), usegmt=True)


def _certificate(authority: Authority) -> tuple[Path, Path]:
    return authority.server("front", "IP:127.0.0.1")


class _Handler(BaseHTTPRequestHandler):
    tls_proxy: TlsProxy
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.tls_proxy.meets(self.connection)

    def finish(self) -> None:
        self.tls_proxy.parts(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        keep = {name: self.headers[name] for name in ("Authorization", "Content-Type", "Accept", "User-Agent")
                if name in self.headers}  # fmt: skip
        try:
            status, headers, text = self.tls_proxy.ask(self.command, self.path, keep, body)
        except OSError:  # the server behind it hangs: so does the proxy
            self.close_connection = True
            return
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PATCH = do_DELETE = _pass  # noqa: N815 - the names are the protocol's

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


@contextlib.contextmanager
def tls_proxy_of(cluster: Cluster, authority: Authority) -> Iterator[TlsProxy]:
    made = TlsProxy(cluster, authority)
    try:
        yield made
    finally:
        made.close()


def bound_token(cluster: Cluster, name: str) -> str:
    """A token of an account that may do everything. It is void as soon as the Secret ``name`` is deleted."""
    _account(cluster)
    secret = cluster.admin.create(f"/api/v1/namespaces/{LEASES}/secrets", {"metadata": {"name": name}})
    bound = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": secret["metadata"]["uid"]}
    path = f"/api/v1/namespaces/{LEASES}/serviceaccounts/{ACCOUNT}/token"
    token: str = cluster.admin.create(path, {"spec": {"boundObjectRef": bound}})["status"]["token"]
    return token


def revoke(cluster: Cluster, name: str) -> None:
    cluster.admin.delete(f"/api/v1/namespaces/{LEASES}/secrets/{name}")


def _account(cluster: Cluster) -> None:
    accounts = f"/api/v1/namespaces/{LEASES}/serviceaccounts"
    if cluster.admin.find(f"{accounts}/{ACCOUNT}") is not None:
        return
    cluster.admin.create(accounts, {"metadata": {"name": ACCOUNT}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": LEASES}
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    cluster.admin.create(bindings, {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]})
