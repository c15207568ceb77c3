# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the part of the kubelet that runs static pods, with its pitfalls.

Measured with a kubelet 1.36: a changed manifest is seen at once, and one that was renamed over the previous one waits
in a back-off for the end of the old pod. A manifest that cannot be read changes nothing, until the next full listing
leaves it out and the pod is killed. Of two files with the same pod, the one that appeared last wins. Times are shorter.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.core.validate.static_pod import StaticPod, load
from nodeagent.host.static_pods.running import LOGS, PODS

STEP = 0.01


def _load(path: str) -> StaticPod | None:
    try:
        return load(Path(path).read_bytes())
    except FileNotFoundError:
        # It was removed since the directory was read.
        return None


@dataclass
class Worker:
    pod: StaticPod
    began: float
    ends: float = 0.0
    shown: bool = False


@dataclass
class StandInKubelet:
    root: Path
    directory: str
    backoff: float = 1.0
    listing: float = 2.0
    stop: float = 0.2
    node: str = "node-1"
    hangs: bool = False
    """Pods do not end."""
    broken_image: str = ""
    """Containers with this image do not start."""
    starts: list[tuple[float, str]] = field(default_factory=list)
    ends: list[tuple[float, str]] = field(default_factory=list)
    running: dict[str, Worker] = field(default_factory=dict)
    _store: dict[str, tuple[str, StaticPod, float]] = field(default_factory=dict)
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    _waits: dict[str, float] = field(default_factory=dict)
    _listed: float = 0.0

    @contextmanager
    def runs(self) -> Iterator[StandInKubelet]:
        (self.root / PODS).mkdir(parents=True)
        (self.root / LOGS).mkdir(parents=True)
        (self.root / self.directory).mkdir(parents=True, exist_ok=True)
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,), name="kubelet")
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join(30)

    def wait_running(self, count: int = 1, seconds: float = 10.0) -> list[str]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            uids = [uid for uid, worker in list(self.running.items()) if worker.shown and not worker.ends]
            if len(uids) == count:
                return uids
            time.sleep(STEP)
        raise AssertionError(f"not {count} pods: {self.running}")

    @property
    def gap(self) -> float:
        """Seconds between the last end of a pod and the start that followed."""
        return self.starts[-1][0] - self.ends[-1][0]

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(STEP):
            now = time.monotonic()
            files = self._files()
            for path, stamp in files.items():
                if self._seen.get(path) != stamp and (pod := _load(path)) is not None:
                    self._add(path, pod, now)
            for path in set(self._seen) - set(files):
                self._store.pop(path, None)
            self._seen = files
            if now - self._listed >= self.listing:
                self._listed = now
                for path in [path for path in self._store if _load(path) is None]:
                    del self._store[path]
            self._reconcile(now)

    def _files(self) -> dict[str, tuple[int, int]]:
        found = {}
        for entry in (self.root / self.directory).iterdir():
            if not entry.name.startswith(".") and entry.is_file():
                info = entry.stat()
                found[str(entry)] = (info.st_ino, info.st_mtime_ns)
        return found

    def _add(self, path: str, pod: StaticPod, now: float) -> None:
        text = f"{sorted(str(item) for item in pod.document.items())} {path}"
        uid = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
        if self._store.get(path, ("",))[0] != uid:
            self._store[path] = (uid, pod, now)

    def _reconcile(self, now: float) -> None:
        winners: dict[str, tuple[float, str, StaticPod]] = {}
        for uid, pod, since in self._store.values():
            if pod.title not in winners or since > winners[pod.title][0]:
                winners[pod.title] = (since, uid, pod)
        wanted = {uid for _, uid, _ in winners.values()}
        for uid, worker in list(self.running.items()):
            if uid not in wanted and not worker.ends:
                worker.ends = now + self.stop
            if worker.ends and now >= worker.ends and not self.hangs:
                # Before the directory, which is the sign of the end.
                del self.running[uid]
                self._ended(worker.pod)
                shutil.rmtree(self.root / PODS / uid)
                self.ends.append((now, uid))
            elif not worker.shown and not worker.ends and now >= worker.began + 5 * STEP:
                worker.shown = self._show(uid, worker.pod)
        for _, uid, pod in winners.values():
            if uid in self.running or now < self._waits.get(uid, 0.0):
                continue
            if any(worker.pod.title == pod.title for worker in self.running.values()):
                self._waits[uid] = now + self.backoff
                continue
            (self.root / PODS / uid).mkdir()
            self.running[uid] = Worker(pod, now)
            self.starts.append((now, uid))

    def _ended(self, pod: StaticPod) -> None:
        """Called at the end of a pod, for a stand-in that runs processes."""

    def _show(self, uid: str, pod: StaticPod) -> bool:
        log = self.root / LOGS / f"{pod.namespace}_{pod.name}-{self.node}_{uid}"
        for container in pod.containers:
            (log / container["name"]).mkdir(parents=True, exist_ok=True)
            if container["image"] == self.broken_image:
                return False
            (log / container["name"] / "0.log").touch()
        return True
