"""Cordons this node, evicts its pods, and uncordons it. Implements ``ports.NodeDrainer``.

The cordon carries the operation as an annotation in the same write, so that a cordon of another actor is never undone.
All pods are evicted at once. A refused eviction is repeated after a pause of its own, and reported with its cause
(``core/coordination/drain.py``). The node is drained when two lists of its pods some seconds apart are empty: the pods
are gone, not only accepted for deletion. No pod is deleted by force.

Repeating a drain after a kill is harmless: the cordon is there, and an evicted pod is terminating.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from nodeagent.core.backoff import jittered
from nodeagent.core.coordination.drain import (
    Cause,
    DrainPolicy,
    EvictionClass,
    Remaining,
    cause_of,
    classify,
    eviction,
    pause_after,
    protected_pod,
    remaining_pod,
)
from nodeagent.core.update.ports.host import Clock
from nodeagent.errors import Refused, Retryable, Terminal, Unreachable
from nodeagent.kube.client import KubeClient, Object
from nodeagent.kube.daemonsets import DaemonSets
from nodeagent.kube.errors import Conflict, KubeFault, NotFound
from nodeagent.reasons import Reason

__all__ = ["CORDONED_BY", "DrainRounds", "KubeNode", "pods_of"]

CORDONED_BY: Final = "nodeagent.org/cordoned-by"
"""Annotation of the Node: the operation that cordoned it."""

POLL: Final = 3.0  # seconds between two lists of the pods while there are some
SETTLE: Final = 5.0  # seconds between the two lists that must be empty
TOGETHER: Final = 20
"""Evictions between two checks of the lease: a node has 110 pods by default, and the API server has other clients."""

WRITES: Final = 3
MOST_CORDONS: Final = 2  # the first one, and one more after an uncordon


async def pods_of(client: KubeClient, node: str) -> Sequence[Object]:
    """Raises what the client raises."""
    return await client.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")


@dataclass(slots=True)
class _Try:
    """The evictions of one pod. ``due`` is on the steady clock."""

    count: int = 0
    due: float = 0.0
    cause: Cause | None = None
    words: str = ""


class KubeNode:
    """``check_lease`` is called before each round of evictions and raises if the lease is lost. ``report`` receives the
    remaining pods after each round."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        clock: Clock,
        *,
        check_lease: Callable[[str], Awaitable[None]],
        report: Callable[[Sequence[Remaining]], None] = lambda _: None,
        policy: DrainPolicy | None = None,
    ) -> None:
        self._client = client
        self._node = node
        self._path = f"/api/v1/nodes/{node}"
        self._clock = clock
        self._check_lease = check_lease
        self._report = report
        self.policy = policy or DrainPolicy()

    async def drain(self, operation: str, deadline: float) -> None:
        """Cordon the node, and evict until it is empty. The cordon stays until ``uncordon``.

        Raises ``Refused``: ``DrainTimedOut`` after ``deadline`` seconds, ``DrainRefused`` before the first eviction if
        the policy protects a pod, ``DrainCanceled`` if the node is uncordoned twice, ``NodeUnknown``; and what
        ``check_lease`` raises.
        """
        work = DrainRounds(self._client, self._node, self._clock, self.policy)
        cordons = 0
        try:
            async with asyncio.timeout(deadline):
                while True:
                    try:
                        await self._check_lease(operation)
                        made = await self._cordon(operation, may=cordons < MOST_CORDONS)
                        cordons = max(1, cordons + made)
                        done = await work.round(partial(self._check_lease, operation))
                        self._report(work.remaining)
                    except (Unreachable, Retryable):
                        done = False  # the API server is down: the requests wait, the deadline does not
                    if done:
                        return
                    pause = POLL if work.remaining else SETTLE
                    await asyncio.sleep(jittered(pause, random.random()))  # noqa: S311
        except TimeoutError:
            left = "; ".join(f"{pod.namespace}/{pod.name}: {pod.why}" for pod in work.remaining)
            message = f"node {self._node} is not empty after {deadline:g} s: {left or 'pods keep coming back'}"
            raise Refused(message, reason=Reason.DRAIN_TIMED_OUT) from None

    async def uncordon(self, operation: str) -> None:
        """Undo the cordon of this operation, and no other one."""
        for _ in range(WRITES):
            node = await self._read()
            if (node["metadata"].get("annotations") or {}).get(CORDONED_BY) != operation:
                return
            if await self._write(node, unschedulable=None, operation=None):
                return
        raise self._contended()

    async def advice(self) -> str:
        return ""

    async def _cordon(self, operation: str, *, may: bool) -> bool:
        """Return whether it was necessary. One uncordon may be a mistake or come from another tool; two are a request
        to stop."""
        for _ in range(WRITES):
            node = await self._read()
            if node["spec"].get("unschedulable"):
                return False  # from an earlier attempt, or of another actor, which undoes it
            if not may:
                raise Refused(f"node {self._node} was uncordoned twice", reason=Reason.DRAIN_CANCELED)
            if await self._write(node, unschedulable=True, operation=operation):
                return True
        raise self._contended()

    async def _read(self) -> Object:
        try:
            return await self._client.get(self._path)
        except NotFound:
            raise Refused(f"there is no Node {self._node} in the cluster", reason=Reason.NODE_UNKNOWN) from None

    async def _write(self, node: Object, *, unschedulable: bool | None, operation: str | None) -> bool:
        meta = {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": {CORDONED_BY: operation}}
        try:
            await self._client.patch(self._path, {"metadata": meta, "spec": {"unschedulable": unschedulable}})
        except Conflict:  # kubelets write their Node every few seconds
            return False
        return True

    def _contended(self) -> Retryable:
        return Retryable(f"node {self._node} changes faster than it can be read", reason=Reason.NODE_CONTENDED)


class DrainRounds:
    """The evictions of one drain. ``remaining`` are the pods after the last ``round``."""

    def __init__(self, client: KubeClient, node: str, clock: Clock, policy: DrainPolicy) -> None:
        self.remaining: Sequence[Remaining] = ()
        self._client = client
        self._node = node
        self._clock = clock
        self._policy = policy
        self._tries: dict[str, _Try] = {}  # by uid
        self._started = False
        self._empty_since: float | None = None
        self._daemon_sets = DaemonSets(client)

    async def round(self, check_lease: Callable[[], Awaitable[None]]) -> bool:
        """List the pods once and evict those that are due. Return True if this list and the previous one are empty.

        ``check_lease`` is called between two groups of evictions; what it raises ends the round.
        """
        pods = await pods_of(self._client, self._node)
        orphans = await self._daemon_sets.orphans(pods)
        classes = [(pod, classify(pod, self._policy, orphaned=pod["metadata"]["uid"] in orphans)) for pod in pods]
        going = [pod for pod, found in classes if found is not EvictionClass.STAYS]
        evicted = (EvictionClass.STAYS, EvictionClass.GOES)
        protected = {pod["metadata"]["uid"]: found for pod, found in classes if found not in evicted}
        self.remaining = sorted(self._remaining(pod, protected.get(pod["metadata"]["uid"])) for pod in going)
        if protected and not self._started:
            left = [self._remaining(pod, found) for pod, found in classes if pod["metadata"]["uid"] in protected]
            names = "; ".join(f"{pod.namespace}/{pod.name}: {pod.why}" for pod in sorted(left))
            raise Refused(f"the policy protects pods of this node: {names}", reason=Reason.DRAIN_REFUSED)
        self._started = True
        alive = {pod["metadata"]["uid"] for pod in going}
        self._tries = {uid: one for uid, one in self._tries.items() if uid in alive}
        now = self._clock.monotonic()
        if not going:
            first, self._empty_since = self._empty_since, now if self._empty_since is None else self._empty_since
            return first is not None and now - first >= SETTLE
        self._empty_since = None
        free = [pod for pod in going if pod["metadata"]["uid"] not in protected]
        due = [pod for pod in free if not pod["metadata"].get("deletionTimestamp") and self._of(pod).due <= now]
        for first in range(0, len(due), TOGETHER):
            if first:  # a round may take long, so the first check is not enough
                await check_lease()
            await asyncio.gather(*(self._evict(pod) for pod in due[first : first + TOGETHER]))
        self.remaining = sorted(self._remaining(pod, protected.get(pod["metadata"]["uid"])) for pod in going)
        return False

    def _of(self, pod: Object) -> _Try:
        return self._tries.setdefault(pod["metadata"]["uid"], _Try())

    async def _evict(self, pod: Object) -> None:
        meta, one = pod["metadata"], self._of(pod)
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
        one.count += 1
        try:
            await self._client.create(path, eviction(pod), throttled=1)
        except (Unreachable, Retryable, Refused, Terminal) as fault:
            if not isinstance(fault, KubeFault):
                raise
            one.cause, one.words = cause_of(fault.status, fault.detail)
            pause = pause_after(one.count, fault.retry_after)
        else:
            # An accepted eviction may have no effect, so it is repeated later.
            one.cause, one.words = None, ""
            pause = pause_after(one.count, None)
        one.due = self._clock.monotonic() + jittered(pause, random.random())  # noqa: S311

    def _remaining(self, pod: Object, protected: EvictionClass | None) -> Remaining:
        one = self._of(pod)
        return remaining_pod(pod, one.cause, one.words) if protected is None else protected_pod(pod, protected)
