# SPDX-License-Identifier: Apache-2.0
"""`nodeagent fleet approve`: approve certificate requests of agents, with the kubeconfig of the caller.

A first request comes with a bootstrap token, which every new host has and which is bound to no node. So it is approved
by the name that its host printed, which has the hash of the request; there is no option to approve all of them. A
renewal comes from the node itself and gives no new rights.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from nodeagent.cli._cluster import add_access, with_cluster
from nodeagent.cli._io import emit, printable
from nodeagent.errors import InvalidInput, Refused
from nodeagent.features.certificates.decide.approval import Applicant, applicant_of
from nodeagent.features.certificates.requests import approve, pending_requests
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Conflict
from nodeagent.reasons import Reason

SCHEMA: Final = "nodeagent/fleet-approve/v1"
# Exit status if a request was refused.
WAITING: Final = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="name of a request, as its host printed it")
    parser.add_argument("--renewals", action="store_true", help="approve all renewals, which come from the node itself")
    parser.add_argument("--dry-run", action="store_true", help="check only; without names, all pending requests")
    parser.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")
    add_access(parser)


def run(args: argparse.Namespace) -> int:
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

    async def approve_all(client: KubeClient) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
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
                    results.append(_result(name, error.message))
                continue
            try:
                if not args.dry_run:
                    await approve(client, request, applicant)
                results.append(_result(name, "", applicant))
            # The request has changed since it was checked.
            except Conflict as error:
                results.append(_result(name, error.message))
        return results + [_result(name, f"no request of an agent with the name {name} is pending") for name in missing]

    results = with_cluster(args, approve_all, role="bootstrap.yaml")
    if args.json:
        emit({"schema": SCHEMA, "dry_run": args.dry_run, "requests": results})
    else:
        _print(results, "fits" if args.dry_run else "approved")
    return WAITING if any(result["refused"] for result in results) else 0


def _result(name: str, refused: str, applicant: Applicant | None = None) -> dict[str, Any]:
    node, renewal = ("", False) if applicant is None else (applicant.node, applicant.renewal)
    return {"name": name, "node": node, "renewal": renewal, "refused": refused}


def _print(results: Sequence[dict[str, Any]], verb: str) -> None:
    for result in results:
        # Names and messages are those of other clients of the API server.
        if result["refused"]:
            print(f"refused: {printable(result['refused'])}")
        else:
            kind = "renewal" if result["renewal"] else "first request"
            print(f"{verb}: {printable(result['name'])} ({kind} of node {result['node']})")
