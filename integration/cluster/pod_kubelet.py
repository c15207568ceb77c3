# SPDX-License-Identifier: Apache-2.0
"""A kubelet that runs one static pod as a process of this machine: etcd, with the file of its permission.

The pod waits while the file that it mounts is missing, and a process that ends is started again after a pause, without
`nodeagent etcd prepare`: as the real kubelet does.
"""

from __future__ import annotations

import time
from pathlib import Path

from integration.cluster.server import Server
from nodeagent.core.validate.static_pod import StaticPod
from tests.host.static_pods.kubelet import StandInKubelet

PAUSE = 0.5


class PodKubelet(StandInKubelet):
    server: Server
    gate: Path
    """The file that the pod mounts."""
    starts_at = 0.0

    def _reconcile(self, now: float) -> None:
        super()._reconcile(now)
        runs = any(worker.shown and not worker.ends for worker in self.running.values())
        if runs and not self.server.alive and now >= self.starts_at and self.gate.exists():
            self._start()

    def _show(self, uid: str, pod: StaticPod) -> bool:
        if not self.gate.exists():
            return False
        self._start()
        return super()._show(uid, pod)

    def _ended(self, pod: StaticPod) -> None:
        self.server.kill()

    def _start(self) -> None:
        self.starts_at = time.monotonic() + PAUSE
        self.server.start()
