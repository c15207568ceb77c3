# SPDX-License-Identifier: Apache-2.0
"""Find the running instances of a static pod by the directories of the kubelet, without the API server.

The mirror pod in the API reports the old instance as ready for seconds after it ended, and there is no API server
without a quorum of etcd. ``/var/lib/kubelet/pods/UID`` exists while the kubelet runs an instance or cleans it up, and
``/var/log/pods/NAMESPACE_NAME-NODE_UID/CONTAINER/N.log`` has its name and the number of restarts. The UID of a static
pod has 32 digits without dashes, which distinguishes it from pods of the API.

crictl pulls images before a manifest is taken away, as the pod does not run while its image is pulled, and shows
whether containers run. A host without crictl, or a crictl that does not reach the runtime, is no failure: then the
kubelet pulls the image, and its directories alone show the end of a pod.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.validate.static_pod import StaticPod
from nodeagent.errors import Terminal
from nodeagent.host.programs import ProgramLate, run_program
from nodeagent.reasons import Reason

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
    recognized by the names of its containers.
    """
    there = {entry.name for entry in _entries(root / PODS) if _UID.fullmatch(entry.name)}
    logs = {entry.name.rpartition("_")[2]: entry for entry in _entries(root / LOGS)}
    running = []
    for uid in sorted(there):
        log = logs.get(uid)
        if log is None:
            if _containers(root / PODS / uid) == _names(pod):
                running.append(Instance(uid))
        elif _is_of(log.name, pod, others):
            running.append(_instance(uid, log, pod))
    return running


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
        # -1 stands for a container without a log, which was not created yet.
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


log = logging.getLogger(__name__)

SEARCH_PATH: Final = "/usr/bin:/usr/sbin:/usr/local/bin:/opt/bin"
QUERY: Final = 20.0
# Seconds. An image of etcd has 60 MB, one of a control plane up to a gigabyte.
PULL: Final = 900.0

# Ids of containers. crictl mixes warnings into its output.
_ID: Final = re.compile(r"[0-9a-f]{64}")
LABEL: Final = "io.kubernetes.pod.uid"


class Crictl:
    """``search_path`` is where crictl is expected."""

    def __init__(self, *, search_path: str = SEARCH_PATH) -> None:
        self._search_path = search_path

    async def ensure(self, images: Mapping[str, str]) -> None:
        """Pull the images that are missing. ``images`` is image to pull policy.

        Raises ``Terminal`` (``StaticPodImage``) for an image that is missing and cannot be pulled.
        """
        if (await self._run("version"))[0]:
            log.debug("crictl does not answer; the images of static pods are not checked")
            return
        for image, policy in images.items():
            # inspecti fails for an image that the runtime does not have.
            if policy != "Always" and not (await self._run("inspecti", "--quiet", image))[0]:
                continue
            problem = "it is not on this host, and its policy is Never"
            if policy != "Never" and not (problem := (await self._run("pull", image, limit=PULL))[0]):
                continue
            raise Terminal(f"the image {image} cannot be used: {problem}", reason=Reason.STATIC_POD_IMAGE)

    async def runs(self, uid: str) -> bool:
        """Return whether a container of the pod with this UID runs; False if the runtime does not answer."""
        problem, lines = await self._run("ps", "--quiet", "--no-trunc", "--label", f"{LABEL}={uid}")
        return not problem and any(map(_ID.fullmatch, lines))

    async def _run(self, *arguments: str, limit: float = QUERY) -> tuple[str, Sequence[str]]:
        """Return "" and the lines of the output if the command succeeds, otherwise the last line and nothing."""
        # An update of the host may bring or remove crictl while the daemon runs.
        program = await asyncio.to_thread(shutil.which, "crictl", path=self._search_path)
        if program is None:
            return "there is no crictl", ()
        try:
            status, lines = await run_program(program, arguments, Path("/"), limit)
        except (OSError, ProgramLate) as error:
            return f"crictl {arguments[0]}: {error}", ()
        if status:
            return (lines[-1][:500] if lines else f"exit status {status}"), ()
        return "", lines
