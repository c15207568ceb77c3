"""`nodeagent fleet status`: show the rollout status of all pools.

Reads from an API server with the kubeconfig of the caller. Needs neither the daemon nor root. An upgrade is complete
when this exits with 0, and not before: paused pools count like all others.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import BAD, GOOD, WARN, counted, paint, table
from nodeagent.core.enumerated import enumerated
from nodeagent.errors import AgentError, InvalidInput, Refused
from nodeagent.reasons import Reason

if TYPE_CHECKING:
    from nodeagent.core.report.rollout import ClusterObjects, NodeRollout, PoolRollout, Rollout

__all__ = ["add_arguments", "run"]

DEGRADED = 1
WAITING = 4
# Names in a line.
SHOWN = 10
COUNTS = ("updated", "updating", "pending", "degraded")

HINTS: Mapping[str, str] = {
    Reason.KUBE_UNREACHABLE: "kubectl get --raw /readyz with the same kubeconfig shows whether the API server answers",
    Reason.KUBE_UNAUTHORIZED: "log in again, or name another kubeconfig or context (--kubeconfig, --context)",
    Reason.KUBE_FORBIDDEN: "request the role of packaging/kubernetes/fleet-viewer.yaml",
    Reason.KUBECONFIG_INVALID: "kubectl config view with the same file shows what is wrong with it",
    Reason.CLIENT_MISSING: "pip install nodeagent[cluster]; the package has it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="fleet_command", metavar="COMMAND", required=True)
    status = commands.add_parser("status", help="show each pool, and each node that needs attention")
    status.add_argument("--json", action="store_true", help="one JSON object (nodeagent/fleet/v1)")
    where = "instead of $KUBECONFIG or ~/.kube/config"
    status.add_argument("--kubeconfig", default="", metavar="FILE", help=where)
    status.add_argument("--context", default="", metavar="NAME", help="context of the kubeconfig")
    leases = "where the node leases are (medik8s-leases)"
    status.add_argument("--lease-namespace", default="medik8s-leases", metavar="NAME", help=leases)


def run(args: argparse.Namespace) -> int:
    """Return 0 if every node of every pool runs its desired config, 1 if a node is degraded, 4 if nodes are pending or
    updating, also in a paused pool."""
    from nodeagent.core.report.rollout import rollout_of, rollout_to_dict

    try:
        seen, unknown = _read(args.kubeconfig or _kubeconfig(), args.context, args.lease_namespace)
    except AgentError as error:
        error.hint = error.hint or HINTS.get(error.reason, "")
        if error.reason == Reason.KUBECONFIG_INVALID:
            # For this command the kubeconfig is an input of the caller.
            raise InvalidInput(error.message, reason=error.reason, hint=error.hint) from error
        raise
    fleet = rollout_of(seen)
    if not any(pool.members for pool in fleet.pools):
        raise Refused(
            "no node of this cluster is in a pool or has a desired config",
            reason=Reason.NO_FLEET,
            hint="is it the right cluster? (--kubeconfig, --context)",
        )
    if args.json:
        emit(rollout_to_dict(fleet, unknown))
    else:
        _describe(fleet, unknown)
    if fleet.complete:
        return 0
    return DEGRADED if fleet.degraded else WAITING


def _kubeconfig() -> str:
    """Return the first existing file of $KUBECONFIG, or the default."""
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    for path in named or [os.path.expanduser("~/.kube/config")]:  # noqa: PTH111 - pathlib is slow to import
        if os.path.exists(path):  # noqa: PTH110
            return path
    raise InvalidInput(
        "there is no kubeconfig" + (f" at {printable(', '.join(named))}" if named else " in ~/.kube/config"),
        reason=Reason.KUBECONFIG_INVALID,
        hint="name one: --kubeconfig FILE, or the environment variable KUBECONFIG",
    )


def _read(kubeconfig: str, context: str, namespace: str) -> tuple[ClusterObjects, Sequence[str]]:
    import asyncio
    from tempfile import TemporaryDirectory

    from nodeagent.host.clock import SystemClock
    from nodeagent.kube.client import KubeClient
    from nodeagent.kube.credentials import ClusterAccess
    from nodeagent.kube.rollout import read_objects

    async def read(private: str) -> tuple[ClusterObjects, Sequence[str]]:
        clock = SystemClock()
        async with KubeClient(ClusterAccess(kubeconfig, context, private=private), clock, timeout=30.0) as client:
            return await read_objects(client, clock, namespace=namespace)

    # The library needs the keys of the kubeconfig as files.
    with TemporaryDirectory(prefix="nodeagent-", dir=os.environ.get("XDG_RUNTIME_DIR")) as private:
        return asyncio.run(read(private))


def _describe(fleet: Rollout, unknown: Sequence[str]) -> None:
    headers = ["POOL", "CONFIG", "NODES", *(word.upper() for word in COUNTS), "FLAGGED", "STATE"]
    table(headers, [_row(pool) for pool in fleet.pools], right=range(2, 8))
    if rows := list(_members(fleet)):
        print()
        table(["NODE", "POOL", "PROGRESS", "CONFIG", "WHY"], rows)
    if lines := list(_lines(fleet, unknown)):
        print()
        print("\n".join(lines))


def _row(pool: PoolRollout) -> list[str]:
    counts = [str(sum(member.progress == word for member in pool.members)) for word in COUNTS]
    words = [paint("complete", GOOD) if pool.complete else paint("not complete", WARN)]
    if pool.paused:
        words.append(paint("paused", WARN))
    target = pool.target or ("each its own" if pool.members else "-")
    return [
        printable(pool.name),
        printable(target),
        str(len(pool.members)),
        *counts,
        str(len(pool.flagged)),
        ", ".join(words),
    ]


def _members(fleet: Rollout) -> Iterator[list[str]]:
    """Yield the nodes that need attention. Pending nodes are only counted, in the table of pools."""
    for pool in fleet.pools:
        for member in pool.members:
            if member.flags or member.progress in ("updating", "degraded"):
                style = {"degraded": BAD, "updating": WARN, "updated": GOOD}.get(member.progress, "")
                progress = paint(member.progress, style) if style else str(member.progress)
                yield [member.name, pool.name, progress, _configs(member), _why(member)]


def _configs(member: NodeRollout) -> str:
    current = member.current or "none"
    return printable(current if current == member.target else f"{current} -> {member.target or '?'}")


def _why(member: NodeRollout) -> str:
    words = [member.reason] if member.reason else []
    return printable("; ".join([*words, *(f"{gate.reason}: {gate.message}" for gate in member.flags)]))


def _lines(fleet: Rollout, unknown: Sequence[str]) -> Iterator[str]:
    for pool in fleet.pools:
        yield from (paint(f"pool {pool.name}: {printable(trouble)}", BAD) for trouble in pool.troubles)
    if paused := [pool.name for pool in fleet.pools if pool.paused]:
        yield paint(f"paused: {', '.join(paused)}", WARN)
    if fleet.unmanaged:
        yield f"in no pool: {enumerated(fleet.unmanaged, SHOWN)}"
    for what in unknown:
        yield f"not known, so flags may be missing: {printable(what)}"
    if fleet.complete:
        yield paint("every node of every pool runs what it should", GOOD)
        return
    left = sum(not pool.complete for pool in fleet.pools)
    yield paint(f"{left} of {counted(len(fleet.pools), 'pool')} {'is' if left == 1 else 'are'} not complete", WARN)
