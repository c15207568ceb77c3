# SPDX-License-Identifier: Apache-2.0
"""Check the directory of manifests as it will be on this host, before anything is written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.etcd.versions import change_problem, image_version
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.core.plan.static_pods import (
    OPERATOR_RESOURCES,
    data_directory,
    directory_problems,
    etcd_image,
    is_etcd,
    manifests,
    owner_of,
)
from nodeagent.core.validate.static_pod import MAX_BYTES, StaticPod, is_visible, load
from nodeagent.domains import kubelet, static_pods
from nodeagent.errors import Problem, Refused, Unreconcilable
from nodeagent.host.etcd.data_directory import read_data_directory
from nodeagent.host.etcd.proof import MemberProof
from nodeagent.host.static_pods.replacement import MEMBER
from nodeagent.host.view import read_files
from nodeagent.reasons import Reason
from nodeagent.update.ports.store import Notes

# Types of a hostPath that the kubelet does not create: the pod would not start.
MUST_EXIST: Final = ("File", "Directory", "Socket", "CharDevice", "BlockDevice")


@dataclass(frozen=True, slots=True)
class _Changed:
    """The manifests that an update changes: those of both configs, and those that are on the host now."""

    paths: Sequence[str]
    had: Mapping[str, bytes]
    wants: Mapping[str, bytes]
    on_host: Mapping[str, bytes]


class StaticPodValidator:
    """Implements ``ports.Validator``. Paths below ``root`` are those of the host."""

    def __init__(self, etcd: MemberProof, notes: Notes, root: str = "/") -> None:
        self._etcd = etcd
        self._notes = notes
        self._root = Path(root)

    async def check(self, old: MachineConfig, new: MachineConfig) -> Sequence[Problem]:
        """Return duplicates and missing mounts.

        Raises ``Unreconcilable`` (``StaticPodOwned``), and ``Refused`` (``EtcdVersion``, ``EtcdDataLost``).
        """
        changed = await asyncio.to_thread(self._changed, old, new)
        if not changed.paths:
            return ()
        problems = await asyncio.to_thread(lambda: tuple(self._problems(changed, new)))
        for path in changed.paths:
            pod = load(changed.wants.get(path, b""))
            if pod is not None and is_etcd(pod):
                await self._check_member(path, load(changed.on_host.get(path, b"")), pod)
        return problems

    def _changed(self, old: MachineConfig, new: MachineConfig) -> _Changed:
        view = HostView(read_files(kubelet.DOMAIN.reads, old, new, self._root))
        directory = static_pods.directory(Sides(old, new, view).after)
        had, wants = manifests(old, directory), manifests(new, directory)
        # An update that changes no manifest must not fail because of the present ones.
        paths = sorted(path for path in {*had, *wants} if had.get(path) != wants.get(path))
        return _Changed(paths, had, wants, self._on_host(directory) if paths else {})

    def _problems(self, changed: _Changed, new: MachineConfig) -> Iterator[Problem]:
        self._check_owner(changed)
        # Manifests that no config manages stay beside the new ones.
        unmanaged = {path: content for path, content in changed.on_host.items() if path not in changed.had}
        added = [path for path in changed.paths if path in changed.wants]
        yield from directory_problems({**unmanaged, **changed.wants}, added)
        managed = set(expand(new))
        for path in added:
            if (pod := load(changed.wants[path])) is not None:
                yield from (Problem(path, message) for message in self._mounts(pod, managed))

    async def _check_member(self, path: str, old: StaticPod | None, new: StaticPod) -> None:
        """Raise ``Refused`` for a member that could not read its data, or that has lost them.

        etcd starts without its data under its old identity, although it has forgotten its votes. The note is from
        the last replacement of its manifest.
        """
        cluster = await self._etcd.cluster_version()
        before = image_version(etcd_image(old)) if old is not None else ""
        if problem := change_problem(cluster or before, image_version(etcd_image(new))):
            raise Refused(f"{path}: {problem}", reason=Reason.ETCD_VERSION)
        _, _, member = (await self._notes.note(MEMBER)).rpartition(" ")
        data = data_directory(new)
        # A member that answers has its data; without a note there was none.
        if cluster or not member or not data:
            return
        if not (await asyncio.to_thread(read_data_directory, self._root / data.lstrip("/"))).present:
            raise Refused(
                f"{path}: member {int(member):x} ran on this host, and {data} has no data of it",
                reason=Reason.ETCD_DATA_LOST,
                hint="restore the data; or remove the member from its cluster, take its manifest out of the config, "
                "and add a new member with the next config",
            )

    def _on_host(self, directory: str) -> dict[str, bytes]:
        manifests = {}
        try:
            for entry in sorted((self._root / directory.lstrip("/")).iterdir()):
                # A pipe would block the read.
                if is_visible(entry.name) and entry.is_file() and entry.stat().st_size <= MAX_BYTES:
                    manifests[f"{directory}/{entry.name}"] = entry.read_bytes()
        except OSError:
            # The directory is missing, or changes now. The replacement checks it again.
            pass
        return manifests

    def _check_owner(self, changed: _Changed) -> None:
        """Raise for a manifest that would have to be written. One that is there already, or that leaves the config, is
        left to its operator."""
        problems = []
        for path in changed.paths:
            wanted = load(changed.wants.get(path, changed.had.get(path, b"")))
            there = changed.on_host.get(path)
            if wanted is not None and owner_of(wanted) and changed.wants.get(path, there) == there:
                continue
            sides = [load(files[path]) for files in (changed.on_host, changed.wants) if path in files]
            signs = [sign for pod in sides if pod is not None and (sign := self._owner(pod))]
            problems += [Problem(path, f"belongs to an operator: {sign}") for sign in signs[:1]]
        if problems:
            message = "static pods of an operator cannot be changed by a config"
            raise Unreconcilable(message, reason=Reason.STATIC_POD_OWNED, problems=problems)

    def _owner(self, pod: StaticPod) -> str:
        if sign := owner_of(pod):
            return sign
        revisions = list((self._root / OPERATOR_RESOURCES.lstrip("/")).glob(f"{pod.name}-pod-*"))
        return f"{OPERATOR_RESOURCES} has its revisions" if revisions else ""

    def _mounts(self, pod: StaticPod, managed: set[str]) -> Iterator[str]:
        for path, kind in pod.host_paths.items():
            below = f"{path.rstrip('/')}/"
            if kind not in MUST_EXIST or any(f"{managed_path}/".startswith(below) for managed_path in managed):
                continue
            if not (self._root / path.lstrip("/")).exists():
                yield f"mounts {path}, which must be there (type {kind}) and is missing"
