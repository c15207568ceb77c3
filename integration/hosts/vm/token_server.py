# SPDX-License-Identifier: Apache-2.0
"""An API server for one agent, on the loopback address of a guest. It is a program: the guest's own Python runs it.

    python3 token_server.py PORT RECORD NODE

It answers requests for the Node, whatever their token, and knows no other object. RECORD gets a line for each request:
the SHA-256 of its bearer token, so that no token is on the disk of the guest because of this server.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import sys
from pathlib import Path
from typing import Any


class Handler(http.server.BaseHTTPRequestHandler):
    record: Path
    node: str

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        with self.record.open("a") as record:
            record.write(f"{hashlib.sha256(token.encode()).hexdigest()}\n")
        if self.path.partition("?")[0] in (f"/api/v1/nodes/{self.node}", f"/api/v1/nodes/{self.node}/status"):
            about = {"name": self.node, "uid": "1", "resourceVersion": "1"}
            self._send(200, {"apiVersion": "v1", "kind": "Node", "metadata": about, "spec": {}, "status": {}})
        else:
            self._send(404, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound"})

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main(port: str, record: str, node: str) -> None:
    Handler.record, Handler.node = Path(record), node
    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
