# SPDX-License-Identifier: Apache-2.0
"""The configs and policies that a command reads, and the options of the commands that plan an update."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from nodeagent.cli._io import name_of, read
from nodeagent.core.config.parse import parse
from nodeagent.core.plan.plan import DISRUPTION_WORDS
from nodeagent.core.plan.policy import MAX_BYTES, RECOMMENDED, Policy, merge
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.domains import default_policy, with_rules
from nodeagent.errors import InvalidInput, Problem
from nodeagent.host.config_file import read_now


def add_max_disruption(parser: ArgumentParser, more: str = "") -> None:
    """Add the option of the commands that plan an update. ``more`` is the end of its help."""
    *words, last = DISRUPTION_WORDS
    help_text = f"refuse (exit status 4) what disrupts more: {', '.join(words)} or {last}{more}"
    parser.add_argument("--max-disruption", metavar="WORD", choices=DISRUPTION_WORDS, help=help_text)


def add_strict(parser: ArgumentParser) -> None:
    """Add the option of the commands that plan an update of this host."""
    parser.add_argument(
        "--strict", action="store_true", help="reject (exit status 2) entries of units that exist nowhere (a warning)"
    )


def read_config(path: str) -> tuple[str, str]:
    """Return the name and the text of a config.

    An error includes the name of the file, which the daemon does not know.
    """
    text, what = read(path), name_of(path)
    name = parse(text, what).name
    try:
        return name, text.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{what} is not UTF-8") from None


def load_policy(path: str | None) -> Policy:
    """Return the built-in policy with the entries of the file over it."""
    if path is None:
        return default_policy()
    return merge(default_policy(), parse_policy(read(path), name_of(path)))


def load_all(*loads: Callable[[], Any]) -> list[Any]:
    """Return the results. The errors of all inputs are raised as one, so that one run reports all of them."""
    results: list[Any] = []
    errors: list[InvalidInput] = []
    for load in loads:
        try:
            results.append(load())
        except InvalidInput as error:
            errors.append(error)
    if len(errors) > 1:
        problems = [p for error in errors for p in error.problems or (Problem("", error.message),)]
        raise InvalidInput("; ".join(error.message for error in errors), reason=errors[0].reason, problems=problems)
    if errors:
        raise errors[0]
    return results


def recommended_policy() -> Policy:
    """Return the entries of the recommended policy; none on a machine without the package."""
    text = read_now(RECOMMENDED, MAX_BYTES)
    return with_rules(parse_policy(text, RECOMMENDED)) if text is not None else Policy()
