# SPDX-License-Identifier: Apache-2.0
"""`nodeagent etcd`: check whether a disruption of this host is safe for etcd, save a snapshot.

The answer of `status` comes from the daemon, because the daemon disrupts the host: it may read less than a root shell
can. Without a daemon, or with addresses or certificates of the caller, the command surveys etcd itself. It is also
meant for the moment before a manual reboot.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from nodeagent.cli._client import Client, ask
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import BAD, GOOD, paint, table
from nodeagent.errors import AgentError
from nodeagent.host.clock import SystemClock
from nodeagent.host.etcd.client import EtcdAccess
from nodeagent.host.etcd.quorum import QuorumCheck, answer
from nodeagent.host.etcd.snapshot import snapshot_of

SCHEMA: Final = "nodeagent/etcd/v1"
SNAPSHOT_SCHEMA: Final = "nodeagent/etcd-snapshot/v1"
REFUSED: Final = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="etcd_command", metavar="COMMAND", required=True)
    status = commands.add_parser("status", help="list the members, and whether this host may be disrupted")
    status.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")
    status.add_argument("--single", action="store_true", help="allow taking down a single-member cluster")
    _add_access(status)
    snapshot = commands.add_parser("snapshot", help="save a snapshot of the keyspace, with its checksum verified")
    snapshot.add_argument("file", metavar="FILE", help="path of the snapshot; it is replaced at the end")
    snapshot.add_argument("--json", action="store_true", help=f"one JSON object ({SNAPSHOT_SCHEMA})")
    _add_access(snapshot)


def _add_access(parser: argparse.ArgumentParser) -> None:
    endpoint = "client URL (default: detected); this host's first, may be repeated"
    parser.add_argument("--endpoint", action="append", default=[], metavar="URL", help=endpoint)
    parser.add_argument("--ca", default="", metavar="FILE", help="authority of etcd's certificates (PEM)")
    parser.add_argument("--cert", default="", metavar="FILE", help="client certificate (PEM)")
    parser.add_argument("--key", default="", metavar="FILE", help="its key (PEM)")


def run(args: argparse.Namespace) -> int:
    """Return 0 if a disruption is safe for etcd, also on a host without a member; 4 if not. 0 for a snapshot."""
    return _snapshot(args) if args.etcd_command == "snapshot" else _show_status(args)


def _show_status(args: argparse.Namespace) -> int:
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
            return ask(Client.etcd_status)
        except AgentError as error:
            cause = printable(f"{error.reason}: {error.message}")
            print(f"nodeagent: no answer from the daemon ({cause}); the command surveys etcd itself", file=sys.stderr)
    access = EtcdAccess(args.endpoint, args.ca, args.cert, args.key)
    survey = QuorumCheck(SystemClock(), access=access, single=args.single).survey()
    return answer(asyncio.run(survey), "command")


def _snapshot(args: argparse.Namespace) -> int:
    """Save with the rights of the caller: the daemon must not write files where a client of the bus wants them."""
    access = EtcdAccess(args.endpoint, args.ca, args.cert, args.key)
    saved = asyncio.run(snapshot_of(access, Path(args.file)))
    if args.json:
        emit({"schema": SNAPSHOT_SCHEMA, **asdict(saved)})
    else:
        # Before 3.6, etcd writes no version into its keyspace.
        version = saved.storage_version or "3.5"
        print(printable(f"{saved.path}: {saved.size} bytes, SHA-256 {saved.sha256}, for etcd {version}"))
    return 0


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
