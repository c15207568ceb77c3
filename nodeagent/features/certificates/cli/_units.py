# SPDX-License-Identifier: Apache-2.0
"""The steps of `nodeagent bootstrap` as its units run them, each with the rights that it needs.

``nodeagent-bootstrap-prepare.service`` is root without a network and writes a task: the kubeconfigs with the keys that
they name. ``nodeagent-bootstrap.service`` gets the task as a credential of systemd, has the network, a user and a
directory of its own, and sees no file of the host. ``nodeagent-bootstrap-install.service`` is root without a network
again and gets as a credential what the second one left.

The second unit ends as the first one did: its result is the one that an admin sees, and that decides when the steps are
tried again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from nodeagent.core.config.text import plain_json
from nodeagent.errors import AgentError, InvalidInput
from nodeagent.features.certificates.cli._steps import Kubeconfig, Task, install, prepare, renewed, request
from nodeagent.features.certificates.directory import CertificateDirectory
from nodeagent.host.fs.atomic import new_file
from nodeagent.host.fs.os_errors import translated
from nodeagent.reasons import Reason
from nodeagent.settings.schema import Settings

# Names of the credentials, and the name of the task in the directory of the first unit.
TASK: Final = "task.json"
CERTIFICATE: Final = "certificate"
# The credential for a certificate that is not there: systemd cannot pass an empty one.
NONE: Final = b"none"


def prepare_task(settings: Settings, source: Path) -> int:
    directory = _directory("RUNTIME_DIRECTORY")
    try:
        task = prepare(settings, source)
    except AgentError as error:
        _write(directory, {"failed": error.exit_code})
        raise
    sources = [{"path": source.path, "kubeconfig": source.kubeconfig} for source in task.sources]
    _write(directory, {"failed": 0, "node": task.node, "sources": sources})
    return 0


def _write(directory: Path, task: object) -> None:
    with translated("write", str(directory / TASK)):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with new_file(fd, TASK, mode=0o600) as write:
                write(json.dumps(task).encode())
        finally:
            os.close(fd)


def request_task(wait: float) -> int:
    """Return the exit status of the first step if that failed. Raises ``AgentError``."""
    with translated("read", TASK):
        content = (_directory("CREDENTIALS_DIRECTORY") / TASK).read_bytes()
    data = plain_json.loads(content)
    if failed := data["failed"]:
        print("nodeagent-bootstrap-prepare.service failed")
        return int(failed)
    task = Task(data["node"], tuple(Kubeconfig(source["path"], source["kubeconfig"]) for source in data["sources"]))
    # The path is a link for a unit whose user exists while it runs.
    folder = CertificateDirectory(_directory("STATE_DIRECTORY").resolve(), task.node)
    if not task.sources:
        # The certificate is installed: no second copy of its key is kept.
        with folder.locked():
            folder.clear()
    elif not renewed(folder):
        request(task, folder, wait=wait)
    return 0


def install_certificate(settings: Settings, source: Path) -> int:
    with translated("read", CERTIFICATE):
        obtained = (_directory("CREDENTIALS_DIRECTORY") / CERTIFICATE).read_bytes()
    install(settings, source, b"" if obtained == NONE else obtained)
    return 0


def _directory(variable: str) -> Path:
    """Return a directory that systemd passes to a unit."""
    if not (path := os.environ.get(variable, "")):
        raise InvalidInput(
            f"{variable} is not set",
            reason=Reason.USAGE,
            hint="--step is for the units: systemctl start nodeagent-bootstrap",
        )
    return Path(path)
