# SPDX-License-Identifier: Apache-2.0
"""`nodeagent etcd`: save a snapshot of the keyspace. Features add more commands."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Final

from nodeagent.cli._etcd_access import access_of, add_access
from nodeagent.cli._io import emit, printable
from nodeagent.host.etcd.snapshot import snapshot_of

SCHEMA: Final = "nodeagent/etcd-snapshot/v1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="etcd_command", metavar="COMMAND", required=True)
    snapshot = commands.add_parser("snapshot", help="save a snapshot of the keyspace, with its checksum verified")
    snapshot.add_argument("file", metavar="FILE", help="path of the snapshot; it is replaced at the end")
    snapshot.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")
    add_access(snapshot)


def run(args: argparse.Namespace) -> int:
    """Save with the rights of the caller: the daemon must not write files where a client of the bus wants them."""
    saved = asyncio.run(snapshot_of(access_of(args), Path(args.file)))
    if args.json:
        emit({"schema": SCHEMA, **asdict(saved)})
    else:
        # Before 3.6, etcd writes no version into its keyspace.
        version = saved.storage_version or "3.5"
        print(printable(f"{saved.path}: {saved.size} bytes, SHA-256 {saved.sha256}, for etcd {version}"))
    return 0
