# SPDX-License-Identifier: Apache-2.0
"""Access to a cluster with the kubeconfig of the caller, for commands of operators."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from nodeagent.cli._io import printable
from nodeagent.errors import AgentError, InvalidInput
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.reasons import Reason

_T = TypeVar("_T")

# The hints of the reasons are for the agent. These fit an operator with a kubeconfig.
HINTS: Final[Mapping[str, str]] = {
    Reason.KUBE_UNREACHABLE: "kubectl get --raw /readyz with the same kubeconfig shows whether the API server answers",
    Reason.KUBE_UNAUTHORIZED: "log in again, or name another kubeconfig or context (--kubeconfig, --context)",
    Reason.KUBE_FORBIDDEN: "request the role of packaging/kubernetes/{role}",
    Reason.KUBECONFIG_INVALID: "kubectl config view with the same file shows what is wrong with it",
    Reason.CLIENT_MISSING: "pip install nodeagent[cluster]; the package has it",
}


def add_access(parser: argparse.ArgumentParser) -> None:
    where = "instead of $KUBECONFIG or ~/.kube/config"
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help=where)
    parser.add_argument("--context", default="", metavar="NAME", help="context of the kubeconfig")


def with_cluster(args: argparse.Namespace, work: Callable[[KubeClient], Awaitable[_T]], *, role: str) -> _T:
    """Run ``work`` with a client. ``role`` is the file of packaging/kubernetes with the rights for it."""

    async def run(kubeconfig: str, private: str) -> _T:
        access = ClusterAccess(kubeconfig, args.context, private=private)
        async with KubeClient(access, SystemClock(), timeout=30.0, patient=False) as client:
            return await work(client)

    try:
        kubeconfig = args.kubeconfig or _kubeconfig()
        # The library needs the keys of the kubeconfig as files.
        with TemporaryDirectory(prefix="nodeagent-", dir=os.environ.get("XDG_RUNTIME_DIR")) as private:
            return asyncio.run(run(kubeconfig, private))
    except AgentError as error:
        error.hint = error.hint or HINTS.get(error.reason, "").format(role=role)
        raise


def _kubeconfig() -> str:
    """Return the first existing file of $KUBECONFIG, or the default."""
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    for path in named or [os.path.expanduser("~/.kube/config")]:  # noqa: PTH111 - pathlib raises without a home
        if os.path.exists(path):  # noqa: PTH110
            return path
    raise InvalidInput(
        "there is no kubeconfig" + (f" at {printable(', '.join(named))}" if named else " in ~/.kube/config"),
        reason=Reason.KUBECONFIG_INVALID,
        hint="name one: --kubeconfig FILE, or the environment variable KUBECONFIG",
    )
