"""`nodeagent config`: the agent's own settings, and whether what the daemon will read is any good."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from nodeagent.cli._io import emit
from nodeagent.cli._render import BAD, DIM, GOOD, paint, table
from nodeagent.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from nodeagent.settings.schema import Settings

__all__ = ["add_arguments", "run"]


UNIT_PLACES: Final = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator",
    "/run/systemd/generator.late",
)
"""Where systemd finds units: systemd.unit(5)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="config_command", metavar="COMMAND", required=True)
    show = commands.add_parser("show", help="list every setting with its value and source")
    check = commands.add_parser("check", help="check the settings, the policy and the desired config")
    for command in (show, check):
        command.add_argument("--json", action="store_true", help="one JSON object (nodeagent/config/v1)")


def run(args: argparse.Namespace) -> int:
    """0; 2 if something is wrong, with all that is."""
    return _show(as_json=args.json) if args.config_command == "show" else _check(as_json=args.json)


def _show(*, as_json: bool) -> int:
    from nodeagent.settings import schema
    from nodeagent.settings.load import load

    loaded = load()
    values = schema.flatten(loaded.settings)
    if as_json:
        shown = {key: {"value": value, "from": loaded.origins.get(key, "default")} for key, value in values.items()}
        emit({"schema": "nodeagent/config/v1", "settings": shown, "files": list(loaded.files)})
    else:
        rows = [[key, _yaml(value), loaded.origins.get(key) or paint("default", DIM)] for key, value in values.items()]
        table(["SETTING", "VALUE", "FROM"], rows)
    return 0


def _yaml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case list():
            return "[" + ", ".join(f'"{item}"' for item in value) + "]"
        case _:
            return str(value) or '""'


def _check(*, as_json: bool) -> int:
    looks = _looks()
    bad = [look for look in looks if look["problems"]]
    if as_json:
        emit({"schema": "nodeagent/config-check/v1", "ok": not bad, "files": looks})
        return 2 if bad else 0
    for look in looks:
        verdict = paint("bad", BAD) if look["problems"] else look["skipped"] or paint("good", GOOD)
        print(f"{look['what']}: {verdict}")
        for problem in look["problems"]:
            print(f"  {problem['path']}: {problem['message']}")
        for note in look["notes"]:
            print(f"  note: {note['path']} {note['message']}")
    return 2 if bad else 0


def _looks() -> list[dict[str, Any]]:
    """Settings first: they say where the others are."""
    from nodeagent.settings import schema
    from nodeagent.settings.load import load

    try:
        loaded = load()
    except InvalidInput as error:
        return [_look("settings", error.problems)]
    values = loaded.settings
    looks = [_look("settings", _together(values), notes=loaded.warnings)]
    if values.policy:
        optional = values.policy == schema.Settings().policy
        looks.append(_look_at(values.policy, "policy", optional=optional))
    return [*looks, _look_at(values.desired_config, "desired config", optional=True)]


def _together(values: Settings) -> list[Problem]:
    """What keeps the daemon from starting although each setting is good by itself."""
    from nodeagent.settings.check import check_consistency

    try:
        check_consistency(values)
    except InvalidInput as error:
        return [Problem("settings", error.message)]
    return []


def _look_at(path: str, what: str, *, optional: bool) -> dict[str, Any]:
    from pathlib import Path

    title = f"{what} {path}"
    try:
        text = Path(path).read_bytes()
    except FileNotFoundError:
        return _look(title, skipped="there is none") if optional else _look(title, [Problem(path, "does not exist")])
    except PermissionError:
        return _look(title, skipped="only root may read it; run this as root to check it")
    except OSError as error:
        return _look(title, [Problem(path, error.strerror or "cannot be read")])
    try:
        problems, notes = _policy(text) if what == "policy" else _config(text)
    except InvalidInput as error:
        return _look(title, error.problems or [Problem(path, error.message)])
    return _look(title, problems, notes=notes)


def _config(text: bytes) -> tuple[Sequence[Problem], Sequence[Problem]]:
    from nodeagent.core.config.machineconfig import MachineConfig
    from nodeagent.core.config.parse import parse
    from nodeagent.domains import validate

    return validate(MachineConfig(""), parse(text)), ()


def _policy(text: bytes) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """A unit that is nowhere now may come with a config, so that is a note only."""
    from nodeagent.core.plan.policy_parse import parse_policy

    policy = parse_policy(text)
    entries = [*policy.files.values(), *policy.units.values(), *([policy.sshkey] if policy.sshkey else [])]
    named = {action.unit for entry in entries for action in entry.actions if action.unit}
    absent = [unit for unit in sorted(named) if not _is_on_host(unit)]
    return (), [Problem(unit, "is not on this host: an update that needs it is refused") for unit in absent]


def _is_on_host(unit: str) -> bool:
    import os

    return any(os.path.lexists(f"{place}/{unit}") for place in UNIT_PLACES)


def _look(what: str, problems: Any = (), *, notes: Any = (), skipped: str = "") -> dict[str, Any]:
    found, noted = ([{"path": p.path, "message": p.message} for p in each] for each in (problems, notes))
    return {"what": what, "problems": found, "notes": noted, "skipped": skipped}
