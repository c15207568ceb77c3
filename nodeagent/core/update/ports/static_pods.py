"""The port to the static pods of the kubelet on this host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nodeagent.core.config.file_tree import FileTreeEntry


@dataclass(frozen=True, slots=True)
class StaticPodState:
    """``pod`` is namespace/name, "" if the manifest is missing or invalid, or there is no kubelet.

    ``uid`` identifies the instance: another one after each change of the manifest. ``problem`` is "" if it works.
    """

    pod: str
    uid: str = ""
    restarts: int = 0
    problem: str = ""
    etcd: bool = False


class StaticPods(Protocol):
    """Static pods, by the path of their manifest."""

    # While the manifest is away the kubelet runs no such pod, so a kill in that time must not be the end of it.
    async def recover(self) -> str:
        """Put back the manifest that a killed agent took away. Returns its path, "" if there is none."""
        ...

    # A new manifest that is renamed over the old one waits in the back-off of the kubelet for the pod of the same
    # name, 10 to 15 s. If the old pod has ended first, the new one starts at once.
    async def replace(self, path: str, node: FileTreeEntry | None, operation: str) -> None:
        """Replace the pod: take the manifest away, wait for the end of the pod, put ``node`` (None: nothing).

        Returns when the containers of the new pod have started. Doing it again is harmless, also for the way back of
        the same ``operation``. Raises ``Refused`` and
        ``Unreconcilable`` before anything is changed, and ``Terminal``.
        """
        ...

    async def has_member(self) -> bool:
        """Return whether a member of etcd answers on this host, unit or pod."""
        ...

    async def save_keyspace(self) -> None:
        """Save a snapshot of the member of etcd on this host, unit or pod. One that does not answer is left out."""
        ...

    async def listing(self) -> float:
        """Return the seconds between two full listings of the manifests by the kubelet, within bounds."""
        ...

    # The mirror pod is ready for seconds after the pod has ended, and the API server may need this very pod.
    async def state(self, path: str) -> StaticPodState:
        """Return the state of the pod as the host has it, and that of a member of etcd; no API server is queried."""
        ...
