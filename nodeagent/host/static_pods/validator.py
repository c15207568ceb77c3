"""Check the directory of manifests as it will be on this host, before anything is written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.core.plan.static_pods import (
    OPERATOR_RESOURCES,
    directory_problems,
    manifests,
    owner_of,
)
from nodeagent.core.validate.static_pod import MAX_BYTES, StaticPod, is_visible, load
from nodeagent.domains import kubelet, static_pods
from nodeagent.errors import Problem, Unreconcilable
from nodeagent.host.view import read_files
from nodeagent.reasons import Reason

__all__ = ["StaticPodValidator"]

# Types of a hostPath that the kubelet does not create: the pod would not start.
MUST_EXIST: Final = ("File", "Directory", "Socket", "CharDevice", "BlockDevice")


class StaticPodValidator:
    """Implements ``ports.Validator``. Paths below ``root`` are those of the host."""

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)

    async def check(self, old: MachineConfig, new: MachineConfig) -> Sequence[Problem]:
        """Return duplicates and missing mounts. Raises ``Unreconcilable`` (``StaticPodOwned``)."""
        return await asyncio.to_thread(lambda: tuple(self._problems(old, new)))

    def _problems(self, old: MachineConfig, new: MachineConfig) -> Iterator[Problem]:
        view = HostView(read_files(kubelet.DOMAIN.reads, old, new, self._root))
        directory = static_pods.directory(Sides(old, new, view).after)
        had, wants = manifests(old, directory), manifests(new, directory)
        changed = sorted(path for path in {*had, *wants} if had.get(path) != wants.get(path))
        if not changed:
            return
        on_host = self._on_host(directory)
        self._check_owner(changed, on_host, wants)
        kept = {path: content for path, content in on_host.items() if path not in had}
        added = [path for path in changed if path in wants]
        yield from directory_problems({**kept, **wants}, added)
        managed = set(expand(new))
        for path in added:
            if (pod := load(wants[path])) is not None:
                yield from (Problem(path, message) for message in self._mounts(pod, managed))

    def _on_host(self, directory: str) -> dict[str, bytes]:
        found = {}
        try:
            for entry in sorted((self._root / directory.lstrip("/")).iterdir()):
                # A pipe would block the read.
                if is_visible(entry.name) and entry.is_file() and entry.stat().st_size <= MAX_BYTES:
                    found[f"{directory}/{entry.name}"] = entry.read_bytes()
        except OSError:
            pass  # no directory, or one that changes: the replacement checks it again
        return found

    def _check_owner(self, changed: Sequence[str], on_host: Mapping[str, bytes], wants: Mapping[str, bytes]) -> None:
        found = []
        for path in changed:
            sides = [load(files[path]) for files in (on_host, wants) if path in files]
            signs = [sign for pod in sides if pod is not None and (sign := self._owner(pod))]
            found += [Problem(path, f"belongs to an operator: {sign}") for sign in signs[:1]]
        if found:
            message = "static pods of an operator cannot be changed by a config"
            raise Unreconcilable(message, reason=Reason.STATIC_POD_OWNED, problems=found)

    def _owner(self, pod: StaticPod) -> str:
        if sign := owner_of(pod):
            return sign
        revisions = list((self._root / OPERATOR_RESOURCES.lstrip("/")).glob(f"{pod.name}-pod-*"))
        return f"{OPERATOR_RESOURCES} has its revisions" if revisions else ""

    def _mounts(self, pod: StaticPod, managed: set[str]) -> Iterator[str]:
        for path, kind in pod.host_paths.items():
            if kind not in MUST_EXIST or any(f"{each}/".startswith(f"{path.rstrip('/')}/") for each in managed):
                continue
            if not (self._root / path.lstrip("/")).exists():
                yield f"mounts {path}, which must be there (type {kind}) and is missing"
