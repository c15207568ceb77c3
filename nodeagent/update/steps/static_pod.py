# SPDX-License-Identifier: Apache-2.0
"""Static pods in an update: a changed manifest is not written with the other files, but replaced as an action.

A write of the manifest is the restart of its pod, so it comes after all other files and restarts, and after the check
of etcd's quorum. The way back is the same replacement with the snapshot. After it, the pod is watched for longer than
the kubelet takes for a full listing of its manifests, because a fault of a manifest may show only then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile, expand
from nodeagent.core.plan.static_pods import is_etcd
from nodeagent.core.plan.steps import RestartStaticPod, step_id
from nodeagent.core.validate.static_pod import load
from nodeagent.errors import AgentError
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import StaticPods, StaticPodState
from nodeagent.update.run import Progress, Run
from nodeagent.update.stages.admission import check_before_etcd_stops
from nodeagent.update.steps.originals import original_of
from nodeagent.update.steps.step import StepWork

PERIOD: Final = 1.0
# Restarts of a container before its pod works: the ports of the old pod may still be taken.
TOLERATED: Final = 1


class RestartStaticPodWork(StepWork[RestartStaticPod]):
    # The kubelet starts the pods of a boot from the same manifests.
    reboot_helps = False

    @property
    def limit(self) -> None:
        return None

    async def before(self) -> None:
        """Check the quorum of etcd, and move its leader, before a member stops. Raises ``NotNow``.

        A second etcd on the host, such as a pod beside etcd.service, may take the ports of the member that runs. A
        member that does not answer is not waited for: its manifest may be what starts it.
        """
        pods, path = self.run.ports.static_pods, self.step.path
        if pods is None:
            return
        if (await pods.state(path)).etcd or (_adds_etcd(self.run, path) and await pods.has_member()):
            await check_before_etcd_stops(self.run)

    async def do(self) -> str:
        node = expand(self.run.update.new).get(self.step.path)
        if node is None:
            node = (await original_of(self.run.ports, self.step.path)).node
        return await self._replace(node)

    async def undo(self) -> str:
        key = f"path:{self.step.path}"
        remembered = await self.run.ports.store.remembered(self.run.record.update_id)
        snapshot = next((snapshot for snapshot in remembered if snapshot.key == key), None)
        # Without a snapshot the update did not reach this manifest.
        return "" if snapshot is None else await self._replace(snapshot.node)

    async def _replace(self, node: FileTreeEntry | None) -> str:
        """Replace the manifest; None for no manifest."""
        if self.run.ports.static_pods is not None:
            await self.run.ports.static_pods.replace(self.step.path, node, self.run.record.update_id)
        return ""


def _adds_etcd(run: Run, path: str) -> bool:
    node = expand(run.update.new).get(path)
    pod = load(node.content) if isinstance(node, RegularFile) else None
    return pod is not None and is_etcd(pod)


async def watch(run: Run, progress: Progress) -> None:
    """Return when each pod worked for the time of a full listing and the settle time without a break.

    Raises ``AgentError`` (``StaticPodUnhealthy``); without waiting, if a container is restarted after it worked, or
    again and again.
    """
    pods = run.ports.static_pods
    paths = [step.path for step in run.update.static_pods if step_id(step) not in run.record.written.skipped]
    if pods is None or not paths:
        return
    # The files of the host are the new ones: the update may have changed fileCheckFrequency.
    clock, need = run.ports.clock.monotonic, await pods.listing() + run.policy.settle
    limit = run.policy.verify_timeout + need
    deadline = clock() + limit
    # Two counts of restarts are compared: with ``baseline``, since the pod exists, one restart is tolerated; with
    # ``first``, since it worked, none is.
    baseline = await _states(pods, paths)
    first: Sequence[StaticPodState] = ()
    since = clock()
    while True:
        states = await _states(pods, paths)
        problem = next((f"{state.pod}: {state.problem}" for state in states if state.problem), "")
        # The kubelet made the pod again, and its containers count from zero.
        if [state.uid for state in states] != [state.uid for state in baseline]:
            baseline = states
        _check_restarts(states, baseline, TOLERATED)
        _check_restarts(states, first, 0)
        if problem or not first or [state.uid for state in states] != [state.uid for state in first]:
            first, since = () if problem else states, clock()
        if first and clock() - since >= need:
            return
        if clock() >= deadline:
            raise unhealthy(f"{problem or 'the static pods are not stable'} after {limit:.0f} s")
        progress(
            f"{problem}; waiting for it" if problem else "the static pods work; they are watched",
            deadline if problem else since + need,
        )
        await asyncio.sleep(PERIOD if problem else min(PERIOD, max(need - (clock() - since), 0.05)))


def unhealthy(message: str) -> AgentError:
    """Return the error of pods that do not work. A reboot cannot help: the kubelet has started them."""
    return AgentError(message, reason=Reason.STATIC_POD_UNHEALTHY)


async def _states(pods: StaticPods, paths: Sequence[str]) -> Sequence[StaticPodState]:
    return [await pods.state(path) for path in paths]


def _check_restarts(states: Sequence[StaticPodState], before: Sequence[StaticPodState], tolerated: int) -> None:
    for now, then in zip(states, before, strict=False):
        if now.uid == then.uid and now.restarts > then.restarts + tolerated:
            raise unhealthy(f"a container of the static pod {now.pod} was restarted: {now.problem or 'it ended'}")
