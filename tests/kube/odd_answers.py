# SPDX-License-Identifier: Apache-2.0
"""Objects of another form than the API's, and what readers make of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from integration.fuzz.api import WHOLE
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import AgentError
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from tests.kube.server import Answer, Request, serving
from tests.kube.test_client import Clock, kubeconfig

MISSING: Final = object()
HOST: Final = HostIdentity("n", "i")
Readers = dict[str, Callable[[KubeClient], Awaitable[Any]]]
LISTS: Final = ("pods", "nodes", "leases", "nodemaintenances", "pools", "machineosconfigs", "signingrequests")


def odd(path: str, value: Any) -> dict[str, Any]:
    found = deepcopy(WHOLE)
    part, _, key = path.rpartition(".")
    at = found[part] if part else found
    if value is MISSING:
        del at[key]
    else:
        at[key] = value
    return found


async def read_all(directory: Path, found: dict[str, Any], readers: Readers) -> dict[str, str]:
    """Return the reason of each reader, "" for a result."""

    def answer(request: Request) -> Answer:
        listed = request.method == "GET" and request.target.partition("?")[0].endswith(LISTS)
        return Answer(body={"items": [found], "metadata": {}} if listed else found)

    reasons = dict.fromkeys(readers, "")
    async with serving(None) as server:
        server.answer = answer
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=30.0) as client:
            for name, read in readers.items():
                try:
                    await read(client)
                except AgentError as error:
                    reasons[name] = error.reason
    return reasons
