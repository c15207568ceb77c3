# SPDX-License-Identifier: Apache-2.0
"""A client with the credentials of this node's kubelet, for evictions.

An eviction names a pod and not its node, so a ValidatingAdmissionPolicy can only compare it with all pods of its
namespace. For a kubelet the API server looks up the one pod, and admits it if it is on the kubelet's node
(kubernetes:plugin/pkg/admission/noderestriction/admission.go, admitPodEviction).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nodeagent.domains.kubelet.document import is_kubeconfig
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.update.ports.host import Clock

# OpenShift and the kubelet's own default, then kubeadm. OpenShift has the configuration of the kubelet at the second.
PLACES: Final = ("/var/lib/kubelet/kubeconfig", "/etc/kubernetes/kubelet.conf")
# A kubeconfig may contain its certificates.
MAX_BYTES: Final = 1024 * 1024


async def kubelet_client(
    kubeconfig: str, clock: Clock, *, private: str = "/run/nodeagent", places: Sequence[str] = PLACES
) -> KubeClient | None:
    """Return a client with the credentials of ``kubeconfig``, which has sent no request. If it is "", they are those of
    the first of ``places`` that is a kubeconfig; None without one. ``private`` is that of ``ClusterAccess``."""
    path = kubeconfig or await asyncio.to_thread(_first, places)
    return KubeClient(ClusterAccess(path, private=private), clock) if path else None


def _first(places: Sequence[str]) -> str:
    return next((place for place in places if _has_kubeconfig(Path(place))), "")


def _has_kubeconfig(path: Path) -> bool:
    try:
        return is_kubeconfig(read_regular(path, MAX_BYTES))
    except OSError:
        return False
