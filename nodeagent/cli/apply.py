"""`nodeagent apply`: make a MachineConfig the desired config, and optionally follow the update to its end."""

from __future__ import annotations

import argparse
from typing import Any

from nodeagent.cli import _io
from nodeagent.cli._client import Client, ask
from nodeagent.cli._ending import Ending, print_ending
from nodeagent.cli._follow import request_and_wait
from nodeagent.cli._io import emit, printable, warn
from nodeagent.cli.maintenance import flag
from nodeagent.errors import InvalidInput

__all__ = ["add_arguments", "read_config", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the MachineConfig, YAML or JSON; - is standard input")
    parser.add_argument("--dry-run", action="store_true", help="show the plan only, as nodeagent plan FILE")
    _io.add_max_disruption(parser)
    parser.add_argument("--wait", action="store_true", help="show the progress, and return when the update has ended")
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/apply/v1)")


def run(args: argparse.Namespace) -> int:
    """Return 0 if the config was accepted. With ``--wait``: 0 done, 1 reverted or degraded, 4 refused or still under
    way."""
    if args.dry_run:
        from nodeagent.cli import plan

        return plan.run(argparse.Namespace(old=None, new=None, policy=None, diff=False, **vars(args)))
    name, text = read_config(args.file)
    allowed = args.max_disruption or ""
    digest, result, before = ask(lambda client: _request(client, name, text, allowed, wait=args.wait, silent=args.json))
    if args.json:
        emit(_answer(name, digest, result, before))
    elif args.wait:
        print_ending(name, result)
    else:
        print(f"{printable(name)} is the desired config now; nodeagent status --watch follows the update")
    return result.exit_code


def read_config(path: str) -> tuple[str, str]:
    """Return the name and the text of a config. An error names the file, which the daemon could not."""
    from nodeagent.core.config.parse import parse

    text, what = _io.read(path), _io.name_of(path)
    name = parse(text, what).name
    try:
        return name, text.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{what} is not UTF-8") from None


async def _request(
    client: Client, name: str, text: str, allowed: str, *, wait: bool, silent: bool
) -> tuple[str, Ending, dict[str, Any]]:
    before = await client.status()
    if flag(before) and not silent:
        warn(f"{flag(before)}; the update begins after it")
    if not wait:
        return await client.apply(text, allowed), Ending("accepted"), before

    async def send() -> tuple[str, str]:
        return name, await client.apply(text, allowed)

    _, digest, result = await request_and_wait(client, send, silent=silent)
    return digest, result, before


def _answer(name: str, digest: str, result: Ending, before: dict[str, Any]) -> dict[str, Any]:
    """``before`` is the status before the request: its maintenance delays the update."""
    return {
        "schema": "nodeagent/apply/v1",
        "config": name,
        "digest": digest,
        "outcome": result.outcome,
        "reason": result.reason,
        "message": result.message,
        "seconds": result.seconds,
        "reboots": result.reboots,
        "reboot_avoided": result.reboot_avoided,
        "successor": result.successor,
        "maintenance": before.get("maintenance"),
    }
