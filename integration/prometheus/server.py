# SPDX-License-Identifier: Apache-2.0
"""Prometheus and promtool of Debian, in a cached image of their own, and a server whose data were written before.

Nothing is installed on this machine: both run in a chroot, the server with the network of this machine.
"""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

from integration import tls
from integration.browser.browser import image_with
from integration.hosts import process
from integration.hosts.container import container_host
from integration.hosts.errors import HostRingError
from integration.hosts.requirements import Say
from integration.trees.base import CHROOT_ENV, chrooted
from integration.trees.toolbox import scratch

EXAMPLES: Final = Path(__file__).parents[2] / "docs" / "examples"
# Seconds for the start of the server, one of its answers, and one run of promtool.
START: Final = 60.0
ANSWER: Final = 30.0
TOOL: Final = 120.0
_FOLDER: Final = "srv/nodeagent"
# The samples of the tests are older than the server would keep them.
_RETENTION: Final = "100y"


class Prometheus:
    """A root directory with both programs, and the files of docs/examples in the working directory of promtool."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(EXAMPLES, root / _FOLDER)

    def write(self, name: str, text: str) -> None:
        (self.root / _FOLDER / name).write_text(text, encoding="utf-8")

    def promtool(self, *words: str, stdin: str = "") -> tuple[int, str]:
        """Return the exit status and all of the output."""
        argv = ["env", f"--chdir=/{_FOLDER}", "promtool", *words]
        argv = ["chroot", str(self.root), *argv]
        done = process.run(argv, timeout=TOOL, stdin=stdin.encode(), check=False, env=CHROOT_ENV)
        return done.returncode, (done.stdout + done.stderr).decode()

    @contextmanager
    def serving(self, samples: Iterable[str]) -> Iterator[Server]:
        """Start a server with these samples, lines of OpenMetrics, and with the alerting rules."""
        self.write("samples.txt", "".join(f"{line}\n" for line in (*samples, "# EOF")))
        self.write("prometheus.yml", "rule_files: [alerts.yaml]\n")
        status, output = self.promtool("tsdb", "create-blocks-from", "openmetrics", "samples.txt", "data")
        if status:
            raise HostRingError(f"the samples cannot be loaded: {output}")
        with self._running("prometheus.yml", "data") as server:
            yield server

    @contextmanager
    def firing(self, alert: str, certificate: Path, key: Path) -> Iterator[Server]:
        """Start a server with TLS, in which a critical alert fires within seconds."""
        rule = {"alert": alert, "expr": "vector(1)", "labels": {"severity": "critical"}}
        self.write("firing.yaml", json.dumps({"groups": [{"name": "gate", "rules": [rule]}]}))
        self.write("firing.yml", "global: {evaluation_interval: 1s}\nrule_files: [firing.yaml]\n")
        for source, name in ((certificate, "cert.pem"), (key, "key.pem")):
            self.write(name, source.read_text(encoding="ascii"))
        self.write("web.yml", "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n")
        context = tls.client(certificate)
        options = (f"--web.config.file=/{_FOLDER}/web.yml",)
        with self._running("firing.yml", "firing-data", *options, context=context) as server:
            yield server

    @contextmanager
    def _running(
        self, config: str, data: str, *options: str, context: ssl.SSLContext | None = None
    ) -> Iterator[Server]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        argv = ["chroot", str(self.root), "prometheus", f"--config.file=/{_FOLDER}/{config}"]
        argv += [f"--storage.tsdb.path=/{_FOLDER}/{data}", f"--storage.tsdb.retention.time={_RETENTION}"]
        argv += [f"--web.listen-address=127.0.0.1:{port}", *options]
        with ExitStack() as stack:
            log = stack.enter_context(tempfile.TemporaryFile())
            running = stack.enter_context(subprocess.Popen(argv, env=CHROOT_ENV, stdout=log, stderr=log))
            stack.callback(running.kill)
            server = Server(f"http{'s' if context else ''}://127.0.0.1:{port}", context)
            server.wait_ready(running)
            yield server


class Server:
    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._context = context

    def wait_ready(self, running: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START
        while running.poll() is None and time.monotonic() < until:
            try:
                urllib.request.urlopen(f"{self.address}/-/ready", timeout=ANSWER, context=self._context).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise HostRingError(f"Prometheus is not ready (exit status {running.poll()})")

    def query(self, expression: str, start: int, end: int) -> list[dict[str, Any]]:
        """Return the series of an expression over this range, with a value for each minute."""
        found: list[dict[str, Any]] = self._ask(
            "query_range", query=expression, start=str(start), end=str(end), step="60"
        )["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def _ask(self, path: str, **parameters: str) -> Any:
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=ANSWER, context=self._context) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise HostRingError(f"{parameters or path}: {error.read().decode()}") from None


@contextmanager
def unpacked(say: Say) -> Iterator[Prometheus]:
    """Raises Unavailable where no image can be made."""
    container_host.sweep()
    message = "installing Prometheus for the tests of metrics, half a minute, once"
    made = image_with("prometheus", ("prometheus",), say, message)
    with closing(made) as image, scratch(image) as root, chrooted(root):
        yield Prometheus(root)
