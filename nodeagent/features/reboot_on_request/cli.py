# SPDX-License-Identifier: Apache-2.0
"""`nodeagent reboot --now`, `--at` and `--request`: request a reboot of this host with its present config."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from typing import Any, Final

from nodeagent.cli import _io
from nodeagent.cli._client import Client, ask, typed_options
from nodeagent.cli._follow import Ending, request_and_wait
from nodeagent.cli._io import emit, printable
from nodeagent.cli._plan_inputs import OF_FEATURES, Options, begins
from nodeagent.cli._render import BAD, GOOD, clock, local_now, local_times, paint
from nodeagent.core.enumerated import enumerated
from nodeagent.errors import InvalidInput
from nodeagent.reasons import Reason, hint
from nodeagent.update.history.outcome import UpdateOutcome

# Names of packages in the row of the status; the JSON has all of them.
SHOWN: Final = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--now", action="store_true", help="reboot this host now, outside of windows as well")
    when.add_argument("--request", action="store_true", help="reboot this host in the next window")
    for option in [option for option in OF_FEATURES if option.starts]:
        when.add_argument(option.flag, dest=option.flag, metavar=option.metavar, help=option.help)
    parser.add_argument("--reason", default="", metavar="TEXT", help="reason shown to others")
    parser.add_argument(
        "--boot-staged", action="store_true", help="let the reboot boot the OS that another program has staged"
    )


def run(args: argparse.Namespace) -> int | None:
    """Return 0 if the reboot is requested, 6 if the operator did not confirm it; None without a request."""
    options = _options(args)
    if not (args.now or args.request or any(options.values())):
        if args.reason or args.boot_staged:
            raise InvalidInput("--reason and --boot-staged need --now, --request or a time", reason=Reason.USAGE)
        return None
    when = "now" if args.now else begins(options).strip() or "in the next window"
    if not (args.yes or args.json) and _io.is_interactive() and not _io.confirm(f"Reboot this host {when}?"):
        print("not requested: nothing was changed")
        return _io.DECLINED
    wanted = {name: value for name, value in options.items() if value}
    wanted |= {name: True for name, flag in (("at_once", args.now), ("boot_staged", args.boot_staged)) if flag}
    answer, result = ask(lambda client: _request(client, args.reason, wanted, wait=args.wait, silent=args.json))
    if args.json:
        emit({"schema": "nodeagent/reboot-request/v1", **answer, **result.chosen("outcome", "reason", "message")})
    elif not args.wait:
        print(f"a reboot is requested: this host reboots {when}, as soon as lease, slot and drain allow")
        print("nodeagent status shows what it waits for; nodeagent cancel takes it back")
    else:
        _print(result)
    return result.exit_code


def _options(args: argparse.Namespace) -> Options:
    options: Options = {}
    for option in OF_FEATURES:
        text = getattr(args, option.flag) if option.starts else ""
        options |= dict.fromkeys(option.names, "") | (import_module(option.module).read(text) if text else {})
    return options


async def _request(
    client: Client, purpose: str, options: Options, *, wait: bool, silent: bool
) -> tuple[dict[str, Any], Ending]:
    async def send() -> dict[str, Any]:
        return await client.change("RequestReboot", "sa{sv}", purpose, typed_options(options))

    if not wait:
        return await send(), Ending("accepted")
    return await request_and_wait(client, send, silent=silent)


def _print(result: Ending) -> None:
    cause = local_times(printable(": ".join(part for part in (result.reason, result.message) if part)), local_now())
    if result.outcome == UpdateOutcome.DONE:
        print(paint("done: the host has rebooted and is well", GOOD))
        return
    print(paint(f"{result.outcome}: {cause}", BAD))
    if result.reason:
        print(f"what now: {hint(result.reason, printable(result.failed_unit))}")


def rows(part: dict[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the row of ``nodeagent status`` about a request, or about what the host requires."""
    yield _required_row(part) if "packages" in part else _request_row(part, now)


def _request_row(request: dict[str, Any], now: datetime) -> tuple[str, str]:
    options = {name: request["options"].get(name, "") for option in OF_FEATURES for name in option.names}
    when = "now" if request["at_once"] else begins(options).strip() or "in the next window"
    text = f"requested by {request['requester']}"
    text += f": {request['reason']}" if request["reason"] else ""
    text += f" (since {clock(request['since'], now)}, {when})"
    return "reboot", printable(f"{text}; {local_times(request['message'], now)}" if request["message"] else text)


def _required_row(requirement: dict[str, Any]) -> tuple[str, str]:
    names = enumerated(requirement["packages"], SHOWN)
    return "required", printable(f"a reboot, by the host{f': {names}' if names else ''} (nodeagent reboot --request)")
