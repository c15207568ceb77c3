# SPDX-License-Identifier: Apache-2.0
"""`nodeagent settings`: show the settings, and check the files that the daemon reads."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from nodeagent.cli._io import emit
from nodeagent.cli._plan_inputs import readable_text
from nodeagent.cli._render import BAD, DIM, GAP, GOOD, on_terminal, paint, table_lines, wrapped
from nodeagent.core.config.ignition_document import as_machine_config
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import parse
from nodeagent.core.config.unit_names import did_you_mean
from nodeagent.core.plan.policy import OWN_NAME, drop_in_directory, is_policy_file
from nodeagent.core.plan.policy_explain import without_actions
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.domains import validate
from nodeagent.errors import AgentError, InvalidInput, Problem
from nodeagent.host.config_file import names_in
from nodeagent.settings import schema
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.load import Loaded, load
from nodeagent.settings.part import parts

DEFAULT: Final = "default"
# Unit search path of systemd.unit(5).
UNIT_PLACES: Final = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator",
    "/run/systemd/generator.late",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="settings_command", metavar="COMMAND", required=True)
    listed = commands.add_parser("show", help="list every setting with its value and source")
    checked = commands.add_parser("check", help="check the settings, the policy and the desired config")
    for command, answer in ((listed, "nodeagent/config/v1"), (checked, "nodeagent/config-check/v1")):
        command.add_argument("--json", action="store_true", help=f"one JSON object ({answer})")


def run(args: argparse.Namespace) -> int:
    """Return 0; 2 if a file has problems, after showing all of them."""
    return show(as_json=args.json) if args.settings_command == "show" else check(as_json=args.json)


def show(*, as_json: bool) -> int:
    loaded = load()
    values = schema.flatten(loaded.settings)
    if as_json:
        shown = {key: {"value": value, "from": loaded.origins.get(key, "default")} for key, value in values.items()}
        emit({"schema": "nodeagent/config/v1", "settings": shown, "files": list(loaded.files)})
    else:
        print("\n".join(_lines({key: _yaml(value) for key, value in values.items()}, loaded)))
    return 0


def _lines(values: Mapping[str, str], loaded: Loaded) -> Iterator[str]:
    """Yield the table of the settings, and the notes of features.

    On a narrow terminal, a long value is below its row, and the paths of the files are below the table.
    """
    origins = {key: loaded.origins.get(key, DEFAULT) for key in values}
    columns = shutil.get_terminal_size().columns
    narrow = on_terminal() and _room(values, origins, columns) < max(map(len, values.values()))
    if narrow:
        # The names of the files differ, because a file replaces one of the same name.
        origins = {key: Path(origin).name for key, origin in origins.items()}
    room = _room(values, origins, columns) if narrow else sys.maxsize
    rows = [
        [key, value if len(value) <= room else "", paint(origins[key], DIM if origins[key] == DEFAULT else "")]
        for key, value in values.items()
    ]
    below = [[value] if len(value) > room else [] for value in values.values()]
    yield from table_lines(("SETTING", "VALUE", "FROM"), rows, below=below)
    for path in loaded.files if narrow else ():
        yield from wrapped(f"{Path(path).name}: {path}", 0)
    for note in (note for kind in parts() for note in loaded.settings.of(kind).notes()):
        yield from wrapped(note, 0)


def _room(values: Mapping[str, str], origins: Mapping[str, str], columns: int) -> int:
    """Return the columns that are left for the values."""
    return columns - max(map(len, values)) - max(map(len, origins.values())) - 2 * GAP


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


def check(*, as_json: bool) -> int:
    files = _checked_files()
    bad = [file for file in files if file["problems"]]
    if as_json:
        emit({"schema": "nodeagent/config-check/v1", "ok": not bad, "files": files})
        return 2 if bad else 0
    for file in files:
        verdict = paint("bad", BAD) if file["problems"] else file["skipped"] or paint("good", GOOD)
        print(f"{file['what']}: {verdict}")
        for problem in file["problems"]:
            print(f"  {problem['path']}: {problem['message']}" if problem["path"] else f"  {problem['message']}")
        for note in file["notes"]:
            print(f"  note: {note['path']} {note['message']}")
    return 2 if bad else 0


def _checked_files() -> list[dict[str, Any]]:
    """Check the settings first: they have the paths of the other files."""
    try:
        loaded = load()
    except InvalidInput as error:
        # Without valid settings, the paths of the other files are unknown.
        return [_result("settings", error.problems)]
    values = loaded.settings
    contradictions: list[Problem] = []
    try:
        check_consistency(values, loaded.origins)
    except InvalidInput as error:
        # It prevents a start of the daemon although each setting is valid.
        contradictions += error.problems or [Problem("settings", error.message)]
    files = [_result("settings", contradictions)]
    if values.policy:
        # A file that an admin named must exist. The one of the default need not.
        optional = values.policy == schema.Settings().policy
        files.append(_check_file(values.policy, "policy", optional=optional))
        files += _check_drop_ins(values.policy)
    return [*files, _check_file(values.desired_config, "desired config", optional=True)]


def _check_file(path: str, what: str, *, optional: bool) -> dict[str, Any]:
    title = f"{what} {path}"
    try:
        text = readable_text(path) if what == "desired config" and Path(path).is_dir() else Path(path).read_bytes()
    except InvalidInput as error:
        return _result(title, error.problems or [Problem(path, error.message)])
    except FileNotFoundError:
        return _result(title, skipped="not found") if optional else _result(title, [Problem(path, "does not exist")])
    # The command is for ordinary users too, and a desired config has secrets.
    except PermissionError:
        return _result(title, skipped="only root may read it; run this as root to check it")
    except OSError as error:
        return _result(title, [Problem(path, error.strerror or "cannot be read")])
    try:
        problems, notes = _policy(text) if what == "policy" else _config(text)
    except InvalidInput as error:
        return _result(title, error.problems or [Problem(path, error.message)])
    return _result(title, problems, notes=notes)


def _check_drop_ins(policy: str) -> list[dict[str, Any]]:
    directory = drop_in_directory(policy)
    try:
        paths = [f"{directory}/{name}" for name in sorted(names_in(directory))]
    except AgentError as error:
        return [_result(f"policy {directory}", [Problem(directory, error.message)])]
    return [_check_file(path, "policy", optional=True) for path in paths if is_policy_file(policy, path)]


def _config(text: bytes) -> tuple[Sequence[Problem], Sequence[Problem]]:
    return validate(MachineConfig(""), parse(as_machine_config(text))), ()


def _policy(text: bytes) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """Check a policy. A unit that is not on the host is a note only: the next config may contain it."""
    policy = parse_policy(text)
    entries = [
        *policy.files.values(),
        *policy.patterns.values(),
        *policy.units.values(),
        *([policy.sshkey] if policy.sshkey else []),
    ]
    named = {action.unit for entry in entries for action in entry.actions if action.unit not in ("", OWN_NAME)}
    units = _units_of_host()
    problem = "is not on this host: an update that needs it is refused"
    return (), [
        *without_actions(policy),
        *(Problem(unit, problem + did_you_mean(unit, units)) for unit in sorted(named - units)),
    ]


def _units_of_host() -> set[str]:
    units: set[str] = set()
    # The directories are read, because a build of an image checks its settings without systemd.
    for place in UNIT_PLACES:
        with suppress(OSError):
            units.update(path.name for path in Path(place).iterdir())
    return units


def _result(what: str, problems: Any = (), *, notes: Any = (), skipped: str = "") -> dict[str, Any]:
    return {"what": what, "problems": _to_dicts(problems), "notes": _to_dicts(notes), "skipped": skipped}


def _to_dicts(problems: Sequence[Problem]) -> list[dict[str, str]]:
    return [{"path": problem.path, "message": problem.message} for problem in problems]
