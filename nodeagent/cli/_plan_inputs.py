# SPDX-License-Identifier: Apache-2.0
"""The configs and policies that a command reads, and the options of the commands that plan an update."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from nodeagent import features
from nodeagent.cli._io import STDIN, name_of, read
from nodeagent.core.config.ignition_document import as_machine_config
from nodeagent.core.config.parse import parse
from nodeagent.core.fragments.render import OWN, Fragment, is_fragment, read_fragment, render
from nodeagent.core.plan.change import Plan
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

# Options of the D-Bus methods Apply and Rollback.
Options = dict[str, str | int | bool]

OF_FEATURES: Final = features.options()
DELAYS: Final = (*(name for option in OF_FEATURES for name in option.names), "no_reboot")


def add_max_disruption(parser: ArgumentParser, more: str = "") -> None:
    """Add the option of the commands that plan an update. ``more`` is the end of its help."""
    *words, last = DISRUPTION_WORDS
    help_text = f"refuse (exit status 4) what disrupts more: {', '.join(words)} or {last}{more}"
    parser.add_argument("--max-disruption", metavar="WORD", choices=DISRUPTION_WORDS, help=help_text)


def add_view(parser: ArgumentParser) -> None:
    """Add the options about how much of a plan is shown."""
    much = parser.add_mutually_exclusive_group()
    much.add_argument("--summary", action="store_true", help="show the actions and the totals, and no single change")
    much.add_argument("--all", action="store_true", help="show each change, also if many of one directory are equal")


def add_strict(parser: ArgumentParser) -> None:
    """Add the option of the commands that plan an update of this host."""
    parser.add_argument(
        "--strict", action="store_true", help="reject (exit status 2) entries of units that exist nowhere (a warning)"
    )


def add_request_options(parser: ArgumentParser) -> None:
    add_max_disruption(parser, "; a failed action does not reboot the host either")
    parser.add_argument("--yes", "-y", action="store_true", help="do not prompt on a terminal")
    for option in OF_FEATURES:
        parser.add_argument(option.flag, dest=option.flag, metavar=option.metavar, help=option.help)
    parser.add_argument("--no-reboot", action="store_true", help="hold the reboot back until nodeagent reboot")
    parser.add_argument(
        "--boot-staged", action="store_true", help="let the reboot boot the OS that another program has staged"
    )
    parser.add_argument("--allow-lockout", action="store_true", help="apply a config with which core cannot log in")
    parser.add_argument("--wait", action="store_true", help="show the progress, and return when the update has ended")


def options_of(args: Namespace) -> Options:
    """Return the options of the method; "" where they are not given."""
    options: Options = {}
    for option in OF_FEATURES:
        text = getattr(args, option.flag)
        options |= dict.fromkeys(option.names, "") | (import_module(option.module).read(text) if text else {})
    words: Options = {"max_disruption": args.max_disruption or "", "no_reboot": args.no_reboot}
    return options | words | {"boot_staged": args.boot_staged, "allow_lockout": args.allow_lockout}


def falls_back(options: Options) -> bool:
    """Return whether a failed action may reboot the host."""
    return not options["no_reboot"] and options["max_disruption"] in ("", "reboot")


def begins(options: Options) -> str:
    """Return when the update begins, as " at 02:00"; "" for now."""
    return "".join(module.begins(options) for module in _given(options))


def ends(options: Options, plan: Plan) -> list[str]:
    """Return lines about what follows the update of ``plan``."""
    return [line for module in _given(options) if (line := module.ends(options, plan))]


def planned(options: Options, plan: Plan) -> dict[str, Any]:
    """Return what the options add to the JSON of ``plan``."""
    made: dict[str, Any] = {}
    for module in _given(options, planned=True):
        made |= module.planned(options, plan)
    return made


def _given(options: Options, *, planned: bool = False) -> Iterator[Any]:
    for option in OF_FEATURES:
        if any(options.get(name) for name in option.names) and (option.planned or not planned):
            yield import_module(option.module)


def then(options: Options) -> str:
    """Return what follows an accepted request."""
    when = begins(options)
    text = f"its update begins{when}" if when else "nodeagent status --watch follows the update"
    return f"{text}; a reboot waits for nodeagent reboot" if options["no_reboot"] else text


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
