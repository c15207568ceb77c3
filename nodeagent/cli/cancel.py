# SPDX-License-Identifier: Apache-2.0
"""`nodeagent cancel`: end the update under way, or take it back before its reboot; or end the staging for a plan."""

from __future__ import annotations

import argparse
from typing import Any, Final

from nodeagent.cli._client import Client, ask
from nodeagent.cli._follow import Ending, print_ending, request_and_wait
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import GOOD, duration, paint
from nodeagent.reasons import Reason
from nodeagent.update.course import Cancellation
from nodeagent.update.history.outcome import UpdateOutcome

# Ends after which the config of the update is not in force.
GONE: Final = (
    UpdateOutcome.CANCELLED,
    UpdateOutcome.SUPERSEDED,
    UpdateOutcome.WITHDRAWN,
    UpdateOutcome.REVERTED,
)


class _StagingEnded(Exception):
    """No update was cancelled, so there is no end to wait for. Has the answer of the daemon."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/cancel/v1)")


def run(args: argparse.Namespace) -> int:
    """Return 0 when the update has ended, 1 if its end left the host degraded. Raise ``Refused`` if there is none, or
    if only a reboot leads back."""
    answer, result = ask(lambda client: _cancel(client, silent=args.json))
    # An update that was done before the request arrived ends with 0. The request to cancel it was refused.
    code = 0 if result.outcome in GONE else result.exit_code or 4
    if args.json:
        emit({**answer, **result.chosen("outcome", "reason", "message", "seconds", "reboots", "boots")})
    elif reboot := answer.get("reboot"):
        what = "nothing was changed" if result.outcome in GONE else printable(result.message)
        print(paint(f"{result.outcome}: the {printable(reboot)}; {what}", GOOD))
    elif answer["effect"] == Cancellation.STAGING:
        name = printable(answer["config"])
        print(paint(f"cancelled: the staging of {name} for a plan has ended; nothing was changed", GOOD))
    elif result.outcome == UpdateOutcome.CANCELLED:
        _print(answer, result)
    else:
        print_ending(answer["config"], result)
    return code


async def _cancel(client: Client, *, silent: bool) -> tuple[dict[str, Any], Ending]:
    async def send() -> dict[str, Any]:
        answer = await client.cancel()
        if answer["effect"] == Cancellation.STAGING:
            # No update follows, so no signal would end the wait.
            raise _StagingEnded(answer)
        return answer

    try:
        return await request_and_wait(client, send, silent=silent, cancels=True)
    except _StagingEnded as ended:
        return ended.args[0], Ending(UpdateOutcome.CANCELLED, Reason.CANCELLED)


def _print(answer: dict[str, Any], result: Ending) -> None:
    name, current = printable(answer["config"]), printable(answer["current"])
    took = f" after {duration(result.seconds)}" if result.seconds is not None else ""
    applied = answer["applied"]
    what = "nothing was changed"
    if answer["effect"] == Cancellation.REVERT:
        what = "the previous files are restored, without a reboot"
    elif applied:
        then = "stay" if answer["desired_by"] == "cluster" else "are taken back"
        what = f"its changes that were applied before ({applied}) {then}"
    print(paint(f"cancelled: the update to {name} has ended{took}; {what}", GOOD))
    if answer["desired_by"] == "cluster":
        print(f"the cluster still desires {name}: this node is degraded (Cancelled) until it desires another config")
        print(f"what now: kubectl annotate node NODE nodeagent.org/retry={name} applies it again")
    elif current:
        print(f"{current} is current and desired; nodeagent apply FILE applies {name} again")
    else:
        print(f"{name} is not applied before the next nodeagent apply FILE")
