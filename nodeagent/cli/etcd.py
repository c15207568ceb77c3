"""`nodeagent etcd status`: check whether a disruption of this host is safe for etcd.

The answer comes from the daemon, because the daemon disrupts the host: it may read less than a root shell can.
Without a daemon, or with addresses or certificates of the caller, the command surveys etcd itself. It is also meant for
the moment before a manual reboot.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import BAD, GOOD, paint, table
from nodeagent.errors import AgentError

__all__ = ["add_arguments", "run"]

SCHEMA: Final = "nodeagent/etcd/v1"
REFUSED: Final = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="etcd_command", metavar="COMMAND", required=True)
    status = commands.add_parser("status", help="list the members, and whether this host may be disrupted")
    status.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")
    status.add_argument("--single", action="store_true", help="allow taking down a single-member cluster")
    endpoint = "client URL (default: detected); this host's first, may be repeated"
    status.add_argument("--endpoint", action="append", default=[], metavar="URL", help=endpoint)
    status.add_argument("--ca", default="", metavar="FILE", help="authority of etcd's certificates (PEM)")
    status.add_argument("--cert", default="", metavar="FILE", help="client certificate (PEM)")
    status.add_argument("--key", default="", metavar="FILE", help="its key (PEM)")


def run(args: argparse.Namespace) -> int:
    """Return 0 if a disruption is safe for etcd, also on a host without a member; 4 if not."""
    import asyncio

    found = asyncio.run(_status(args))
    if args.json:
        emit(found)
    else:
        _describe(found)
    return 0 if found["allowed"] else REFUSED


async def _status(args: argparse.Namespace) -> dict[str, Any]:
    if not (args.single or args.endpoint or args.ca or args.cert or args.key):
        from nodeagent.cli._client import connect

        try:
            async with connect() as client:
                return await client.etcd_status()
        except AgentError as error:
            # A daemon of an older version does not know the method.
            why = printable(f"{error.reason}: {error.message}")
            print(f"nodeagent: no answer from the daemon ({why}); the command surveys etcd itself", file=sys.stderr)
    return await _survey(args)


async def _survey(args: argparse.Namespace) -> dict[str, Any]:
    from nodeagent.host.clock import SystemClock
    from nodeagent.host.etcd.answer import answer
    from nodeagent.host.etcd.quorum import EtcdAccess, QuorumCheck

    access = EtcdAccess(args.endpoint, args.ca, args.cert, args.key)
    return answer(await QuorumCheck(SystemClock(), access=access, single=args.single).survey(), "command")


def _describe(found: dict[str, Any]) -> None:
    if not found["member"]:
        print("no member of etcd is on this host")
        return
    print(f"found      {printable(', '.join(found['signs']))}")
    if found["members"]:
        table(["MEMBER", "ROLE", "STATE"], [_row(member) for member in found["members"]])
    for refusal in found["refusals"]:
        print(paint(f"{refusal['reason']}: {printable(refusal['message'])}", BAD))
        print(f"hint: {printable(refusal['hint'])}")
    if found["allowed"]:
        moved = found["leader_to"]
        first = f", after the leadership has moved to {printable(moved)}" if moved else ""
        print(paint(f"this host may be disrupted{first}", GOOD))


def _row(member: dict[str, Any]) -> list[str]:
    role = "learner" if member["learner"] else "leader" if member["leader"] else "voter"
    title = (member["name"] or member["id"]) + (" (this host)" if member["this"] else "")
    return [printable(title), role, printable(member["trouble"] or "healthy")]
