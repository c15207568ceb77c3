# SPDX-License-Identifier: Apache-2.0
"""The steps of `nodeagent bootstrap`. Each of them may be the last one before a kill: the next run continues.

``prepare`` reads settings, kubeconfigs and keys, ``request`` reads answers of the API server, and ``install`` writes
the kubeconfig. An operator runs them in one process; the units run each of them with its own rights
(``_units``).

The certificate in use stays until the API server has accepted the new one. The daemon reads the new one without a
restart, because the file that its kubeconfig names has changed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nodeagent.cli._io import printable
from nodeagent.errors import InvalidInput, Refused
from nodeagent.features.certificates.decide.client_certificate import user_of
from nodeagent.features.certificates.directory import CertificateDirectory
from nodeagent.features.certificates.kubeconfig import client_certificate_of, cluster_of, kubeconfig, self_contained
from nodeagent.features.certificates.requests import obtain, verify
from nodeagent.host.clock import SystemClock
from nodeagent.host.fs.atomic import new_file
from nodeagent.host.fs.os_errors import translated
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.errors import Unauthorized
from nodeagent.reasons import Reason
from nodeagent.settings.schema import Settings

# Seconds for the check of the new certificate: the API server has just issued it.
VERIFY: Final = 60.0


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """A kubeconfig of the host whose contents name no other file. ``path`` is its place, for messages."""

    path: str
    kubeconfig: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Task:
    """What to request: a certificate for ``node``, with the first of ``sources`` that is accepted. There is none if the
    certificate of the host is not due."""

    node: str
    sources: tuple[Kubeconfig, ...] = ()


def bootstrap(settings: Settings, source: Path, *, wait: float, renew: bool) -> int:
    """Take all steps. Return 0. Raises ``AgentError``; what is in use is as before then."""
    task = prepare(settings, source, renew=renew)
    if task.sources:
        request(task, _places(settings)[1], wait=wait)
    install(settings, source)
    return 0


def prepare(settings: Settings, source: Path, *, renew: bool = False) -> Task:
    """Return what is to be requested. Raises ``AgentError``."""
    node = settings.node_name
    # A host may get its name late, and each host of the fleet could use a certificate of this name.
    if node.partition(".")[0] == "localhost":
        raise Refused("this host has no name yet", reason=Reason.NODE_UNKNOWN, hint="set its host name, or node_name")
    target, folder = _places(settings)
    own = _is_own(target, folder)
    # The timer and an operator may run the command at the same time.
    with folder.locked():
        now = _now()
        life = folder.validity()
        if life is not None and not renew and now < life.renewal:
            folder.forget_request()
            print(
                f"{user_of(node)} has a certificate until {_date(life.end)}; it is renewed from {_date(life.renewal)}"
            )
            return Task(node)
    usable = own and life is not None and not life.ended(now)
    # The certificate in use comes first: a renewal by the node gives no new rights, so it needs no operator. A token
    # may have ended long ago.
    paths = [path for path, given in ((target, usable), (source, source.exists())) if given]
    if not paths:
        raise InvalidInput(f"{source}: no such file", reason=Reason.KUBECONFIG_INVALID)
    return Task(node, tuple(Kubeconfig(str(path), self_contained(path).decode()) for path in paths))


def request(task: Task, folder: CertificateDirectory, *, wait: float) -> None:
    """Get a certificate into ``folder``. Raises ``AgentError``; what is in use is as before then."""
    with folder.locked():
        with TemporaryDirectory(prefix="nodeagent-") as private:
            sources = [(source.path, Path(private, f"source-{number}")) for number, source in enumerate(task.sources)]
            for (_, path), source in zip(sources, task.sources, strict=True):
                path.write_text(source.kubeconfig, encoding="utf-8")
            certificate = asyncio.run(_obtain(sources, task.node, folder.request(), wait, private))
            new = folder.store(certificate)
            # The new certificate is tried with a kubeconfig of its own, because the daemon uses the other one.
            trial = Path(private) / "kubeconfig"
            trial.write_bytes(kubeconfig(cluster_of(sources[0][1]), folder.candidate))
            asyncio.run(_verify(trial, task.node, private))
        folder.adopt()
    print(f"{user_of(task.node)} has a certificate until {_date(new.end)}")


def renewed(folder: CertificateDirectory) -> bool:
    """Return whether ``folder`` has a certificate that is not due. A kill before its installation leaves it there."""
    with folder.locked():
        life = folder.validity()
        return life is not None and _now() < life.renewal


def install(settings: Settings, source: Path, obtained: bytes = b"") -> None:
    """Take over ``obtained``, a key and a certificate from elsewhere, and write the kubeconfig if there is none: an
    admin may change the address in it. Raises ``AgentError``."""
    target, folder = _places(settings)
    with folder.locked():
        if obtained:
            folder.take(obtained)
        if _is_own(target, folder) or not folder.current.exists():
            return
        content = kubeconfig(cluster_of(source), folder.current)
        with translated("write", str(target)):
            fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                with new_file(fd, target.name, mode=0o600) as write:
                    write(content)
            finally:
                os.close(fd)


def _places(settings: Settings) -> tuple[Path, CertificateDirectory]:
    """Return the kubeconfig and the directory of the certificate."""
    if not settings.cluster.kubeconfig:
        raise InvalidInput(
            "cluster.kubeconfig is not set", reason=Reason.USAGE, hint="set it to the file that bootstrap writes"
        )
    folder = CertificateDirectory(Path(settings.state_dir) / "client", settings.node_name)
    return Path(settings.cluster.kubeconfig), folder


def _is_own(target: Path, folder: CertificateDirectory) -> bool:
    """Return whether the kubeconfig names the certificate of ``folder``; False if there is none yet.

    Raises ``InvalidInput`` if it has other credentials, which are not replaced.
    """
    if not os.path.lexists(target):
        return False
    if client_certificate_of(target) != folder.current:
        raise InvalidInput(
            f"{target} has credentials that nodeagent bootstrap did not write",
            reason=Reason.CANNOT_WRITE,
            hint=f"move it away, or name another file in cluster.kubeconfig; its user must have {folder.current}",
        )
    return True


async def _obtain(sources: Sequence[tuple[str, Path]], node: str, request: bytes, wait: float, private: str) -> bytes:
    """Request with the certificate in use, and with the bootstrap credentials if it is not accepted."""
    # The number is 0 at the last one, whose error is the one to report.
    for left, (source, path) in enumerate(sources, 1 - len(sources)):
        async with KubeClient(ClusterAccess(str(path), private=private), SystemClock()) as client:
            try:
                return await obtain(client, node, request, wait=wait, waiting=_waiting)
            except Unauthorized as fault:
                if left == 0:
                    fault.hint = f"put a valid token into {source}: the one in it may have ended"
                    raise
    raise AssertionError("there is at least one kubeconfig")


async def _verify(trial: Path, node: str, private: str) -> None:
    async with KubeClient(ClusterAccess(str(trial), private=private), SystemClock()) as client:
        await verify(client, node, wait=VERIFY)


def _waiting(name: str) -> None:
    # Flushed, because an operator reads it in the journal while the command waits.
    print(f"waiting for the approval: nodeagent fleet approve {printable(name)}", flush=True)


def _now() -> float:
    return time.time()  # noqa: TID251 - a certificate ends by the wall clock


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
