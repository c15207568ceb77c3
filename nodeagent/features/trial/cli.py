# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply --try`, which applies a config on trial, and `nodeagent keep`; the row of the status, too."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from nodeagent.cli._client import ask, typed_options
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import ahead, clock
from nodeagent.core.plan.change import Plan
from nodeagent.errors import InvalidInput
from nodeagent.features.trial.decide import in_words, seconds_of
from nodeagent.features.trial.reasons import TrialReason


def add_arguments(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--revert", action="store_true", help="take the config back now")
    how.add_argument(
        "--without-login",
        action="store_true",
        help="keep it without a new login session: it is not proved that the host can be reached",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/keep/v1)")


def run(args: argparse.Namespace) -> int:
    """Return 0. Raise ``Refused`` if no config is on trial, or the session of the caller proves nothing."""
    options = typed_options({"revert": args.revert, "without_login": args.without_login})
    answer = ask(lambda client: client.change("Keep", "a{sv}", options))
    name, back = printable(answer["config"]), printable(answer["back"]) or "the state before the first config"
    # Who kept it first decided it, so the answer may differ from the request.
    if args.json:
        emit(answer)
    elif answer["effect"] == "kept":
        print(f"{name} is kept")
    else:
        print(f"{name} is taken back; the host goes back to {back}; nodeagent status --watch follows it")
    return 0


def read(text: str) -> Mapping[str, str]:
    """Raises ``InvalidInput`` (``BadTrial``)."""
    try:
        return {"trial": str(seconds_of(text))}
    except ValueError as error:
        reason = TrialReason.BAD_TRIAL
        raise InvalidInput(f"--try: {error}", reason=reason, hint=reason.hint) from None


def begins(options: Mapping[str, Any]) -> str:
    return f" on trial for {in_words(int(options['trial']))}"


def ends(options: Mapping[str, Any], plan: Plan) -> str:
    back = f"to {plan.from_name}" if plan.from_name else "to its previous state"
    how = ", with a reboot" if plan.reboot else ""
    time = in_words(int(options["trial"]))
    return f"trial: {time} after the update this host goes back {back}{how}, unless nodeagent keep runs in a new login"


def planned(options: Mapping[str, Any], plan: Plan) -> Mapping[str, Any]:
    return {"trial": {"seconds": float(options["trial"]), "back": plan.from_name, "reboot": plan.reboot}}


def rows(trial: Mapping[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the row of ``nodeagent status``."""
    back = trial["back"] or "the state before the first config"
    until = f"until {clock(trial['until'], now)}{ahead(trial['until'], now)}"
    then = f"kept by {trial['kept_by']}" if trial["kept_by"] else f"then back to {back}, unless it is kept"
    yield "trial", printable(f"{trial['config']}, {until}; {then}")
