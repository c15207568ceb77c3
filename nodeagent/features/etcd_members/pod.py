# SPDX-License-Identifier: Apache-2.0
"""etcd as a static pod: its start puts a copy of the manifest into the directory of the kubelet, its stop removes it.

The kubelet starts the pod at each boot and restarts its container without ``prepare``. So the pod mounts the file that
``prepare`` writes as a ``File``, without which the kubelet starts no container; and as soon as the member has data, the
file names no other member, so that etcd does not start without them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.plan.static_pods import is_etcd_container
from nodeagent.core.validate.static_pod import StaticPod, check, load
from nodeagent.features.etcd_members.config import MEMBER_FILE, MemberConfig, invalid
from nodeagent.host import config_file
from nodeagent.host.static_pods.replacement import KubeletStaticPods
from nodeagent.host.view import host_directory
from nodeagent.update.ports.host import UnitState

MODE: Final = 0o600
OPERATION: Final = "member"


class MemberPod:
    """Implements ``host.UnitStarter``; the name of the unit is ignored. Paths below ``root`` are the host's."""

    def __init__(
        self, config: MemberConfig, pods: KubeletStaticPods, *, member_file: Path = MEMBER_FILE, root: Path = Path("/")
    ) -> None:
        self._config = config
        self._pods = pods
        self._member_file = member_file
        self._root = root

    async def state(self, unit: str) -> UnitState:
        """Active: containers run, or the kubelet may start them."""
        path, pod, _ = await self._read()
        # With manifest and permission the kubelet may start the pod at any moment, so it counts as running.
        allowed = await asyncio.to_thread(
            lambda: (self._root / path.lstrip("/")).exists() and self._member_file.exists()
        )
        runs = allowed or await self._pods.runs(path, pod)
        return UnitState(unit, "loaded", "active" if runs else "inactive", "", "", "", "", 0, "enabled")

    async def start(self, unit: str, deadline: float) -> None:  # noqa: ARG002
        path, _, content = await self._read()
        await self._pods.replace(path, RegularFile(content, MODE), OPERATION)

    async def stop(self, unit: str, deadline: float) -> None:  # noqa: ARG002
        path, pod, _ = await self._read()
        await self._pods.replace(path, None, OPERATION)
        # Its data may only be archived when no process writes them any more.
        await self._pods.ended(path, pod)

    async def _read(self) -> tuple[str, StaticPod, bytes]:
        """Return the path of the copy, the pod and the manifest. Raises ``InvalidInput`` (``EtcdConfigInvalid``)."""
        source = self._config.settings.static_pod
        content = await config_file.read(source)
        if content is None:
            raise invalid(source, "there is no such file")
        pod = await asyncio.to_thread(load, content)
        if pod is None:
            raise invalid(source, next(check(content), "it is no pod"))
        if problem := manifest_problem(pod, self._config.data, self._member_file):
            raise invalid(source, problem)
        return f"{await asyncio.to_thread(host_directory, self._root)}/{Path(source).name}", pod, content


def manifest_problem(pod: StaticPod, data: Path, member_file: Path) -> str:
    """Return why the kubelet could run this pod without a permission, or on other data; "" if it could not."""
    volumes = {volume["name"]: volume.get("hostPath") or {} for volume in pod.document["spec"].get("volumes") or ()}
    for container in filter(is_etcd_container, pod.containers):
        words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
        mounts = {
            str(mount["mountPath"]).rstrip("/"): volumes.get(mount["name"], {})
            for mount in container.get("volumeMounts") or ()
        }
        gate = mounts.get(str(member_file), {})
        if f"--config-file={member_file}" not in words:
            return f"its etcd must run with --config-file={member_file}"
        # Without this type, the kubelet would create the path or start the container without the file.
        if (gate.get("path"), gate.get("type")) != (str(member_file), "File"):
            return f"it must mount {member_file} at the same path, with the type File"
        if not any(data.is_relative_to(path) and source.get("path") == path for path, source in mounts.items() if path):
            return f"it must mount {data} at the same path"
        # The addresses in etcd's config are those of the host.
        if pod.document["spec"].get("hostNetwork") is not True:
            return "it must have hostNetwork: true"
        return ""
    return "it has no container that runs etcd"
