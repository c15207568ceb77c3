# SPDX-License-Identifier: Apache-2.0
"""Replace the manifest of a static pod: take it away, wait until the kubelet has ended the pod, put the new one.

With a manifest that is renamed over the previous one, the new pod waits in the back-off of the kubelet for the end of
the old one: 7 to 14 s without the pod instead of 3 (kubernetes:pkg/kubelet/pod_workers.go, allowStaticPodStart).

While no manifest is there, the pod does not run. So a note in the store precedes the rename, a failure puts the
previous manifest back, and so does the first act of the next agent after a crash (``recover``). The manifest is renamed
to a hidden name in its own directory, which the kubelet does not read: the same file system, and one fsync.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile
from nodeagent.core.plan.static_pods import OPERATOR_RESOURCES, is_etcd
from nodeagent.core.validate.static_pod import MAX_BYTES, StaticPod, is_visible, load, same_object
from nodeagent.errors import Refused, Terminal, Unreconcilable
from nodeagent.host.etcd.proof import MemberProof
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.fs.paths import open_parent
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.static_pods.running import PODS, Crictl, Instance, instances
from nodeagent.host.view import host_listing
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import Clock, Files, StaticPodState
from nodeagent.update.ports.store import Notes

# The note in the store: the path of the manifest that is taken away.
TAKEN: Final = "static-pod-taken"

# The note in the store: the operation, and the id of the member of etcd from before it.
MEMBER: Final = "static-pod-member"

# Seconds in addition to the grace period of the pod. Its end was measured at 1.1 s.
HEADROOM: Final = 10.0

# Seconds for the start of all containers, with their images on the host. Measured: 1 s.
START: Final = 120.0

FAILED_PAUSE: Final = 1.0
"""Seconds after the end of a pod that did not run. Without it, a start was measured to wait 12 s in the back-off."""

POLL: Final = 0.1
HIDDEN: Final = ".nodeagent-taken-"


class KubeletStaticPods:
    """Implements ``ports.StaticPods``. Paths below ``root`` are those of the host."""

    def __init__(
        self,
        files: Files,
        notes: Notes,
        clock: Clock,
        runtime: Crictl,
        etcd: MemberProof,
        *,
        root: str = "/",
        start: float = START,
    ) -> None:
        self._files = files
        self._notes = notes
        self._clock = clock
        self._runtime = runtime
        self.etcd = etcd
        self._root = root
        self._start = start
        # One manifest is away at a time: an update, and a change of the members of etcd.
        self._busy = asyncio.Lock()

    async def recover(self) -> str:
        """Put back the manifest that a killed agent took away. Returns its path, "" if there is none."""
        path = await self._notes.note(TAKEN)
        if not path:
            return ""
        # The note is removed last. After a kill in between, the manifest is in place and only the note is left.
        put_back = await asyncio.to_thread(self._put_back, path)
        await self._notes.keep_note(TAKEN, "")
        return path if put_back else ""

    async def replace(self, path: str, node: FileTreeEntry | None, operation: str) -> None:
        """Make the kubelet run the pod of ``node`` instead of the one of ``path``. None removes the pod.

        Returns when the containers have started. After an error the previous manifest is there, unless the new pod did
        not start (``StaticPodNotStarted``). Doing it again is harmless. The member of etcd from before the first
        replacement of ``operation`` is the one that ``state`` expects.
        """
        async with self._busy:
            await self._replace(path, node, operation)

    async def _replace(self, path: str, node: FileTreeEntry | None, operation: str) -> None:
        await self.recover()
        new = await asyncio.to_thread(load, node.content) if isinstance(node, RegularFile) else None
        old = await asyncio.to_thread(self._read, path)
        await asyncio.to_thread(self._check, path, new or old)
        if await self._files.differs(path, node):
            await self._prepare(old, new, operation)
            if old is None or (new is not None and same_object(old, new)) or not await self._has_kubelet():
                await self._put(path, node)
            else:
                await self._exchange(path, old, node)
        if new is not None and await self._has_kubelet():
            await self._started(path, new)

    async def has_member(self) -> bool:
        return bool(await self.etcd.identity())

    async def save_keyspace(self) -> None:
        # A change may be what repairs a member that does not answer.
        if await self.has_member():
            await self.etcd.snapshot()

    async def runs(self, path: str, pod: StaticPod) -> bool:
        """Return whether the kubelet runs an instance of ``pod``, also without its manifest."""
        return bool(await asyncio.to_thread(self._instances, path, pod))

    async def ended(self, path: str, pod: StaticPod) -> None:
        """Wait until no instance of ``pod`` is left. Raises ``Terminal`` (``StaticPodStuck``)."""
        running = await asyncio.to_thread(self._instances, path, pod)
        await self._gone(pod, [instance.uid for instance in running])

    async def listing(self) -> float:
        return await asyncio.to_thread(host_listing, Path(self._root))

    async def state(self, path: str) -> StaticPodState:
        """Return how the pod of the manifest at ``path`` runs. A member of etcd is queried."""
        pod_state = await asyncio.to_thread(self._state, path)
        if not pod_state.etcd or pod_state.problem:
            return pod_state
        _, _, member = (await self._notes.note(MEMBER)).rpartition(" ")
        return replace(pod_state, problem=await self.etcd.trouble(member))

    def _state(self, path: str) -> StaticPodState:
        pod = self._read(path)
        if pod is None or not (Path(self._root) / PODS).is_dir():
            return StaticPodState("")
        running = self._instances(path, pod)
        if len(running) != 1:
            problem = f"{len(running)} instances of {pod.title} run, instead of one"
            return StaticPodState(pod.title, problem=problem, etcd=is_etcd(pod))
        problem = "" if running[0].started else f"not all containers of {pod.title} have started"
        return StaticPodState(pod.title, running[0].uid, running[0].restarts, problem, is_etcd(pod))

    async def _prepare(self, old: StaticPod | None, new: StaticPod | None, operation: str) -> None:
        """Do what takes long or may fail while the pod still runs."""
        if new is not None and (old is None or old.images != new.images):
            await self._runtime.ensure(new.images)
        if old is None or not is_etcd(old):
            return
        noted, _, before = (await self._notes.note(MEMBER)).rpartition(" ")
        if noted == operation:
            # The way back: the member may be another one by now, and the keyspace was saved before.
            return
        # A member that does not answer stays the one that it was; one that is removed may be followed by another.
        member = (await self.etcd.identity() or before) if new is not None else ""
        if new is not None and old.images != new.images:
            await self.save_keyspace()
        await self._notes.keep_note(MEMBER, f"{operation} {member}")

    async def _exchange(self, path: str, old: StaticPod, node: FileTreeEntry | None) -> None:
        before = await asyncio.to_thread(self._instances, path, old)
        # The note precedes the rename. After a kill in between, there is nothing to put back, which is harmless.
        await self._notes.keep_note(TAKEN, path)
        put = None
        try:
            await asyncio.to_thread(self._take_away, path)
            await self._gone(old, [instance.uid for instance in before])
            if any(instance.restarts or not instance.started for instance in before):
                # The directory of a pod without a running container goes before the kubelet has ended it.
                await asyncio.sleep(FAILED_PAUSE)
            put = asyncio.ensure_future(self._put(path, node))
            await asyncio.shield(put)
            if node is None:
                await asyncio.to_thread(self._forget, path)
        finally:
            # The write goes on in its thread if this task is cancelled, and must not race with the return.
            if put is not None and not put.done():
                await asyncio.wait([put])
            await asyncio.to_thread(self._put_back, path)
            await self._notes.keep_note(TAKEN, "")

    async def _put(self, path: str, node: FileTreeEntry | None) -> None:
        if node is None:
            # The directory stays: without it, the kubelet would end all other static pods.
            await self._files.remove(path, ())
        else:
            await self._files.install(path, node)

    async def _gone(self, pod: StaticPod, uids: Sequence[str]) -> None:
        pods = Path(self._root) / PODS
        limit = pod.grace_period + HEADROOM

        async def gone() -> bool:
            # The directory of a pod that failed may go before its containers.
            there = await asyncio.to_thread(lambda: any((pods / uid).exists() for uid in uids))
            return not there and not any([await self._runtime.runs(uid) for uid in uids])

        if not await self._until(gone, limit):
            raise Terminal(
                f"the kubelet did not end the pod {pod.title} within {limit:.0f} s", reason=Reason.STATIC_POD_STUCK
            )

    async def _started(self, path: str, pod: StaticPod) -> None:
        running: list[Instance] = []

        async def started() -> bool:
            running[:] = await asyncio.to_thread(self._instances, path, pod)
            return len(running) == 1 and running[0].started

        if not await self._until(started, self._start):
            what = "has not started all containers" if len(running) == 1 else f"runs {len(running)} instances"
            raise Terminal(
                f"{self._start:.0f} s after the change of {path}, the kubelet {what} of the pod {pod.title}",
                reason=Reason.STATIC_POD_NOT_STARTED,
            )

    async def _until(self, done: Callable[[], Awaitable[bool]], limit: float) -> bool:
        deadline = self._clock.monotonic() + limit
        while not await done():
            if self._clock.monotonic() >= deadline:
                return False
            await asyncio.sleep(POLL)
        return True

    async def _has_kubelet(self) -> bool:
        return await asyncio.to_thread((Path(self._root) / PODS).is_dir)

    # Blocking.

    def _check(self, path: str, pod: StaticPod | None) -> None:
        """Raise ``Refused`` if another file is the same pod, or if an operator owns the manifest."""
        if pod is None:
            return
        for other in self._neighbours(path):
            if (neighbour := self._read(other)) is not None and neighbour.title == pod.title:
                raise Refused(
                    f"{other} is a second manifest of the pod {pod.title}", reason=Reason.STATIC_POD_DUPLICATE
                )
        if any((Path(self._root) / OPERATOR_RESOURCES.lstrip("/")).glob(f"{pod.name}-pod-*")):
            raise Unreconcilable(
                f"an operator installs the pod {pod.title}: it has revisions in {OPERATOR_RESOURCES}",
                reason=Reason.STATIC_POD_OWNED,
            )

    def _neighbours(self, path: str) -> list[str]:
        directory, _, own = path.rpartition("/")
        with suppress(OSError):
            names = [entry.name for entry in (Path(self._root) / directory.lstrip("/")).iterdir()]
            return [f"{directory}/{name}" for name in sorted(names) if name != own and is_visible(name)]
        return []

    def _instances(self, path: str, pod: StaticPod) -> list[Instance]:
        others = [neighbour.name for other in self._neighbours(path) if (neighbour := self._read(other)) is not None]
        return instances(Path(self._root), pod, others)

    def _read(self, path: str) -> StaticPod | None:
        """Return the pod that the kubelet runs from this file, None if there is none."""
        try:
            return load(read_regular(Path(self._root) / path.lstrip("/"), MAX_BYTES))
        except OSError:
            return None

    def _take_away(self, path: str) -> None:
        with translated("take away", path), open_parent(self._root, path) as parent:
            os.rename(parent.name, HIDDEN + parent.name, src_dir_fd=parent.fd, dst_dir_fd=parent.fd)
            os.fsync(parent.fd)

    def _put_back(self, path: str) -> bool:
        """Return the manifest that was taken away if there is none at ``path``; otherwise delete it."""
        with translated("put back", path), open_parent(self._root, path) as parent:
            if parent.missing:
                return False
            # The new manifest took its place, so the previous one must not come back.
            if _exists(parent.name, parent.fd):
                with suppress(FileNotFoundError):
                    os.unlink(HIDDEN + parent.name, dir_fd=parent.fd)
                return False
            if not _exists(HIDDEN + parent.name, parent.fd):
                return False
            os.rename(HIDDEN + parent.name, parent.name, src_dir_fd=parent.fd, dst_dir_fd=parent.fd)
            os.fsync(parent.fd)
            return True

    def _forget(self, path: str) -> None:
        with translated("remove", path), open_parent(self._root, path) as parent, suppress(FileNotFoundError):
            os.unlink(HIDDEN + parent.name, dir_fd=parent.fd)
            os.fsync(parent.fd)


def _exists(name: str, dir_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
