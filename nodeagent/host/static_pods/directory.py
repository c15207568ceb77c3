"""The directory of manifests, as the kubelet of this host is configured: file, drop-ins and flags."""

from __future__ import annotations

from pathlib import Path

from nodeagent.domains import kubelet, static_pods
from nodeagent.host.view import read_files

__all__ = ["host_directory"]


def host_directory(root: Path) -> str:
    """Return ``staticPodPath``, or the usual directory if it is not set. Blocks: it reads files."""
    return static_pods.directory(read_files(kubelet.DOMAIN.reads, root=root))
