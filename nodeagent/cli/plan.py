"""`nodeagent plan`: what an update from one config to another would do. Offline: needs no daemon and no privileges."""

from __future__ import annotations

import argparse

from nodeagent.cli import _inputs, _terminal
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.policy import Policy
from nodeagent.errors import InvalidInput, Problem, Unreconcilable

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from", dest="old", metavar="A", required=True, help="the current MachineConfig (- for stdin)"
    )
    parser.add_argument("--to", dest="new", metavar="B", required=True, help="the new MachineConfig (- for stdin)")
    parser.add_argument("--policy", metavar="P", help="a node disruption policy; replaces built-in entries")
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/plan/v1)")


def run(args: argparse.Namespace) -> int:
    """Raises ``InvalidInput`` for what cannot be read or would not work, ``Unreconcilable`` for what cannot be done."""
    if [args.old, args.new, args.policy].count(_inputs.STDIN) > 1:
        raise InvalidInput("only one input can be standard input", reason="Usage")
    old, new, policy = _load(args.old, args.new, args.policy)
    plan = plan_update(old, new, policy, _inputs.name_of(args.new))
    from nodeagent.domains import warnings

    found = warnings(old, new)
    if args.json:
        from nodeagent.core.plan.plan_json import plan_to_dict

        noted = [{"path": each.path, "message": each.message} for each in found]
        _terminal.emit({**plan_to_dict(plan), **({"warnings": noted} if noted else {})})
    else:
        from nodeagent.cli._plan_view import show

        show(plan, found)
    return 0


def _load(old_path: str, new_path: str, policy_path: str | None) -> tuple[MachineConfig, MachineConfig, Policy]:
    from nodeagent.core.config.parse import parse
    from nodeagent.core.config.text.quickfiles import Cache

    cache = Cache()
    errors = _inputs.Errors()
    old = errors.collect(lambda: parse(_inputs.read(old_path), _inputs.name_of(old_path), cache=cache))
    new = errors.collect(lambda: parse(_inputs.read(new_path), _inputs.name_of(new_path), cache=cache))
    policy = errors.collect(lambda: _inputs.load_policy(policy_path))
    errors.check()
    assert old and new and policy
    return old, new, policy


def plan_update(old: MachineConfig, new: MachineConfig, policy: Policy, what: str) -> Plan:
    """What the daemon does before it touches anything, as far as that takes no host. ``what`` names the new config."""
    from nodeagent import domains
    from nodeagent.core.plan.plan import make_plan
    from nodeagent.core.plan.reconcile import check_reconcilable, remedy

    if problems := domains.validate(old, new):
        raise InvalidInput(f"{what} would not work: {_first(problems)}", reason="InvalidContent", problems=problems)
    if problems := check_reconcilable(old, new):
        message = f"{what} cannot be applied to a running host: {_first(problems)}"
        raise Unreconcilable(message, problems=problems, hint=remedy(problems))
    return make_plan(old, new, policy)


def _first(problems: tuple[Problem, ...]) -> str:
    more = len(problems) - 1
    return f"{problems[0].path}: {problems[0].message}" + (f" (and {more} more)" if more else "")
