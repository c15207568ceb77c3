"""`nodeagent etcd status`: is there a member of etcd on this host, and might it go now? (And ``etcd_latency``.)

The daemon's answer counts, because it is the daemon that will disrupt the host: it may see less than a shell of root
does. Without a daemon, and with addresses or certificates of the caller, the command looks itself: it is for the moment
before a person reboots a host by hand, too.
"""

from __future__ import annotations

import argparse
import asyncio
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
    endpoint = "client URL, instead of what is found; this host's first, may be repeated"
    status.add_argument("--endpoint", action="append", default=[], metavar="URL", help=endpoint)
    status.add_argument("--ca", default="", metavar="FILE", help="authority of etcd's certificates (PEM)")
    status.add_argument("--cert", default="", metavar="FILE", help="client certificate (PEM)")
    status.add_argument("--key", default="", metavar="FILE", help="its key (PEM)")


def run(args: argparse.Namespace) -> int:
    """0 if the host may be disrupted as far as etcd goes, also where there is no member; 4 if not."""
    ours = args.single or args.endpoint or args.ca or args.cert or args.key
    found = _look(args) if ours else _ask() or _look(args)
    if args.json:
        emit(found)
    else:
        _describe(found)
    return 0 if found["allowed"] else REFUSED


def _ask() -> dict[str, Any] | None:
    """None, and a note, if no daemon answers, or one of an older version."""
    from nodeagent.cli._client import Client, ask

    async def question(client: Client) -> dict[str, Any]:
        return await client.etcd_status()

    try:
        return ask(question)
    except AgentError as error:
        why = printable(f"{error.reason}: {error.message}")
        print(f"nodeagent: the daemon cannot be asked ({why}); this is what the command sees itself", file=sys.stderr)
        return None


def _look(args: argparse.Namespace) -> dict[str, Any]:
    from nodeagent.host.clock import SystemClock
    from nodeagent.host.etcd.answer import answer
    from nodeagent.host.etcd.quorum import Access, EtcdGuard

    access = Access(args.endpoint, args.ca, args.cert, args.key)
    report = asyncio.run(EtcdGuard(SystemClock(), access=access, single=args.single).look())
    return answer(report, "command")


def _describe(found: dict[str, Any]) -> None:
    if not found["member"]:
        print("no member of etcd is on this host")
        return
    print(f"found      {printable(', '.join(found['signs']))}")
    if found["members"]:
        rows = []
        for each in found["members"]:
            role = "learner" if each["learner"] else "leader" if each["leader"] else "voter"
            title = (each["name"] or each["id"]) + (" (this host)" if each["this"] else "")
            rows.append([printable(title), role, printable(each["trouble"] or "healthy")])
        table(["MEMBER", "ROLE", "STATE"], rows)
    for refusal in found["refusals"]:
        print(paint(f"{refusal['reason']}: {printable(refusal['message'])}", BAD))
        print(f"hint: {printable(refusal['hint'])}")
    if found["allowed"]:
        moved = found["leader_to"]
        first = f", after the lead has moved to {printable(moved)}" if moved else ""
        print(paint(f"this host may be disrupted{first}", GOOD))
