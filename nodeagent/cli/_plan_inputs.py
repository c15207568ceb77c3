# SPDX-License-Identifier: Apache-2.0
"""The configs and policies that a command reads, and the options of the commands that plan an update."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from nodeagent.cli._io import STDIN, name_of, read
from nodeagent.core.config.ignition_document import as_machine_config
from nodeagent.core.config.parse import parse
from nodeagent.core.fragments.render import OWN, Fragment, is_fragment, read_fragment, render
from nodeagent.core.plan.plan import DISRUPTION_WORDS
from nodeagent.core.plan.policy import MAX_BYTES, RECOMMENDED, Policy, merge
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.domains import default_policy, with_rules
from nodeagent.errors import InvalidInput, Problem
from nodeagent.host.config_file import read_now
from nodeagent.reasons import Reason

CONFIG_HELP: Final = (
    "the MachineConfig, YAML or JSON, or an Ignition config; - is standard input; several, or a directory, are merged "
    "as those of a pool"
)


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


def read_config(paths: Sequence[str]) -> tuple[str, str]:
    """Return the name and the text of a config. Several files, or those of a directory, are merged to one.

    An error includes the name of the file, which the daemon does not know.
    """
    text, what = config_text(paths), ", ".join(map(name_of, paths))
    name = parse(text, what).name
    try:
        return name, text.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{what} is not UTF-8") from None


def config_text(paths: Sequence[str]) -> bytes:
    """Return the text of the MachineConfig in one file, or that several of them give."""
    if len(paths) == 1 and not Path(paths[0]).is_dir():
        return as_machine_config(read(paths[0]))
    return merged_text(paths)


def merged_text(paths: Sequence[str]) -> bytes:
    """Return the config of all files, and of those in the directories, as the daemon reads ``desired_config``."""
    if STDIN in paths:
        raise InvalidInput("standard input cannot be merged with files", reason=Reason.USAGE)
    files = [(file, own) for path in paths for file, own in files_of(path)]
    return render(load_all(*(partial(_fragment, file, own=own) for file, own in files)))


def readable_text(path: str) -> bytes:
    """Return the config of a directory. Raises ``PermissionError`` if this user cannot read all of it."""
    directories = [place for place in (Path(path), Path(path, OWN)) if place.is_dir()]
    if not all(os.access(place, os.R_OK | os.X_OK) for place in directories):
        raise PermissionError
    if not all(os.access(file, os.R_OK) for file, _ in files_of(path)):
        raise PermissionError
    return merged_text([path])


def _fragment(path: str, *, own: bool) -> Fragment:
    return read_fragment(read(path), path, own=own)


def files_of(path: str) -> Iterator[tuple[str, bool]]:
    """Yield the paths of the MachineConfigs, and whether each is one of this host alone."""
    if not Path(path).is_dir():
        yield path, False
        return
    for directory, own in ((Path(path), False), (Path(path, OWN), True)):
        try:
            names = sorted(entry.name for entry in directory.iterdir())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InvalidInput(f"cannot read {directory}: {error.strerror}", reason=Reason.CANNOT_READ) from None
        yield from ((str(directory / name), own) for name in names if is_fragment(name))


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
