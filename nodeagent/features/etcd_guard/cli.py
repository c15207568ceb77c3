# SPDX-License-Identifier: Apache-2.0
"""`nodeagent etcd status`: whether a disruption of this host is safe for etcd.

The answer comes from the daemon, because the daemon disrupts the host: it may read less than a root shell can. Without
a daemon, or with addresses or certificates of the caller, the command surveys etcd itself. It is also meant for the
moment before a manual reboot.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any, Final

from nodeagent.cli._client import ask
from nodeagent.cli._etcd_access import access_of, add_access
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import BAD, GOOD, paint, table
from nodeagent.errors import AgentError
from nodeagent.features.etcd_guard.quorum import SCHEMA, QuorumCheck, answer
from nodeagent.host.clock import SystemClock

REFUSED: Final = 4

# Seconds for a survey: a few requests to each member, of which each may take five.
SURVEY: Final = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")
    parser.add_argument("--single", action="store_true", help="allow taking down a single-member cluster")
    add_access(parser)


def run(args: argparse.Namespace) -> int:
    """Return 0 if a disruption is safe for etcd, also on a host without a member; 4 if not."""
    status = _status(args)
    if args.json:
        emit(status)
    else:
        _describe(status)
    return 0 if status["allowed"] else REFUSED


def _status(args: argparse.Namespace) -> dict[str, Any]:
    # The daemon knows only its own settings, and must not use files that a client names.
    if not (args.single or args.endpoint or args.ca or args.cert or args.key):
        try:
            return ask(lambda client: client.read("EtcdStatus", timeout=SURVEY))
        except AgentError as error:
            cause = printable(f"{error.reason}: {error.message}")
            print(f"nodeagent: no answer from the daemon ({cause}); the command surveys etcd itself", file=sys.stderr)
    survey = QuorumCheck(SystemClock(), access=access_of(args), single=args.single).survey()
    return answer(asyncio.run(survey), "command")


def _describe(status: dict[str, Any]) -> None:
    if not status["member"]:
        print("no member of etcd is on this host")
        return
    print(f"found      {printable(', '.join(status['signs']))}")
    if status["members"]:
        table(["MEMBER", "ROLE", "STATE"], [_row(member) for member in status["members"]])
    for refusal in status["refusals"]:
        print(paint(f"{refusal['reason']}: {printable(refusal['message'])}", BAD))
        print(f"hint: {printable(refusal['hint'])}")
    if status["allowed"]:
        moved = status["leader_to"]
        first = f", after the leadership has moved to {printable(moved)}" if moved else ""
        print(paint(f"this host may be disrupted{first}", GOOD))


def _row(member: dict[str, Any]) -> list[str]:
    role = "learner" if member["learner"] else "leader" if member["leader"] else "voter"
    title = (member["name"] or member["id"]) + (" (this host)" if member["this"] else "")
    return [printable(title), role, printable(member["trouble"] or "healthy")]
