# SPDX-License-Identifier: Apache-2.0
"""An admission webhook that denies, breaks or takes its time, as those do that move pods in their own way."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from integration import tls
from integration.cluster.cluster import Cluster

HOLD = 25.0
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class _Handler(BaseHTTPRequestHandler):
    broken = False
    hold: threading.Event | None = None
    reached: threading.Event

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.broken:
            self.close_connection = True  # without a word: the API server sees EOF
            return
        if self.hold is not None:
            self.reached.set()
            self.hold.wait(HOLD)
        status = {"message": "the virtual machine is being moved"}
        response = {"uid": review["request"]["uid"], "allowed": self.hold is not None, "status": status}
        body = json.dumps({**review, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


@contextlib.contextmanager
def denying(
    cluster: Cluster, namespace: str, *, broken: bool = False, hold: threading.Event | None = None
) -> Iterator[threading.Event]:
    """Every eviction in `namespace` is denied, or meets a webhook that hangs up, or one that allows it when `hold` is
    set, or after `HOLD` seconds. The event that is yielded is set once an eviction is held."""
    certificate, key = cluster.authority.server("webhook", "IP:127.0.0.1")
    reached = threading.Event()
    handler = type("Handler", (_Handler,), {"broken": broken, "hold": hold, "reached": reached})
    server = tls.HttpsServer(handler, tls.server(certificate, key))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    name = f"mover.{namespace}.example.com"
    hook = {
        "name": name,
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_address[1]}/",
            "caBundle": base64.b64encode(cluster.authority.certificate.read_bytes()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 2 if hold is None else 30,
    }
    cluster.admin.create(CONFIGURATIONS, {"metadata": {"name": name}, "webhooks": [hook]})
    try:
        yield reached
    finally:
        cluster.admin.delete(f"{CONFIGURATIONS}/{name}")
        server.shutdown()
        server.server_close()
        thread.join()
