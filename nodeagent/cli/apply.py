# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply`: make a MachineConfig the desired config, and optionally follow the update to its end."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from nodeagent.cli import _io, plan
from nodeagent.cli._client import Client, ask
from nodeagent.cli._features import delaying, delays
from nodeagent.cli._follow import Ending, print_ending, request_and_wait
from nodeagent.cli._host_plan import DECLINED
from nodeagent.cli._io import emit, printable, warn
from nodeagent.cli._plan_inputs import (
    CONFIG_HELP,
    DELAYS,
    Options,
    add_request_options,
    add_strict,
    add_view,
    begins,
    falls_back,
    options_of,
    read_config,
    then,
)
from nodeagent.cli._plan_view import View
from nodeagent.cli._render import local_now
from nodeagent.cli.plan import plan_here
from nodeagent.core.plan.plan import check_disruption
from nodeagent.errors import Refused
from nodeagent.reasons import Reason


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help=CONFIG_HELP)
    parser.add_argument("--dry-run", action="store_true", help="show the plan only, as nodeagent plan FILE")
    add_view(parser)
    add_strict(parser)
    add_request_options(parser)
    parser.add_argument(
        "--remove",
        metavar="N",
        type=_count,
        default=0,
        help="confirm that the config removes N entries, which are more than half of the current ones",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/apply/v1)")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of entries")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Return 0 if the config was accepted, 6 if the operator did not confirm the plan. With ``--wait``: 0 done, 1
    reverted or degraded, 4 refused or still under way."""
    options = options_of(args) | {"strict": args.strict, "remove": args.remove}
    if args.dry_run:
        wanted = argparse.Namespace(old=None, new=None, policy=None, diff=False, stage=False, **vars(args))
        return plan.run(wanted, options)
    name, text = read_config(args.files)
    # Standard input has the config, so it cannot have an answer.
    if not (args.yes or args.json or _io.STDIN in args.files) and _io.is_interactive():
        word = _confirmed(args.files, name, options, View(summary=args.summary, all=args.all))
        if word is None:
            print(DECLINED)
            return _io.DECLINED
        options["planned_disruption"] = word
    digest, result, before = ask(lambda client: _request(client, name, text, options, wait=args.wait, silent=args.json))
    if args.json:
        emit(_answer(name, digest, result, before) | {key: options[key] for key in DELAYS})
    elif args.wait:
        print_ending(name, result)
    # It was at rest and well with this config. With drift, the daemon may repair it.
    elif before["phase"] == "Idle" and not before.get("drift") and before.get("current_digest") == digest:
        print(f"nothing to do: {printable(name)} is the current config")
    else:
        print(f"{printable(name)} is the desired config now; {then(options)}")
    return result.exit_code


def _confirmed(paths: Sequence[str], name: str, options: Options, view: View) -> str | None:
    """Show the plan and prompt if it disrupts. Return its disruption, None if the operator did not confirm it."""
    try:
        plan = plan_here(
            paths,
            as_json=False,
            view=view,
            falls_back=falls_back(options),
            request=options,
            allow_lockout=bool(options["allow_lockout"]),
        )
    except Refused as error:
        if error.reason != Reason.UPDATE_UNDER_WAY:
            raise
        question = f"{error.message}, so the plan is not known yet. Apply {name} after it?"
        return "" if _io.confirm(question) else None
    if options["strict"]:
        plan.check_units()
    plan.check_request(int(options["remove"]))
    if options["max_disruption"]:
        check_disruption(plan.plan, str(options["max_disruption"]))
    return plan.confirmed(f"Apply {name}{begins(options)}")


async def _request(
    client: Client, name: str, text: str, options: Options, *, wait: bool, silent: bool
) -> tuple[str, Ending, dict[str, Any]]:
    before = await client.status()
    for cause in () if silent else delays(before, local_now()):
        warn(f"{cause}; the update begins after it")
    if not wait:
        return await client.apply(text, options), Ending("accepted"), before

    async def send() -> dict[str, Any]:
        return {"config": name, "digest": await client.apply(text, options)}

    answer, result = await request_and_wait(client, send, silent=silent)
    return answer["digest"], result, before


def _answer(name: str, digest: str, result: Ending, before: dict[str, Any]) -> dict[str, Any]:
    """``before`` is the status before the request: parts of it delay the update."""
    return {
        "schema": "nodeagent/apply/v1",
        "config": name,
        "digest": digest,
        **result.chosen("outcome", "reason", "message", "seconds", "reboots", "boots", "reboot_avoided", "successor"),
        **delaying(before),
    }
