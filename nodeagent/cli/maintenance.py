"""`nodeagent maintenance`: a person takes the lease, and nothing disrupts this host until they give it back."""

from __future__ import annotations

import argparse

from nodeagent.cli.client import Client, ask
from nodeagent.cli.lease import describe, held
from nodeagent.cli.terminal import emit

__all__ = ["add_arguments", "run"]

OPERATION = "maintenance"
"""Of the lease that a person holds, as the daemon names it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="maintenance_command", metavar="COMMAND", required=True)
    start = commands.add_parser("start", help="nothing disrupts this host until it is stopped, reboots included")
    start.add_argument("--reason", required=True, metavar="TEXT", help="what others see who have to wait")
    stop = commands.add_parser("stop", help="updates go on; one that waited begins at once")
    status = commands.add_parser("status", help="whether it is under way, since when and why")
    for command in (start, stop, status):
        command.add_argument("--json", action="store_true", help="one JSON object (nodeagent/maintenance/v1)")


def run(args: argparse.Namespace) -> int:
    """0; 4 if somebody else holds the lease, or if there is nothing to stop."""
    if args.maintenance_command == "start":
        ask(lambda client: client.start_maintenance(args.reason))
    elif args.maintenance_command == "stop":
        ask(Client.stop_maintenance)
    lease = held()
    active = lease is not None and lease.get("operation") == OPERATION
    if args.json:
        emit({"schema": "nodeagent/maintenance/v1", "active": active, "lease": lease if active else None})
    elif active and lease is not None:
        print("maintenance is under way: nothing disrupts this host")
        describe(lease)
    else:
        print("no maintenance is under way")
    return 0
