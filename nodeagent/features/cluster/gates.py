# SPDX-License-Identifier: Apache-2.0
"""Other actors on this node (``core/coordination/gates.py``), and the protection of its Machine from deletion.

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
from nodeagent.errors import Refused, Retryable
from nodeagent.features.cluster.decide.bootc_node import BOOTC_NODES, BootcNode, bootc_gates, is_managed
from nodeagent.features.cluster.reasons import ClusterReason
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Conflict, NotFound

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
        if is_managed(node):
            # Its controller labels the node after it made the object.
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
        """Protect the Machine of this node, if it has one, from deletion until ``free_machine``.

        Raises ``Refused`` (``NodeLeaving``) if it is being deleted already.
        """
        await self._write_hooks(hooks_with, refuse=True)

    async def free_machine(self) -> None:
        await self._write_hooks(hooks_without, refuse=False)

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

    async def _read_machine(self, node: Node) -> Machine | None:
        where = machine_of(node)
        if where is None:
            return None
        try:
            return await self._client.read(MACHINES.format(*where), Machine)
        except NotFound:
            return None
