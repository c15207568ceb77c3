"""`nodeagent version`: show the versions of this program and of the running daemon.

An upgrade does not restart the daemon, so they may differ.
"""

from __future__ import annotations

import argparse

import nodeagent
from nodeagent.cli._client import Client, ask
from nodeagent.cli._io import emit
from nodeagent.errors import AgentError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/version/v1)")


def run(args: argparse.Namespace) -> int:
    """Return 0, with or without a daemon."""
    try:
        daemon = ask(Client.version)
    except AgentError:
        daemon = ""
    if args.json:
        emit({"schema": "nodeagent/version/v1", "version": nodeagent.__version__, "daemon": daemon})
        return 0
    print(f"nodeagent {nodeagent.__version__}")
    if daemon and daemon != nodeagent.__version__:
        print(f"the running daemon is {daemon}; systemctl restart nodeagent starts the new version")
    return 0
