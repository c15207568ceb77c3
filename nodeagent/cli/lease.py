# SPDX-License-Identifier: Apache-2.0
"""`nodeagent lease show`: show who holds the lease, the right to disrupt this host."""

from __future__ import annotations

import argparse
from typing import Any

from nodeagent.cli._client import Client, ask
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import ago, clock, local_now


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="lease_command", metavar="COMMAND", required=True)
    show = commands.add_parser("show", help="show the lease holder, the start and the reason")
    show.add_argument("--json", action="store_true", help="one JSON object (nodeagent/lease/v1)")


def run(args: argparse.Namespace) -> int:
    """Return 0, with or without a holder."""
    lease: dict[str, Any] | None = ask(Client.status, lambda stored: stored.status())["lease"]
    if args.json:
        emit({"schema": "nodeagent/lease/v1", "lease": lease})
    elif lease is None:
        print("the lease on this host has no holder")
    else:
        describe_lease(lease)
    return 0


def describe_lease(lease: dict[str, Any]) -> None:
    now = local_now()
    rows = [("holder", lease["holder"]), ("operation", lease.get("operation", "")), ("reason", lease["reason"])]
    rows += [("backend", lease["backend"])]
    if since := lease.get("since"):
        rows.append(("since", f"{clock(since, now)}, {ago(since, now)}"))
    rows.append(("expires", clock(lease["expires"], now) if lease["expires"] else "never"))
    for label, text in rows:
        if text:
            print(f"{label:<9}  {printable(text)}")
