"""Find the running instances of a static pod by the directories of the kubelet, without the API server.

The mirror pod in the API reports the old instance as ready for seconds after it ended, and there is no API server
without a quorum of etcd. ``/var/lib/kubelet/pods/UID`` exists while the kubelet runs an instance or cleans it up, and
``/var/log/pods/NAMESPACE_NAME-NODE_UID/CONTAINER/N.log`` has its name and the number of restarts. The UID of a static
pod has 32 digits without dashes, which distinguishes it from pods of the API.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.validate.static_pod import StaticPod

__all__ = ["PODS", "Instance", "instances"]

PODS: Final = "var/lib/kubelet/pods"
LOGS: Final = "var/log/pods"
_UID: Final = re.compile(r"[0-9a-f]{32}")
_LOG: Final = re.compile(r"(\d+)\.log")


@dataclass(frozen=True, slots=True, order=True)
class Instance:
    """``started`` if all containers have started, ``restarts`` of the container that was restarted most."""

    uid: str
    started: bool = False
    restarts: int = 0


def instances(root: Path, pod: StaticPod, others: Collection[str] = ()) -> list[Instance]:
    """Return the instances of ``pod`` that the kubelet runs or cleans up. Blocks: it reads directories.

    ``others`` are the names of other static pods. An instance without a log directory, which has no sandbox yet, is
    found by the names of its containers.
    """
    there = {entry.name for entry in _entries(root / PODS) if _UID.fullmatch(entry.name)}
    logs = {entry.name.rpartition("_")[2]: entry for entry in _entries(root / LOGS)}
    found = []
    for uid in sorted(there):
        log = logs.get(uid)
        if log is None:
            if _containers(root / PODS / uid) == _names(pod):
                found.append(Instance(uid))
        elif _is_of(log.name, pod, others):
            found.append(_instance(uid, log, pod))
    return found


def _is_of(directory: str, pod: StaticPod, others: Collection[str]) -> bool:
    """The name of the node is not known, so that the longest name of a pod decides: ``etcd-proxy`` is not ``etcd``."""
    namespace, _, rest = directory.partition("_")
    name = rest.rpartition("_")[0]
    fits = [other for other in {pod.name, *others} if name.startswith(f"{other}-")]
    return namespace == pod.namespace and max(fits, key=len, default="") == pod.name


def _instance(uid: str, log: Path, pod: StaticPod) -> Instance:
    restarts = []
    for container in pod.containers:
        names = (_LOG.fullmatch(entry.name) for entry in _entries(log / container["name"]))
        restarts.append(max((int(match[1]) for match in names if match), default=-1))
    return Instance(uid, min(restarts) >= 0, max(0, *restarts))


def _containers(directory: Path) -> set[str]:
    return {entry.name for entry in _entries(directory / "containers")}


def _names(pod: StaticPod) -> set[str]:
    every = (*pod.containers, *(pod.document["spec"].get("initContainers") or ()))
    return {container["name"] for container in every}


def _entries(directory: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from directory.iterdir()
