# SPDX-License-Identifier: Apache-2.0
"""Updates of the OS on a node whose OS an operator of the cluster updates."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodeagent.core.plan.deployment import OsTarget
from nodeagent.errors import AgentError
from nodeagent.features.cluster.gates import ClusterGuard
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from tests.features.cluster.test_gates import MANAGED, NODE
from tests.kube.server import CUT, Answer, serving
from tests.kube.test_client import Clock, kubeconfig

GONE = Answer(404, {"message": "not found"})
BROKEN = Answer(503, {"message": "later"})


async def refusals(directory: Path, answer: Any, target: OsTarget | None) -> tuple[str, str]:
    """Return the reasons with which the target and the reboot are refused, "" where they are not."""
    reasons = []
    async with serving(answer) as server:
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=10.0) as client:
            guard = ClusterGuard(client, "n")
            nothing: Any = None
            run: Any = SimpleNamespace(update=SimpleNamespace(target=target))
            for check in (
                lambda: guard.check_target(nothing, nothing, OsTarget(), staged=False),
                lambda: guard.permit(run),
            ):
                try:
                    await check()
                    reasons.append("")
                except AgentError as error:
                    reasons.append(error.reason)
    return reasons[0], reasons[1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(body=NODE), ("", "")),
        (Answer(body=MANAGED), ("OtherDriver", "OtherDriver")),
        (GONE, ("", "")),
        # A plan and a staging go on, the disruption waits.
        (BROKEN, ("", "KubeServerFault")),
        (CUT, ("", "KubeUnreachable")),
    ],
    ids=["its own", "managed", "not registered", "a fault", "no answer"],
)
async def test_the_os_of_a_node_that_an_operator_manages(
    tmp_path: Path, answer: Any, expected: tuple[str, str]
) -> None:
    assert await refusals(tmp_path, answer, OsTarget()) == expected


async def test_an_update_without_the_os_is_none_of_its_business(tmp_path: Path) -> None:
    assert await refusals(tmp_path, Answer(body=MANAGED), None) == ("OtherDriver", "")
