# SPDX-License-Identifier: Apache-2.0
"""What the cluster decides about the OS of its node."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from nodeagent.core.coordination.kube_objects import Node
from nodeagent.core.plan.deployment import OsTarget
from nodeagent.errors import AgentError, Refused
from nodeagent.features.cluster.decide.bootc_node import is_managed
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import NotFound
from nodeagent.reasons import Reason
from nodeagent.update.run import Run, Update
from nodeagent.update.stages.guard import Guard
from nodeagent.update.stages.os_deployments import HostDeployments


class ClusterGuard(Guard):
    """The OS is not updated where an operator of the cluster updates it."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client = client
        self._node = node

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
