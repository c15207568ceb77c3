# SPDX-License-Identifier: Apache-2.0
"""`nodeagent fleet`: show the rollout status of all pools, and approve certificate requests of agents.

Both use the kubeconfig of the caller, and need neither the daemon nor root. An upgrade is complete when `status` exits
with 0, and not before: paused pools count like all others.

A first request comes with a bootstrap token, which every new host has and which is bound to no node. So `approve` takes
it by the name that its host printed, which has the hash of the request; there is no option to approve all of them. A
renewal comes from the node itself and gives no new rights.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import BAD, GOOD, WARN, counted, paint, table
from nodeagent.core.coordination.certificate_approval import applicant_of
from nodeagent.core.enumerated import enumerated
from nodeagent.errors import AgentError, InvalidInput, Refused
from nodeagent.host.clock import SystemClock
from nodeagent.kube.certificate import approve, pending_requests
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.errors import Conflict
from nodeagent.kube.rollout import read_objects
from nodeagent.reasons import Reason
from nodeagent.report.rollout import NodeRollout, PoolRollout, Rollout, rollout_of, rollout_to_dict

_T = TypeVar("_T")

DEGRADED: Final = 1
# Also if a request was refused.
WAITING: Final = 4
# Names in a line.
SHOWN: Final = 10
COUNTS: Final = ("updated", "updating", "pending", "degraded")
STYLES: Final = {"degraded": BAD, "updating": WARN, "updated": GOOD}

# The hints of the reasons are for the agent. These fit an operator with a kubeconfig.
HINTS: Final[Mapping[str, str]] = {
    Reason.KUBE_UNREACHABLE: "kubectl get --raw /readyz with the same kubeconfig shows whether the API server answers",
    Reason.KUBE_UNAUTHORIZED: "log in again, or name another kubeconfig or context (--kubeconfig, --context)",
    Reason.KUBE_FORBIDDEN: "request the role of packaging/kubernetes/{role}",
    Reason.KUBECONFIG_INVALID: "kubectl config view with the same file shows what is wrong with it",
    Reason.CLIENT_MISSING: "pip install nodeagent[cluster]; the package has it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="fleet_command", metavar="COMMAND", required=True)
    status = commands.add_parser("status", help="show each pool, and each node that needs attention")
    status.add_argument("--json", action="store_true", help="one JSON object (nodeagent/fleet/v1)")
    _add_access(status)
    leases = "where the node leases are (medik8s-leases)"
    status.add_argument("--lease-namespace", default="medik8s-leases", metavar="NAME", help=leases)
    approve = commands.add_parser("approve", help="check certificate requests of agents, and approve those that fit")
    approve.add_argument("names", nargs="*", metavar="NAME", help="name of a request, as its host printed it")
    approve.add_argument(
        "--renewals", action="store_true", help="approve all renewals, which come from the node itself"
    )
    approve.add_argument("--dry-run", action="store_true", help="check only; without names, all pending requests")
    _add_access(approve)


def _add_access(parser: argparse.ArgumentParser) -> None:
    where = "instead of $KUBECONFIG or ~/.kube/config"
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help=where)
    parser.add_argument("--context", default="", metavar="NAME", help="context of the kubeconfig")


def run(args: argparse.Namespace) -> int:
    return _approve(args) if args.fleet_command == "approve" else _status(args)


def _with_cluster(args: argparse.Namespace, work: Callable[[KubeClient], Awaitable[_T]], *, role: str) -> _T:
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


def _status(args: argparse.Namespace) -> int:
    """Return 0 if every node of every pool runs its desired config, 1 if a node is degraded, 4 if nodes are pending or
    updating, also in a paused pool."""
    seen, unknown = _with_cluster(
        args,
        lambda client: read_objects(client, SystemClock(), namespace=args.lease_namespace),
        role="fleet-viewer.yaml",
    )
    fleet = rollout_of(seen)
    # An empty fleet would be complete, which a script takes for the end of an upgrade.
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
    # A script waits for nodes that only need time, and calls an operator for a degraded one.
    return DEGRADED if fleet.degraded else WAITING


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
                progress = paint(str(member.progress), STYLES.get(member.progress, ""))
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


def _approve(args: argparse.Namespace) -> int:
    """Return 0 if each request that was named, and each renewal with ``--renewals``, was approved; else 4.

    With ``--dry-run``, and without names or ``--renewals``, all requests are checked.
    """
    every = args.dry_run and not args.names and not args.renewals
    if not args.names and not args.renewals and not every:
        raise InvalidInput(
            "no request is named",
            reason=Reason.USAGE,
            hint="name requests as their hosts printed them, or give --renewals; --dry-run checks all requests",
        )

    async def approve_all(client: KubeClient) -> int:
        status = 0
        # The keys are those that are left, in the order of the arguments.
        missing = dict.fromkeys(args.names)
        for request in await pending_requests(client):
            name = request["metadata"]["name"]
            named = name in missing
            missing.pop(name, None)
            try:
                applicant = applicant_of(request)
                # A request that is no renewal is left alone, and is no failure: it waits for its own approval.
                if not (named or every or (args.renewals and applicant.renewal)):
                    continue
            except Refused as error:
                if named or every:
                    status = _refuse(error.message)
                continue
            try:
                if not args.dry_run:
                    await approve(client, request, applicant)
            # The request has changed since it was checked.
            except Conflict as error:
                status = _refuse(error.message)
                continue
            verb, kind = "fits" if args.dry_run else "approved", "renewal" if applicant.renewal else "first request"
            print(f"{verb}: {printable(name)} ({kind} of node {applicant.node})")
        for name in missing:
            status = _refuse(f"no request of an agent with the name {name} is pending")
        return status

    return _with_cluster(args, approve_all, role="bootstrap.yaml")


def _refuse(message: str) -> int:
    print(f"refused: {printable(message)}")
    return WAITING
