# SPDX-License-Identifier: Apache-2.0
"""`nodeagent rollback`: return to the config before the current one, as an ordinary update."""

from __future__ import annotations

import argparse
from typing import Any

from nodeagent.cli._client import Client, ask
from nodeagent.cli._follow import Ending, print_ending, request_and_wait
from nodeagent.cli._io import emit, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="show the progress, and return when the update has ended")
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/rollback/v1)")


def run(args: argparse.Namespace) -> int:
    """Return the exit status as ``apply`` does."""
    if args.wait:
        name, result = ask(lambda client: _wait(client, silent=args.json))
    else:
        name, result = ask(Client.rollback), Ending("accepted")
    if args.json:
        answer = result.chosen("outcome", "reason", "message", "seconds", "reboots", "boots", "successor")
        emit({"schema": "nodeagent/rollback/v1", "config": name, **answer})
    elif args.wait:
        print_ending(name, result)
    else:
        print(f"going back to {printable(name)}; nodeagent status --watch follows the update")
    return result.exit_code


async def _wait(client: Client, *, silent: bool) -> tuple[str, Ending]:
    async def send() -> dict[str, Any]:
        # The daemon returns the name only.
        return {"config": await client.rollback(), "digest": ""}

    answer, result = await request_and_wait(client, send, silent=silent)
    return answer["config"], result
