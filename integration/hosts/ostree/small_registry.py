# SPDX-License-Identifier: Apache-2.0
"""A registry of container images on a host's loopback address. It is a program: the host's own Python runs it.

    python3 small_registry.py DIRECTORY PORT USER:PASSWORD

DIRECTORY has one file for each manifest and blob, by digest, and gets a line in `requests` for each request that was
served. Every request needs the user; without one the answer is that of a real registry (OCI distribution
specification), and `unavailable` in DIRECTORY makes every answer 503.
"""

from __future__ import annotations

import base64
import http.server
import sys
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Handler(http.server.BaseHTTPRequestHandler):
    directory: Path
    user: str

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        wanted = f"Basic {base64.b64encode(self.user.encode()).decode()}"
        if (self.directory / "unavailable").exists():
            self._send(503, b"", body=body)
        elif self.headers.get("Authorization") != wanted:
            self._send(401, b"{}", body=body, headers={"WWW-Authenticate": 'Basic realm="tests"'})
        elif self.path == "/v2/":
            self._send(200, b"{}", body=body)
        else:
            self._send_file(body=body)

    def _send_file(self, *, body: bool) -> None:
        digest = self.path.rpartition("/")[2]
        file = self.directory / digest.replace(":", "-")
        if "/" in digest or not file.is_file():
            self._send(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}', body=body)
            return
        with (self.directory / "requests").open("a") as log:
            log.write(f"{self.command} {self.path}\n")
        kind = MANIFEST if "/manifests/" in self.path else "application/octet-stream"
        headers = {"Content-Type": kind, "Docker-Content-Digest": digest}
        self._send(200, file.read_bytes(), body=body, headers=headers)

    def _send(self, status: int, content: bytes, *, body: bool, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(content)


def main(directory: str, port: str, user: str) -> None:
    Handler.directory, Handler.user = Path(directory), user
    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
