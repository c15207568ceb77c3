# SPDX-License-Identifier: Apache-2.0
"""A registry of container images on a host's loopback address. It is a program: the host's own Python runs it.

    python3 small_registry.py DIRECTORY PORT STATE [USER:PASSWORD]

DIRECTORY has one file for each manifest and blob at blobs/sha256, as an OCI layout has them; an image has no tags.
STATE gets a line in `requests` for each request that was served. Where a user is given, every request needs it; without
it the answer is that of a real registry (OCI distribution specification).

STATE/faults.json, read at each request, makes the registry misbehave:

    {"of": "/blobs/", "status": 503}      for requests whose path has that text; "of" may be left out
    {"wrong": true}                       content of the right length with another last byte
    {"hang": true}                        half of the content, and then nothing
    {"delay": 2.5}                        seconds before an answer
    {"rate": 100000}                      bytes in a second
    {"status": 401, "times": 1}           for that many requests, since the file was written
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
BLOBS = "blobs/sha256"
FAULTS = "faults.json"
REQUESTS = "requests"
PIECE = 64 << 10
NOT_FOUND = b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}'


class Handler(http.server.BaseHTTPRequestHandler):
    directory: Path
    state: Path
    user: str
    counted: dict[float, int]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        fault = self._fault()
        time.sleep(fault.get("delay", 0))
        wanted = f"Basic {base64.b64encode(self.user.encode()).decode()}"
        status = fault.get("status", 0)
        if status == 401 or (not status and self.user and self.headers.get("Authorization") != wanted):
            self._send(401, b"{}", body=body, headers={"WWW-Authenticate": 'Basic realm="tests"'})
        elif status:
            self._send(status, b"", body=body)
        elif self.path == "/v2/":
            self._send(200, b"{}", body=body)
        else:
            self._send_file(fault, body=body)

    def _fault(self) -> Mapping[str, Any]:
        """The fault of this request; {} for none."""
        path = self.state / FAULTS
        try:
            fault: Mapping[str, Any] = json.loads(path.read_text())
            written = path.stat().st_mtime
        except (FileNotFoundError, ValueError):
            return {}
        if fault.get("of", "") not in self.path:
            return {}
        self.counted[written] = self.counted.get(written, 0) + 1
        return fault if self.counted[written] <= fault.get("times", sys.maxsize) else {}

    def _send_file(self, fault: Mapping[str, Any], *, body: bool) -> None:
        digest = self.path.rpartition("/")[2]
        file = self.directory / BLOBS / digest.removeprefix("sha256:")
        if not digest.startswith("sha256:") or not file.is_file():
            self._send(404, NOT_FOUND, body=body)
            return
        with (self.state / REQUESTS).open("a") as log:
            log.write(f"{self.command} {self.path}\n")
        content = file.read_bytes()
        if fault.get("wrong"):
            content = content[:-1] + bytes([content[-1] ^ 1])
        kind = MANIFEST if "/manifests/" in self.path else "application/octet-stream"
        headers = {"Content-Type": kind, "Docker-Content-Digest": digest}
        self._send(200, content, fault, body=body, headers=headers)

    def _send(
        self,
        status: int,
        content: bytes,
        fault: Mapping[str, Any] | None = None,
        *,
        body: bool,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self._send_body(content, fault or {})

    def _send_body(self, content: bytes, fault: Mapping[str, Any]) -> None:
        if fault.get("hang"):
            self.wfile.write(content[: len(content) // 2])
            time.sleep(3600)
        elif rate := fault.get("rate"):
            for start in range(0, len(content), PIECE):
                self.wfile.write(content[start : start + PIECE])
                time.sleep(PIECE / rate)
        else:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        """The journal has enough without a line for each request."""


def server(directory: Path, port: int, state: Path, user: str = "") -> http.server.ThreadingHTTPServer:
    """Return a server that is bound; port 0 is any free one."""
    about = {"directory": directory, "state": state, "user": user, "counted": {}}
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), type("Bound", (Handler,), about))


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[int]:
    """Serve a directory on this machine, without faults, for as long as the context is open. The value is the port."""
    with tempfile.TemporaryDirectory() as state, server(directory, 0, Path(state)) as bound:
        thread = threading.Thread(target=bound.serve_forever, daemon=True)
        thread.start()
        try:
            yield int(bound.server_address[1])
        finally:
            bound.shutdown()
            thread.join()


def registries_conf(name: str, port: int) -> str:
    """Return the settings, below /etc/containers/registries.conf.d, that lead a registry's name to a server here."""
    return f'[[registry]]\nprefix = "{name}"\nlocation = "127.0.0.1:{port}"\ninsecure = true\n'


def main(directory: str, port: str, state: str, user: str = "") -> None:
    Path(state).mkdir(parents=True, exist_ok=True)
    server(Path(directory), int(port), Path(state), user).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
