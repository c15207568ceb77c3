# SPDX-License-Identifier: Apache-2.0
"""`nodeagent plan`: show the actions of an update.

With a file: of this host from its current config, with the checks of `nodeagent apply`; by the daemon, or as root
without it. With ``--from`` and ``--to``: between two configs, without a host and without privileges.
Of the settings of this machine it reads which sections hosts may leave out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nodeagent.cli import _io
from nodeagent.cli._client import NEITHER, ask, stored
from nodeagent.cli._host_plan import HostPlan
from nodeagent.cli._plan_inputs import (
    CONFIG_HELP,
    Options,
    add_max_disruption,
    add_strict,
    add_view,
    config_text,
    ends,
    load_all,
    load_policy,
    planned,
    read_config,
)
from nodeagent.cli._plan_view import FALLBACK, WHOLE, View, show_plan
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import parse
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.deployment import target_between
from nodeagent.core.plan.plan import check_disruption, make_plan
from nodeagent.core.plan.plan_json import plan_to_dict
from nodeagent.core.plan.plan_values import with_values
from nodeagent.core.plan.policy import Policy
from nodeagent.core.plan.reboot_kind import may_fall_back
from nodeagent.core.plan.reconcile import left_out
from nodeagent.core.plan.removal import LOOKS_LIKE_PART, removal_of
from nodeagent.domains import check_update, warnings
from nodeagent.errors import InvalidInput, Problem, Unreachable
from nodeagent.features import plan_parts
from nodeagent.reasons import Reason
from nodeagent.report.plan_diff import diffs


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
    add_view(parser)
    add_max_disruption(parser)
    add_strict(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/plan/v1)")


def run(args: argparse.Namespace, request: Options | None = None) -> int:
    """Show a plan. ``request`` as for ``plan_here``.

    Raise ``InvalidInput`` for invalid configs, ``Unreconcilable`` for a change that a running host cannot make, and
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
    view = View(summary=args.summary, all=args.all)
    if here:
        options = {"diff": args.diff, "stage": args.stage}
        host_plan = plan_here(args.files, as_json=args.json, view=view, request=request, **options)
        if args.strict:
            host_plan.check_units()
        plan = host_plan.plan
    else:
        plan = _between_files(args, view)
    if args.max_disruption:
        # The error goes to stderr, which has a buffer of its own, and belongs after the plan.
        _io.flush()
        check_disruption(plan, args.max_disruption)
    return 0


def plan_here(
    paths: Sequence[str],
    *,
    as_json: bool,
    view: View = WHOLE,
    falls_back: bool = True,
    request: Options | None = None,
    **options: bool,
) -> HostPlan:
    """Show the plan of an update of this host to the config at ``paths``, and return it.

    Without paths it is the desired config, as the daemon knows it. ``request`` has the options with which the config
    would be applied. ``options`` are those of the method Plan.
    """
    text = read_config(paths)[1] if paths else ""
    answer = ask_plan(text, as_json=as_json, **options)
    plan = HostPlan.read(answer, stage=options.get("stage", False))
    show_here(plan, answer, view, request or {}, as_json=as_json, falls_back=falls_back)
    return plan


def show_here(
    plan: HostPlan, answer: Mapping[str, Any], view: View, request: Options, *, as_json: bool, falls_back: bool
) -> None:
    """Show the plan of an answer, and what follows its update as ``request`` has it."""
    answer = {**answer, **planned(request, plan.plan)}
    plan.show(answer, view, as_json=as_json, falls_back=falls_back, ends=ends(request, plan.plan))


def ask_plan(text: str, *, as_json: bool, **options: bool) -> dict[str, Any]:
    """Return the answer of the method Plan, or that of the store without a daemon."""
    stage = options.get("stage", False)
    if stage and not as_json:
        print("staging the OS; nodeagent status --watch shows the progress, Ctrl-C ends it", file=sys.stderr)
    try:
        return ask(lambda client: client.plan(text, **options))
    except Unreachable as error:
        # The units of the host are compared through the bus, so the store alone does not help.
        if error.reason == Reason.BUS_UNREACHABLE and not stage:
            error.hint = f"{error.hint}; {NEITHER}"
        # A daemon that runs and does not answer may be changing the host, so its store shows no state to plan from.
        if stage or error.reason != Reason.SERVICE_UNKNOWN:
            raise

        if not as_json:
            _io.warn("the daemon does not run; planning from its store")
        return stored(error).plan(text, **options)


def _between_files(args: argparse.Namespace, view: View) -> Plan:
    old, new, policy = _load(args.old, args.new, args.policy)
    accepted, acceptable = _sections(old, new)
    # Both configs are files of the caller, so the numbers of changed lines reveal nothing.
    plan = plan_update(old, new, policy, _io.name_of(args.new), accepted, acceptable)
    plan = with_values(plan, old, new, private=True)
    doubts = [*left_out(old, new, accepted), *warnings(old, new)]
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
        notes = [f"warning: {doubt.path} {doubt.message}" for doubt in doubts]
        show_plan(plan, [*notes, *([FALLBACK] if may_fall_back(plan) else [])], texts, view=view)
    return plan


def _load(old_path: str, new_path: str, policy_path: str | None) -> tuple[MachineConfig, MachineConfig, Policy]:
    old, new, policy = load_all(
        lambda: parse(config_text([old_path]), _io.name_of(old_path)),
        lambda: parse(config_text([new_path]), _io.name_of(new_path)),
        lambda: load_policy(policy_path),
    )
    return old, new, policy


def _sections(old: MachineConfig, new: MachineConfig) -> tuple[Collection[str], Mapping[str, str]]:
    if old.unapplied == new.unapplied:
        return (), {}
    # Only now: the settings are those of all features, whose import takes longer than the plan.
    from nodeagent.cli._settings import sections

    return sections()


def plan_update(
    old: MachineConfig,
    new: MachineConfig,
    policy: Policy,
    what: str,
    accepted: Collection[str],
    acceptable: Mapping[str, str],
) -> Plan:
    """Return the plan of an update, after the checks that need no host. ``what`` names the new config; the rest is as
    for ``check_update``."""
    check_update(old, new, what, accepted=accepted, acceptable=acceptable)
    if old.os_image_url != new.os_image_url or old.extensions != new.extensions:
        # A host refuses an image without a digest as well.
        target_between(old, new)
    return make_plan(old, new, policy)
