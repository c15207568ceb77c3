# SPDX-License-Identifier: Apache-2.0
"""`nodeagent rollback`: return to the config before the current one, as an ordinary update."""

from __future__ import annotations

import argparse
from typing import Any

from nodeagent.cli import _io
from nodeagent.cli._client import Client, ask
from nodeagent.cli._follow import Ending, print_ending, request_and_wait
from nodeagent.cli._host_plan import DECLINED, HostPlan
from nodeagent.cli._io import emit, printable
from nodeagent.cli._plan_inputs import (
    Options,
    add_request_options,
    add_view,
    begins,
    falls_back,
    options_of,
    then,
)
from nodeagent.cli._plan_view import View
from nodeagent.cli.plan import ask_plan, show_here
from nodeagent.core.plan.plan import check_disruption


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show the plan only")
    add_view(parser)
    add_request_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/rollback/v1)")


def run(args: argparse.Namespace) -> int:
    """Return the exit status as ``apply`` does."""
    options, view = options_of(args), View(summary=args.summary, all=args.all)
    if args.dry_run:
        _show_plan(options, view, as_json=args.json)
        return 0
    if not (args.yes or args.json) and _io.is_interactive():
        plan = _show_plan(options, view, as_json=False)
        word = plan.confirmed(f"Go back to {plan.plan.to_name}{begins(options)}")
        if word is None:
            print(DECLINED)
            return _io.DECLINED
        options["planned_disruption"] = word
    if args.wait:
        name, result = ask(lambda client: _wait(client, options, silent=args.json))
    else:
        name, result = ask(lambda client: client.rollback(options)), Ending("accepted")
    if args.json:
        answer = result.chosen("outcome", "reason", "message", "seconds", "reboots", "boots", "successor")
        emit({"schema": "nodeagent/rollback/v1", "config": name, **answer})
    elif args.wait:
        print_ending(name, result)
    else:
        print(f"going back to {printable(name)}; {then(options)}")
    return result.exit_code


def _show_plan(options: Options, view: View, *, as_json: bool) -> HostPlan:
    """Show the plan, and return it. Raise ``Refused`` for what the daemon would refuse."""
    answer = ask_plan("", as_json=as_json, rollback=True, allow_lockout=bool(options["allow_lockout"]))
    plan = HostPlan.read(answer)
    show_here(plan, answer, view, options, as_json=as_json, falls_back=falls_back(options))
    plan.check_request(None)
    if options["max_disruption"]:
        check_disruption(plan.plan, str(options["max_disruption"]))
    return plan


async def _wait(client: Client, options: Options, *, silent: bool) -> tuple[str, Ending]:
    async def send() -> dict[str, Any]:
        # The daemon returns the name only.
        return {"config": await client.rollback(options), "digest": ""}

    answer, result = await request_and_wait(client, send, silent=silent)
    return answer["config"], result
