"""`nodeagent rollback`: go back to the config before the current one, as an ordinary update."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from nodeagent.cli._client import Client, ask
from nodeagent.cli._output import printable
from nodeagent.cli._progress import Ending
from nodeagent.cli._terminal import emit
from nodeagent.cli._waiting import ask_and_wait, tell

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="show the progress, and return when the update has ended")
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/rollback/v1)")


def run(args: argparse.Namespace) -> int:
    """As ``apply``: without ``--wait`` 0 means accepted."""
    name, result = _wait(silent=args.json) if args.wait else (ask(Client.rollback), Ending("accepted"))
    if args.json:
        answer = {"outcome": result.outcome, "reason": result.reason, "message": result.message}
        times = {"seconds": result.seconds, "reboots": result.reboots, "successor": result.successor}
        emit({"schema": "nodeagent/rollback/v1", "config": name, **answer, **times})
    elif args.wait:
        tell(name, result)
    else:
        print(f"going back to {printable(name)}; nodeagent status --watch follows the update")
    return result.exit_code


def _wait(*, silent: bool) -> tuple[str, Ending]:
    async def conversation(client: Client) -> tuple[str, Ending]:
        async def send() -> tuple[str, str]:
            return await client.rollback(), ""  # the daemon returns the name only

        return await ask_and_wait(client, send, stack, silent=silent)

    with ExitStack() as stack:
        return ask(conversation)
