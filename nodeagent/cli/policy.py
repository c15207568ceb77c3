# SPDX-License-Identifier: Apache-2.0
"""`nodeagent policy`: print the recommended entries that avoid the reboot or the drain of an update; check policies."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from nodeagent.cli import _io
from nodeagent.cli._client import Client, ask
from nodeagent.cli._io import printable
from nodeagent.cli._plan_inputs import read_config, recommended_policy
from nodeagent.cli._render import change_name
from nodeagent.cli.plan import ask_plan
from nodeagent.core.plan.change import Change, ChangeKind, PolicySource
from nodeagent.core.plan.policy_explain import Suggestion, entry_to_dict, extensions, suggest, without_actions
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.errors import AgentError, InvalidInput, Problem, Terminal
from nodeagent.host.policy_files import read_policy_files
from nodeagent.reasons import Reason
from nodeagent.report.plan_groups import grouped
from nodeagent.settings.load import load

if TYPE_CHECKING:
    from nodeagent.cli._offline import Stored

SCHEMA: Final = "nodeagent/policy-suggest/v1"
CHECK_SCHEMA: Final = "nodeagent/policy-check/v1"
# The exit status for an invalid policy.
INVALID: Final = 2
# All updates of the history.
ALL: Final = 1000
DISRUPTIONS: Final = ("drain", "reboot")
# An update with such an end has disrupted nothing.
NOT_BEGUN: Final = ("superseded", "withdrawn", "cancelled")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="policy_command", metavar="COMMAND", required=True)
    suggested = commands.add_parser("suggest", help="print the recommended entries that avoid a reboot or a drain")
    suggested.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="a MachineConfig for this host (- for stdin) (default: the last update that drained or rebooted)",
    )
    suggested.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")
    checked = commands.add_parser("check", help="check a policy, and name what a cluster would not accept")
    checked.add_argument("file", metavar="FILE", nargs="*", help="policies (- for stdin) (default: those of this host)")
    checked.add_argument("--json", action="store_true", help=f"one JSON object ({CHECK_SCHEMA})")


def run(args: argparse.Namespace) -> int:
    return _check(args) if args.policy_command == "check" else _suggest(args)


def _suggest(args: argparse.Namespace) -> int:
    what, plan, more = _last_update() if args.file is None else _plan_of(args.file, as_json=args.json)
    recommended = recommended_policy()
    suggestions = [suggest(change, source, recommended) for change, source in disruptive_changes(plan)]
    # Entries of the same path are one entry.
    entries = {entry.key: entry_to_dict(entry) for suggestion in suggestions if (entry := suggestion.entry) is not None}
    others = [suggestion for suggestion in suggestions if suggestion.entry is None]
    avoidable = bool(suggestions) and not others and not more
    if args.json:
        _io.emit(
            {
                "schema": SCHEMA,
                "update": what,
                "avoidable": avoidable,
                "entries": list(entries.values()),
                "others": [{"change": other.change.id, "why": other.why} for other in others],
                "more": more,
            }
        )
    else:
        _show(what, suggestions, list(entries.values()), more)
    return 0


def _plan_of(path: str, *, as_json: bool) -> tuple[str, Mapping[str, Any], int]:
    answer = ask_plan(read_config([path])[1], as_json=as_json)
    return str(answer.get("to", "")), answer, 0


def _last_update() -> tuple[str, Mapping[str, Any], int]:
    """Return the name and the plan of the last update that drained or rebooted, and how many changes it leaves out."""

    async def newest(client: Client) -> Mapping[str, Any]:
        update_id = _disruptive(await client.history(ALL))
        return await client.update(update_id) if update_id else {}

    def newest_stored(stored: Stored) -> Mapping[str, Any]:
        update_id = _disruptive(stored.history(ALL))
        return stored.update(update_id) if update_id else {}

    update = ask(newest, newest_stored)
    # The plan of an update that is long ago is not kept.
    plan = update.get("plan") or {}
    return str(update.get("to_name", "")), plan, int(plan.get("more", 0))


def _disruptive(updates: Sequence[Mapping[str, Any]]) -> str:
    """Return the id of the newest update that drained or rebooted; "" if no update did."""
    for update in updates:
        if update.get("disruption") in DISRUPTIONS and update.get("outcome") not in NOT_BEGUN:
            return str(update["update_id"])
    return ""


def disruptive_changes(plan: Mapping[str, Any]) -> list[tuple[Change, PolicySource]]:
    """Return the changes of a plan that request a drain or a reboot, with the sources of their actions.

    ``plan`` has the form of the bus or of the history.
    """
    try:
        return [
            (_change(planned), PolicySource(planned["policy"]))
            for planned in plan.get("changes", ())
            # The history has actions as texts, the answer of the daemon as objects.
            if any(
                (action if isinstance(action, str) else action["type"]) in ("Drain", "Reboot")
                for action in planned["actions"]
            )
        ]
    except (TypeError, ValueError, KeyError) as error:
        raise Terminal(f"unexpected reply from the daemon: {error}", reason=Reason.UNEXPECTED_REPLY) from error


def _change(planned: Mapping[str, Any]) -> Change:
    return Change(str(planned["domain"]), str(planned["key"]), ChangeKind(planned["change"]))


def _show(what: str, suggestions: Sequence[Suggestion], entries: Sequence[Mapping[str, Any]], more: int) -> None:
    if not suggestions:
        print(printable(f"{what} needs no drain and no reboot" if what else "no update has drained or rebooted"))
        return
    if entries:
        print("# The setting recommended_policy: true has these entries and others.")
        print("# Or put this into /etc/nodeagent/policy.d/50-suggested.yaml:")
        print("files:")
        for entry in entries:
            print(printable(f"- path: {json.dumps(entry['path'])}"))
            print(printable(f"  actions: {json.dumps(entry['actions'])}"))
    others = [suggestion for suggestion in suggestions if suggestion.entry is None]
    if others or more:
        print(printable(f"# {what} still needs it for:" if entries else f"# No entry avoids the disruption by {what}:"))
    # A config of 300 files has as many changes with the same reason.
    for row in grouped(others, lambda suggestion: suggestion.change, lambda suggestion: suggestion.why):
        print(printable(f"#   {change_name(row.what)}: {row.first.why}"))
    if more:
        print(f"#   {more} more changes, which the history leaves out")


def _check(args: argparse.Namespace) -> int:
    files = [_checked(name, text) for name, text in _texts(args.file).items()]
    if args.json:
        _io.emit({"schema": CHECK_SCHEMA, "files": files})
    else:
        _show_checked(files)
    return INVALID if any(file["problems"] for file in files) else 0


def _texts(names: list[str]) -> Mapping[str, bytes | AgentError]:
    if names:
        return {_io.name_of(name): _io.read(name) for name in names}
    texts = read_policy_files(load().settings)
    # A file of this host that does not exist has nothing to check.
    return {path: text for path, text in texts.items() if isinstance(text, bytes) or text.reason != Reason.NO_POLICY}


def _checked(name: str, text: bytes | AgentError) -> dict[str, Any]:
    problems: list[Problem] = []
    found: list[Problem] = []
    notes: list[Problem] = []
    entries = 0
    try:
        if not isinstance(text, bytes):
            raise text
        policy = parse_policy(text, name)
        entries = sum(map(len, (policy.files, policy.patterns, policy.units))) + (policy.sshkey is not None)
        found = list(extensions(policy))
        notes = list(without_actions(policy))
    # The other policies are checked as well.
    except InvalidInput as error:
        problems = list(error.problems) or [Problem(name, error.message)]
    return {
        "file": name,
        "entries": entries,
        "problems": _to_dicts(problems),
        "notes": _to_dicts(notes),
        "extensions": _to_dicts(found),
    }


def _to_dicts(problems: list[Problem]) -> list[dict[str, str]]:
    return [{"path": problem.path, "message": problem.message} for problem in problems]


def _show_checked(files: list[dict[str, Any]]) -> None:
    if not files:
        print("this host has no policy: the built-in entries apply")
    for file in files:
        count = "1 entry" if file["entries"] == 1 else f"{file['entries']} entries"
        verdict = "invalid" if file["problems"] else f"valid, {count}"
        print(printable(f"{file['file']}: {verdict}"))
        for problem in file["problems"]:
            # The whole document has no path.
            where = f"{problem['path']}: " if problem["path"] else ""
            print(printable(f"  {where}{problem['message']}"))
        for note in file["notes"]:
            print(printable(f"  note: {note['path']} {note['message']}"))
        for extension in file["extensions"]:
            print(printable(f"  extension: {extension['path']}: {extension['message']}"))
