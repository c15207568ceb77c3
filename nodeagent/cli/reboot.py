# SPDX-License-Identifier: Apache-2.0
"""`nodeagent reboot`: continue an update whose reboot was held back with `nodeagent apply --no-reboot`."""

from __future__ import annotations

import argparse
from typing import Any

from nodeagent.cli import _io
from nodeagent.cli._client import Client, ask
from nodeagent.cli._follow import Ending, print_ending, request_and_wait
from nodeagent.cli._io import emit, printable
from nodeagent.reasons import Reason


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="do not prompt on a terminal")
    parser.add_argument("--wait", action="store_true", help="show the progress, and return when the update has ended")
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/reboot/v1)")


def run(args: argparse.Namespace) -> int:
    """Return 0 if the update goes on, or if none waits; 6 if the operator did not confirm it."""
    if not (args.yes or args.json) and _io.is_interactive():
        status = ask(Client.status)
        pending = status["reason"] == Reason.REBOOT_REQUIRED
        if pending and not _io.confirm(f"{status['message']}. Reboot this host now?"):
            print("not rebooted: nothing was changed")
            return _io.DECLINED
    answer, result = ask(lambda client: _reboot(client, wait=args.wait, silent=args.json))
    name = printable(answer["config"])
    if args.json:
        emit({**answer, **result.chosen("outcome", "reason", "message")})
    elif not name:
        print("no update waits for a reboot: nothing to do")
    elif args.wait:
        print_ending(name, result)
    else:
        print(f"the update to {name} goes on and reboots this host; nodeagent status --watch follows it")
    return result.exit_code


async def _reboot(client: Client, *, wait: bool, silent: bool) -> tuple[dict[str, Any], Ending]:
    status = await client.status()
    # Without a reboot that is held back, no end would ever be reported.
    if not wait or status["reason"] != Reason.REBOOT_REQUIRED:
        return await client.reboot(), Ending("accepted")
    return await request_and_wait(client, client.reboot, silent=silent)
