# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply`: make a MachineConfig the desired config, and optionally follow the update to its end."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from nodeagent import features
from nodeagent.cli import _io, plan
from nodeagent.cli._client import Client, ask
from nodeagent.cli._features import delaying, delays
from nodeagent.cli._follow import Ending, print_ending, request_and_wait
from nodeagent.cli._io import emit, printable, warn
from nodeagent.cli._plan_inputs import CONFIG_HELP, add_max_disruption, add_strict, read_config
from nodeagent.cli._render import local_now
from nodeagent.cli.plan import plan_here
from nodeagent.core.plan.plan import check_disruption, disruption
from nodeagent.errors import Refused
from nodeagent.reasons import Reason

# Options of the D-Bus method Apply.
Options = dict[str, str | int | bool]

OF_FEATURES: Final = features.options()
DELAYS: Final = (*(name for option in OF_FEATURES for name in option.names), "no_reboot")

# What an operator confirms, by the disruption of the plan. The others are applied without a question.
QUESTIONS: Final = {
    "restart": "Services restart.",
    "drain": "Workloads move away, and services restart.",
    "reboot": "This host reboots.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help=CONFIG_HELP)
    parser.add_argument("--dry-run", action="store_true", help="show the plan only, as nodeagent plan FILE")
    add_max_disruption(parser, "; a failed action does not reboot the host either")
    add_strict(parser)
    parser.add_argument("--yes", "-y", action="store_true", help="do not prompt on a terminal")
    for option in OF_FEATURES:
        parser.add_argument(option.flag, dest=option.flag, metavar=option.metavar, help=option.help)
    parser.add_argument("--no-reboot", action="store_true", help="hold the reboot back until nodeagent reboot")
    parser.add_argument(
        "--boot-staged", action="store_true", help="let the reboot boot the OS that another program has staged"
    )
    parser.add_argument(
        "--remove",
        metavar="N",
        type=_count,
        default=0,
        help="confirm that the config removes N entries, which are more than half of the current ones",
    )
    parser.add_argument("--allow-lockout", action="store_true", help="apply a config with which core cannot log in")
    parser.add_argument("--wait", action="store_true", help="show the progress, and return when the update has ended")
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/apply/v1)")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of entries")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Return 0 if the config was accepted, 6 if the operator did not confirm the plan. With ``--wait``: 0 done, 1
    reverted or degraded, 4 refused or still under way."""
    if args.dry_run:
        return plan.run(argparse.Namespace(old=None, new=None, policy=None, diff=False, stage=False, **vars(args)))
    name, text = read_config(args.files)
    options: Options = _of_features(args) | {"no_reboot": args.no_reboot}
    options["max_disruption"] = args.max_disruption or ""
    options["strict"] = args.strict
    options |= {"boot_staged": args.boot_staged, "remove": args.remove, "allow_lockout": args.allow_lockout}
    # Standard input has the config, so it cannot have an answer.
    if not (args.yes or args.json or _io.STDIN in args.files) and _io.is_interactive():
        confirmed = _confirmed(args.files, name, options)
        if confirmed is None:
            print("not applied: nothing was changed")
            return _io.DECLINED
        options["planned_disruption"] = confirmed
    digest, result, before = ask(lambda client: _request(client, name, text, options, wait=args.wait, silent=args.json))
    if args.json:
        emit(_answer(name, digest, result, before) | {key: options[key] for key in DELAYS})
    elif args.wait:
        print_ending(name, result)
    # It was at rest and well with this config. With drift, the daemon may repair it.
    elif before["phase"] == "Idle" and not before.get("drift") and before.get("current_digest") == digest:
        print(f"nothing to do: {printable(name)} is the current config")
    else:
        print(f"{printable(name)} is the desired config now; {_then(options)}")
    return result.exit_code


def _of_features(args: argparse.Namespace) -> Options:
    """Return the options of the method that those of features become; "" where they are not given."""
    options: Options = {}
    for option in OF_FEATURES:
        text = getattr(args, option.flag)
        options |= dict.fromkeys(option.names, "") | (import_module(option.module).read(text) if text else {})
    return options


def _confirmed(paths: Sequence[str], name: str, options: Options) -> str | None:
    """Show the plan and prompt if it disrupts. Return the disruption of the plan, which that of the daemon must not
    exceed; None if the operator did not confirm it."""
    allowed = str(options["max_disruption"])
    try:
        strict, lockout, removes = bool(options["strict"]), bool(options["allow_lockout"]), int(options["remove"])
        plan = plan_here(paths, as_json=False, strict=strict, allow_lockout=lockout, removes=removes)
    except Refused as error:
        if error.reason != Reason.UPDATE_UNDER_WAY:
            raise
        question = f"{error.message}, so the plan is not known yet. Apply {name} after it?"
        return "" if _io.confirm(question) else None
    if allowed:
        check_disruption(plan, allowed)
    word = disruption(plan)
    begins = _begins(options)
    if word in QUESTIONS and not _io.confirm(f"Apply {printable(name)}{begins}? {QUESTIONS[word]}"):
        return None
    # The host may change before the daemon plans again, and the operator has confirmed this much.
    return word


def _begins(options: Options) -> str:
    given = [option for option in OF_FEATURES if any(options[name] for name in option.names)]
    return "".join(import_module(option.module).begins(options) for option in given)


def _then(options: Options) -> str:
    if begins := _begins(options):
        text = f"its update begins{begins}"
    else:
        text = "nodeagent status --watch follows the update"
    return f"{text}; a reboot waits for nodeagent reboot" if options["no_reboot"] else text


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
