# SPDX-License-Identifier: Apache-2.0
"""The programs of a node and the images of its pods, from the cache that `make cluster-tools` fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from integration.cluster import programs
from integration.hosts.container.image import Layer
from integration.hosts.node.container_image import archives

PAUSE: Final = "localhost/pause:1"
WORKLOAD: Final = "localhost/workload:1"
ETCD: Final = "localhost/etcd:1"
ETCD_NEXT: Final = "localhost/etcd:2"
"""The same program under another name: a change of the image."""
ETCD_PROGRAMS: Final = "/opt/etcd"
"""The directory of etcd, for members on the same host that are no pods."""


@dataclass(frozen=True, slots=True)
class NodePrograms:
    kubernetes: Path
    containers: Path
    etcd: Path
    images: Layer

    @classmethod
    def find(cls) -> Self:
        """Raises Unavailable with what is missing and how to get it."""
        kubelet = programs.NODE_MODULE.find("kubelet")
        pause, workload, _ = (programs.CONTAINER_MODULE.find(name) for name in programs.CONTAINER_PROGRAMS)
        etcd = programs.find().etcd
        images = archives({PAUSE: pause, WORKLOAD: workload, ETCD: etcd, ETCD_NEXT: etcd})
        return cls(kubelet.parent, pause.parent, etcd.parent, images)

    def program(self, name: str) -> Path:
        return self.kubernetes / name

    def mounts(self) -> Mapping[str, Path]:
        """Return the mount points on a host."""
        return {
            "/opt/kubernetes": self.kubernetes,
            "/opt/containers": self.containers,
            "/opt/images": self.images.path,
            ETCD_PROGRAMS: self.etcd,
        }

    def close(self) -> None:
        self.images.lock.close()
