"""The steps of `nodeagent bootstrap`. Each of them may be the last one before a kill: the next run continues.

``request`` reads answers of the API server, and writes only the directory of the certificate. ``install`` reads none
and writes the kubeconfig, so that the unit can run the first one without the right to write in /etc/nodeagent.

The certificate in use stays until the API server has accepted the new one. The daemon reads the new one without a
restart, because the file that its kubeconfig names has changed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nodeagent.cli._io import printable
from nodeagent.core.coordination.client_certificate import user_of
from nodeagent.errors import InvalidInput, Refused
from nodeagent.host.client_certificate import CertificateDirectory
from nodeagent.host.clock import SystemClock
from nodeagent.host.fs.atomic import new_file
from nodeagent.host.fs.os_errors import translated
from nodeagent.kube.certificate import obtain, verify
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess, client_certificate_of, cluster_of, kubeconfig
from nodeagent.kube.errors import Unauthorized
from nodeagent.reasons import Reason
from nodeagent.settings.schema import Settings

# Seconds for the check of the new certificate: the API server has just issued it.
VERIFY: Final = 60.0


def bootstrap(settings: Settings, source: Path, *, wait: float, renew: bool) -> int:
    """Take both steps. Return 0. Raises ``AgentError``; what is in use is as before then."""
    request(settings, source, wait=wait, renew=renew)
    install(settings, source)
    return 0


def install(settings: Settings, source: Path) -> None:
    """Write the kubeconfig if there is none: an admin may change the address in it. Raises ``AgentError``."""
    target, folder = _places(settings)
    with folder.locked():
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


def request(settings: Settings, source: Path, *, wait: float, renew: bool) -> None:
    """Get a certificate, or renew it where that is due. Raises ``AgentError``; what is in use is as before then."""
    node = settings.node_name
    # A host may get its name late, and each host of the fleet could use a certificate of this name.
    if node.partition(".")[0] == "localhost":
        raise Refused("this host has no name yet", reason=Reason.NODE_UNKNOWN, hint="set its host name, or node_name")
    target, folder = _places(settings)
    own = _is_own(target, folder)
    # The timer and an operator may run the command at the same time.
    with folder.locked():
        now = time.time()  # noqa: TID251 - a certificate ends by the wall clock
        life = folder.validity()
        if life is not None and not renew and now < life.renewal:
            folder.forget_request()
            print(
                f"{user_of(node)} has a certificate until {_date(life.end)}; it is renewed from {_date(life.renewal)}"
            )
            return
        usable = own and life is not None and not life.ended(now)
        # The certificate in use comes first: a renewal by the node gives no new rights, so it needs no operator. A
        # token may have ended long ago.
        sources = [path for path, given in ((target, usable), (source, source.exists())) if given]
        if not sources:
            raise InvalidInput(f"{source}: no such file", reason=Reason.KUBECONFIG_INVALID)
        cluster = cluster_of(sources[0])
        with TemporaryDirectory(prefix="nodeagent-") as private:
            certificate = asyncio.run(_obtain(sources, node, folder.request(), wait, private))
            new = folder.store(certificate)
            # The new certificate is tried with a kubeconfig of its own, because the daemon uses the other one.
            trial = Path(private) / "kubeconfig"
            trial.write_bytes(kubeconfig(cluster, folder.candidate))
            asyncio.run(_verify(trial, node, private))
        folder.adopt()
    print(f"{user_of(node)} has a certificate until {_date(new.end)}")


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


async def _obtain(sources: Sequence[Path], node: str, request: bytes, wait: float, private: str) -> bytes:
    """Request with the certificate in use, and with the bootstrap credentials if it is not accepted."""
    # The number is 0 at the last one, whose error is the one to report.
    for left, source in enumerate(sources, 1 - len(sources)):
        async with KubeClient(ClusterAccess(str(source), private=private), SystemClock()) as client:
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


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
