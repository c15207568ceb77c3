# SPDX-License-Identifier: Apache-2.0
"""`nodeagent plan`: show the actions of an update.

With a file: of this host from its current config, with the checks of `nodeagent apply`; by the daemon, or as root
without it. With ``--from`` and ``--to``: between two configs, without a host and without privileges.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from nodeagent.cli import _io
from nodeagent.cli._client import NEITHER, ask, stored
from nodeagent.cli._features import lines_after
from nodeagent.cli._io import printable
from nodeagent.cli._plan_inputs import (
    CONFIG_HELP,
    add_max_disruption,
    add_strict,
    config_text,
    load_all,
    load_policy,
    read_config,
)
from nodeagent.cli._plan_view import show_plan
from nodeagent.cli._render import WARN, change_name, paint
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import parse
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.deployment import target_between
from nodeagent.core.plan.plan import check_disruption, make_plan
from nodeagent.core.plan.plan_json import plan_from_dict, plan_to_dict
from nodeagent.core.plan.plan_values import with_values
from nodeagent.core.plan.policy import Policy
from nodeagent.core.plan.removal import BY_CLUSTER, LOOKS_LIKE_PART, Removal, check_removal, removal_of
from nodeagent.domains import check_update, warnings
from nodeagent.errors import InvalidInput, Problem, Refused, Terminal, Unreachable
from nodeagent.features import plan_parts
from nodeagent.reasons import Reason
from nodeagent.report.plan_diff import diffs

THEN: Final = {
    "kept": "it stays as it is",
    "overwritten": "this update overwrites it",
    "wanted": "it is as the new config wants it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="*", help=CONFIG_HELP)
    parser.add_argument("--from", dest="old", metavar="A", help="plan offline: the current MachineConfig (- for stdin)")
    parser.add_argument("--to", dest="new", metavar="B", help="plan offline: the new MachineConfig (- for stdin)")
    parser.add_argument(
        "--policy", metavar="P", help="plan offline: a node disruption policy; replaces built-in entries"
    )
    parser.add_argument(
        "--diff", action="store_true", help="show the changed lines of files and units, without secrets"
    )
    parser.add_argument(
        "--stage",
        action="store_true",
        help="stage the OS of FILE (default: the desired config), locked, and show what is inside; nothing is applied",
    )
    add_max_disruption(parser)
    add_strict(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/plan/v1)")


def run(args: argparse.Namespace) -> int:
    """Raise ``InvalidInput`` for invalid configs, ``Unreconcilable`` for a change that a running host cannot make, and
    ``Refused`` for more disruption than ``--max-disruption`` allows, after the plan was shown.
    """
    offline = [args.old, args.new, args.policy]
    # --stage without a file means the desired config, which only the daemon of this host knows.
    here = bool(args.files) or (args.stage and offline == [None, None, None])
    if not here and (args.old is None or args.new is None):
        hint = "nodeagent plan FILE plans for this host, nodeagent plan --from A --to B for no host"
        raise InvalidInput("FILE is missing, or --from and --to", reason=Reason.USAGE, hint=hint)
    if args.files and any(path is not None for path in offline):
        raise InvalidInput("FILE cannot be given with --from, --to and --policy", reason=Reason.USAGE)
    if not here and args.stage:
        raise InvalidInput("--stage needs a host: nodeagent plan --stage FILE", reason=Reason.USAGE)
    if not here and args.strict:
        raise InvalidInput("--strict needs a host: nodeagent plan --strict FILE", reason=Reason.USAGE)
    if offline.count(_io.STDIN) > 1:
        raise InvalidInput("only one input can be standard input", reason=Reason.USAGE)
    options = {"as_json": args.json, "diff": args.diff, "stage": args.stage, "strict": args.strict}
    plan = plan_here(args.files, **options) if here else _between_files(args)
    if args.max_disruption:
        # The error goes to stderr, which has a buffer of its own, and belongs after the plan.
        _io.flush()
        check_disruption(plan, args.max_disruption)
    return 0


def plan_here(
    paths: Sequence[str],
    *,
    as_json: bool,
    diff: bool = False,
    stage: bool = False,
    strict: bool = False,
    allow_lockout: bool = False,
    removes: int | None = None,
) -> Plan:
    """Show the plan of an update of this host to the config at ``paths``, and return it. ``stage`` stages its OS.

    Without paths it is the desired config, as the daemon knows it. With ``strict``, raise ``InvalidInput``
    (``UnitMissing``) afterwards for entries of units that exist nowhere. ``removes`` is the number of removed entries
    that an operator confirms if the config is to be applied; raise ``Refused`` (``RemovesMost``, ``ClusterDecides``)
    for what the daemon would refuse then.
    """
    text = read_config(paths)[1] if paths else ""
    answer = ask_plan(text, diff=diff, stage=stage, as_json=as_json, allow_lockout=allow_lockout)
    try:
        # The daemon may be of another version. All of its answer is read before the first line is shown.
        plan = plan_from_dict(answer)
        changes = zip(plan.changes, answer["changes"], strict=True)
        diffs = {planned.change.id: str(data["diff"]) for planned, data in changes if "diff" in data}
        notes = [str(note) for note in answer.get("notes", [])]
        drift = [(entry["entry"], entry["why"], entry["then"]) for entry in answer.get("drift", [])]
        os = _os_lines(answer, stage=stage)
        fallback, reboot = _kind(answer.get("fallback") or {}), _kind(answer.get("reboot") or {}, planned=True)
        boots = list(lines_after("the reboot", answer))
        problems = [f"{problem['reason']}: {problem['message']}" for problem in answer.get("problems", [])]
        missing = [Problem(warning["entry"], warning["message"]) for warning in answer.get("unit_warnings", [])]
        counts = answer["removal"]
        # A daemon of an earlier version does not know whether it is a part.
        part = bool(counts.get("part"))
        removal = Removal(int(counts["removed"]), int(counts["total"]), removes or 0, part)
    except (TypeError, ValueError, KeyError) as error:
        raise Terminal(f"unexpected reply from the daemon: {error}", reason=Reason.UNEXPECTED_REPLY) from error
    # They come with a plan without the daemon, when no status shows them.
    for problem in problems:
        _io.warn(problem)
    if as_json:
        _io.emit(answer)
    else:
        _show(plan, notes, diffs, drift, os, fallback=fallback, reboot=reboot, boots=boots)
    if strict and missing:
        _io.flush()
        reason = Reason.UNIT_MISSING
        raise InvalidInput(f"{plan.to_name} was refused", reason=reason, hint=reason.hint, problems=missing)
    if removes is not None:
        _io.flush()
        if answer.get("by_cluster"):
            raise Refused(BY_CLUSTER, reason=Reason.CLUSTER_DECIDES)
        check_removal(plan.to_name, removal)
    return plan


def _show(
    plan: Plan,
    notes: Sequence[str],
    diffs: Mapping[str, str],
    drift: Sequence[tuple[str, str, str]],
    os: Sequence[str],
    *,
    fallback: str,
    reboot: str,
    boots: Sequence[str],
) -> None:
    show_plan(plan, notes, diffs, "nothing to do: this host has it all")
    kinds = [f"the reboot: {reboot}"] if reboot else []
    kinds += [*boots, *([f"if an action fails: {fallback}"] if fallback else [])]
    for line in (*kinds, *os):
        print(printable(line))
    if drift:
        differ = "entry differs" if len(drift) == 1 else "entries differ"
        print(f"\n{paint(f'{len(drift)} managed {differ} from {plan.from_name}:', WARN)}")
    for entry, difference, then in drift:
        print(printable(f"  {change_name(entry)} {difference}; {THEN.get(then, then)}"))


def _kind(reboot: Mapping[str, Any], *, planned: bool = False) -> str:
    """Return a phrase for the kind of a reboot, "" if the setting decides. ``planned``: it is not a fallback."""
    saves = reboot.get("saves_seconds")
    saved = f", which saves about {float(saves):.0f} s of firmware and kernel" if saves is not None else ""
    took = f", of which firmware and kernel take about {float(saves):.0f} s" if saves is not None else ""
    match reboot.get("kind"):
        case "soft" if planned:
            return f"a soft one{saved}; if the host is not well after it, a full one"
        case "soft":
            return "a soft reboot, then a full one"
        case "full" if reboot.get("reason"):
            return f"a full reboot, not a soft one: {reboot['reason']}: {reboot['why']}{took}"
        case "full" if took:
            return f"a full one{took}"
        case "undecided":
            return f"a soft one if the new OS allows it{saved}; {reboot['why']}"
        case _:
            return ""


def _os_lines(answer: Mapping[str, Any], *, stage: bool) -> list[str]:
    """Return the changes of the staged OS as lines; with ``stage``, each package and each file that the merge replaces.

    Raises ``KeyError``, ``TypeError`` or ``ValueError`` for an unexpected reply.
    """
    os = answer.get("os")
    lines = [f"staged OS: {os['summary']}"] if os else []
    if os:
        lines += lines_after("staged OS", answer)
    if not stage:
        return lines
    if not answer["staged"]:
        return ["staged OS: none, because the update leaves the OS as it is"]
    if os is None:
        return ["staged OS: it could not be compared with the booted one"]
    for package in os["packages"] or ():
        versions = " -> ".join(version for version in (package["before"], package["after"]) if version)
        lines.append(f"  {package['kind']} {package['name']} {versions}")
    if (more := sum((os["counts"] or {}).values()) - len(os["packages"] or ())) > 0:
        lines.append(f"  and {more} more packages")
    lines += [f"  the merge of /etc replaces {path}" for path in os["merged"] or ()]
    if (more := (os["merged_count"] or 0) - len(os["merged"] or ())) > 0:
        lines.append(f"  and {more} more files of /etc")
    lines.append("the deployment is locked: a reboot does not boot it, and nodeagent apply of the same config uses it")
    return lines


def ask_plan(text: str, *, diff: bool, stage: bool, as_json: bool, allow_lockout: bool = False) -> dict[str, Any]:
    if stage and not as_json:
        print("staging the OS; nodeagent status --watch shows the progress, Ctrl-C ends it", file=sys.stderr)
    try:
        return ask(lambda client: client.plan(text, diff=diff, stage=stage, allow_lockout=allow_lockout))
    except Unreachable as error:
        # The units of the host are compared through the bus, so the store alone does not help.
        if error.reason == Reason.BUS_UNREACHABLE and not stage:
            error.hint = f"{error.hint}; {NEITHER}"
        # A daemon that runs and does not answer may be changing the host, so its store shows no state to plan from.
        if stage or error.reason != Reason.SERVICE_UNKNOWN:
            raise

        if not as_json:
            _io.warn("the daemon does not run; planning from its store")
        return stored(error).plan(text, diff=diff)


def _between_files(args: argparse.Namespace) -> Plan:
    old, new, policy = _load(args.old, args.new, args.policy)
    # Both configs are files of the caller, so the numbers of changed lines reveal nothing.
    plan = with_values(plan_update(old, new, policy, _io.name_of(args.new)), old, new, private=True)
    doubts = list(warnings(old, new))
    if (removal := removal_of(old, new)).part and removal.needs_confirmation:
        words = f"removes {removal.removed} of {removal.total} entries, and {LOOKS_LIKE_PART}"
        doubts.append(Problem(new.name, f"{words}: name all MachineConfigs of the host, or their directory"))
    texts = diffs(plan, old, new) if args.diff else {}
    if args.json:
        answer = plan_to_dict(plan)
        for planned, data in zip(plan.changes, answer["changes"], strict=True):
            if planned.change.id in texts:
                data["diff"] = texts[planned.change.id]
        noted = [{"path": doubt.path, "message": doubt.message} for doubt in doubts]
        _io.emit({**answer, **plan_parts(plan), **({"warnings": noted} if noted else {})})
    else:
        show_plan(plan, [f"warning: {doubt.path} {doubt.message}" for doubt in doubts], texts)
    return plan


def _load(old_path: str, new_path: str, policy_path: str | None) -> tuple[MachineConfig, MachineConfig, Policy]:
    old, new, policy = load_all(
        lambda: parse(config_text([old_path]), _io.name_of(old_path)),
        lambda: parse(config_text([new_path]), _io.name_of(new_path)),
        lambda: load_policy(policy_path),
    )
    return old, new, policy


def plan_update(old: MachineConfig, new: MachineConfig, policy: Policy, what: str) -> Plan:
    """Return the plan of an update, after the checks that need no host. ``what`` names the new config."""
    check_update(old, new, what)
    if old.os_image_url != new.os_image_url or old.extensions != new.extensions:
        # A host refuses an image without a digest as well.
        target_between(old, new)
    return make_plan(old, new, policy)
