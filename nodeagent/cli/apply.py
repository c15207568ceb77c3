"""`nodeagent apply`: make a MachineConfig the desired one, and follow the update to its end if asked to."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import Any

from nodeagent.cli._client import Client, ask
from nodeagent.cli._output import printable
from nodeagent.cli._progress import Ending
from nodeagent.cli._terminal import emit
from nodeagent.cli._waiting import ask_and_wait, tell
from nodeagent.cli.maintenance import flag
from nodeagent.errors import InvalidInput

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the MachineConfig, YAML or JSON; - is standard input")
    parser.add_argument("--wait", action="store_true", help="show the progress, and return when the update has ended")
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/apply/v1)")


def run(args: argparse.Namespace) -> int:
    """Without ``--wait`` 0 means accepted. With it: 0 done, 1 reverted or degraded, 4 refused or still under way."""
    from nodeagent.cli import _inputs

    text = _inputs.read(args.file)
    name = _check(text, _inputs.name_of(args.file))
    flagged = ask(Client.status)
    if flag(flagged) and not args.json:
        print(f"warning: {flag(flagged)}; the update begins after it", file=sys.stderr, flush=True)
    if not args.wait:
        digest = ask(lambda client: client.apply(text.decode()))
        _accepted(name, digest, flagged, as_json=args.json)
        return 0
    digest, result = _apply_and_wait(name, text.decode(), silent=args.json)
    if args.json:
        emit(_answer(name, digest, result, flagged))
    else:
        tell(name, result)
    return result.exit_code


def _apply_and_wait(name: str, text: str, *, silent: bool) -> tuple[str, Ending]:
    digest = ""

    async def conversation(client: Client) -> Ending:
        async def send() -> tuple[str, str]:
            nonlocal digest
            digest = await client.apply(text)
            return name, digest

        return (await ask_and_wait(client, send, stack, silent=silent))[1]

    with ExitStack() as stack:
        result = ask(conversation)
    return digest, result


def _check(text: bytes, what: str) -> str:
    """The name of the config. What the daemon would refuse as unreadable is refused here, with the file's name."""
    from nodeagent.core.config.parse import parse

    name = parse(text, what).name
    try:
        text.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{what} is not UTF-8") from None
    return name


def _accepted(name: str, digest: str, flagged: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        emit(_answer(name, digest, Ending("accepted"), flagged))
    else:
        print(f"{printable(name)} is the desired config now; nodeagent status --watch follows the update")


def _answer(name: str, digest: str, result: Ending, flagged: dict[str, Any]) -> dict[str, Any]:
    """``maintenance`` is what was there before: who has the host, for the one who wants to change it."""
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
        "maintenance": flagged.get("maintenance"),
    }
