# SPDX-License-Identifier: Apache-2.0
"""Other actors on this node (``core/coordination/gates.py``), and the protection of its machine from deletion.

An operator of the cluster that updates the OS is in the way of another OS, and of each disruption while it is at work.

They are read before an operation begins and before each irreversible step, with five requests at most. A missing
permission is an error, not an empty answer. A kind that the cluster does not have has no objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from nodeagent.core.coordination.gates import (
    Gate,
    hooks_with,
    hooks_without,
    machine_gates,
    machine_of,
    maintenance_gates,
    node_gates,
)
from nodeagent.core.coordination.kube_objects import MAINTENANCES, LifecycleHook, Machine, Node, NodeMaintenance
from nodeagent.core.plan.deployment import OsTarget
from nodeagent.errors import AgentError, Refused, Retryable
from nodeagent.features.cluster.decide.bootc_node import BOOTC_NODES, BootcNode, bootc_gates, is_managed
from nodeagent.features.cluster.decide.marks import Annotations, marks_with, marks_without
from nodeagent.features.cluster.reasons import ClusterReason
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Conflict, NotFound
from nodeagent.reasons import Reason
from nodeagent.update.run import Run, Update
from nodeagent.update.stages.guard import Guard
from nodeagent.update.stages.os_deployments import HostDeployments

# Of the machine-api-operator of OpenShift.
MACHINES: Final = "/apis/machine.openshift.io/v1beta1/namespaces/{}/machines/{}"
# Attempts. A Machine is written rarely, so a second conflict in a row is an exception.
WRITES: Final = 3


class KubeGates:
    """``controls_node`` as in ``node_gates``."""

    def __init__(self, client: KubeClient, node: str, *, controls_node: bool) -> None:
        self._client = client
        self._node = node
        self._controls_node = controls_node

    async def read(self) -> Sequence[Gate]:
        """Return the gates of this node. Raises ``Refused`` (``NodeUnknown``) and what the client raises."""
        node = await self._client.node(self._node)
        gates = [*node_gates(node, controls_node=self._controls_node)]
        machine = await self._read_machine(node)
        if machine is not None:
            gates += machine_gates(machine)
        # One more request only where it is needed, and a right that only such a cluster has to give.
        if is_managed(node):
            # The object leaves with its pool, and the label may stay.
            with suppress(NotFound):
                gates += bootc_gates(await self._client.read(BOOTC_NODES.format(self._node), BootcNode))
        # The operator is not installed here.
        with suppress(NotFound):
            gates += maintenance_gates(self._node, await self._client.objects(MAINTENANCES, NodeMaintenance))
        return sorted(set(gates))

    async def check(self) -> None:
        """Raise ``Refused`` with the reason of the first gate and the messages of all."""
        gates = await self.read()
        if gates:
            raise Refused("; ".join(gate.message for gate in gates), reason=gates[0].reason)

    async def hold_machine(self) -> None:
        """Protect the machine of this node from deletion until ``free_machine``: its Machine by a hook, if it has one,
        and the Node by annotations for autoscalers.

        Raises ``Refused`` (``NodeLeaving``) if the Machine is being deleted already.
        """
        await self._write_hooks(hooks_with, refuse=True)
        await self._write_marks(marks_with)

    async def free_machine(self) -> None:
        await self._write_hooks(hooks_without, refuse=False)
        await self._write_marks(marks_without)

    async def _write_hooks(self, wanted: Callable[[Machine], list[LifecycleHook] | None], *, refuse: bool) -> None:
        for _ in range(WRITES):
            machine = await self._read_machine(await self._client.node(self._node))
            hooks = None if machine is None else wanted(machine)
            if machine is None or hooks is None:
                return
            # A hook that is added to a Machine under deletion would hold a deletion that was decided already.
            if refuse and (gone := machine_gates(machine)):
                raise Refused(gone[0].message, reason=gone[0].reason)
            meta = machine["metadata"]
            patch = {
                "metadata": {"resourceVersion": meta["resourceVersion"]},
                "spec": {"lifecycleHooks": {"preDrain": hooks}},
            }
            try:
                await self._client.patch(MACHINES.format(meta["namespace"], meta["name"]), patch)
            except Conflict:
                continue
            except NotFound:
                # The Machine was deleted, and the node with it.
                pass
            return
        raise Retryable(
            f"the Machine of {self._node} changes faster than it can be read", reason=ClusterReason.MACHINE_CONTENDED
        )

    async def _write_marks(self, wanted: Callable[[Node], Annotations]) -> None:
        for _ in range(WRITES):
            node = await self._client.node(self._node)
            annotations = wanted(node)
            if not annotations:
                return
            # Only over what was read: an annotation of another client is never replaced.
            meta = {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": annotations}
            # Kubelets write their Node every few seconds.
            with suppress(Conflict):
                await self._client.patch(f"/api/v1/nodes/{self._node}", {"metadata": meta})
                return
        raise Retryable(f"node {self._node} changes faster than it can be read", reason=ClusterReason.NODE_CONTENDED)

    async def _read_machine(self, node: Node) -> Machine | None:
        where = machine_of(node)
        if where is None:
            return None
        try:
            return await self._client.read(MACHINES.format(*where), Machine)
        except NotFound:
            return None


class ClusterGuard(Guard):
    """The OS is not updated where an operator of the cluster updates it."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client = client
        self._node = node

    # Both would stage a deployment, and each discards that of the other.
    async def check_target(
        self,
        update: Update,  # noqa: ARG002 - the node decides
        os: HostDeployments,  # noqa: ARG002
        target: OsTarget,  # noqa: ARG002
        *,
        staged: bool,  # noqa: ARG002
    ) -> Sequence[str]:
        """Raises ``Refused`` (``OtherDriver``). Without an answer of the API server, ``permit`` checks it later."""
        if await self._is_managed(needed=False):
            raise _other_driver()
        return ()

    async def permit(self, run: Run) -> None:
        """Raises ``Refused`` (``OtherDriver``), and what the client raises."""
        if run.update.target is not None and await self._is_managed(needed=True):
            raise _other_driver()

    async def _is_managed(self, *, needed: bool) -> bool:
        try:
            # A host may have an OS before it has a Node.
            with suppress(NotFound):
                return is_managed(await self._client.read(f"/api/v1/nodes/{self._node}", Node))
        except AgentError:
            if needed:
                raise
        return False


def _other_driver() -> Refused:
    message = "bootc-operator updates the OS of this node"
    hint = "take the node out of its BootcNodePool (kubectl get bootcnodepools), or the OS out of the config"
    return Refused(message, reason=Reason.OTHER_DRIVER, hint=hint)
