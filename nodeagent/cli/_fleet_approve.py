"""`nodeagent fleet approve`: check the pending certificate requests of agents, and approve those that fit.

A first request comes with a bootstrap token, which every new host has and which is bound to no node. So it is approved
by the name that its host printed, which has the hash of the request; there is no option to approve all of them. A
renewal comes from the node itself and gives no new rights.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from nodeagent.cli._fleet_access import with_cluster
from nodeagent.cli._io import printable
from nodeagent.core.coordination.certificate_approval import applicant_of
from nodeagent.errors import InvalidInput, Refused
from nodeagent.reasons import Reason

if TYPE_CHECKING:
    from nodeagent.kube.client import KubeClient

REFUSED: Final = 4


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

    async def approve_all(client: KubeClient) -> int:
        from nodeagent.kube.certificate import approve, pending_requests
        from nodeagent.kube.errors import Conflict

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

    return with_cluster(args, approve_all, role="bootstrap.yaml")


def _refuse(message: str) -> int:
    print(f"refused: {printable(message)}")
    return REFUSED
