"""`nodeagent etcd status`: is there a member of etcd on this host, and might it go now? (And ``etcd_latency``.)

Asks etcd itself, not the daemon: it is for the moment before a person reboots a host by hand, too.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from nodeagent.cli import etcd_latency
from nodeagent.cli.output import printable
from nodeagent.cli.terminal import BAD, GOOD, emit, paint, table

if TYPE_CHECKING:
    from nodeagent.core.etcd import Survey
    from nodeagent.host.etcd.guard import Report

__all__ = ["add_arguments", "run"]

SCHEMA = "nodeagent/etcd/v1"
REFUSED = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="etcd_command", metavar="COMMAND", required=True)
    status = commands.add_parser("status", help="the members, and whether this host may be disrupted")
    status.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")
    status.add_argument("--single", action="store_true", help="a cluster of this one member may lose it for a while")
    endpoint = "client URL, instead of what is found; this host's first, may be repeated"
    status.add_argument("--endpoint", action="append", default=[], metavar="URL", help=endpoint)
    status.add_argument("--ca", default="", metavar="FILE", help="authority of etcd's certificates (PEM)")
    status.add_argument("--cert", default="", metavar="FILE", help="client certificate (PEM)")
    status.add_argument("--key", default="", metavar="FILE", help="its key (PEM)")
    etcd_latency.add_arguments(commands)


def run(args: argparse.Namespace) -> int:
    """0 if the host may be disrupted as far as etcd goes, also where there is no member; 4 if not."""
    if args.etcd_command == "latency":
        return etcd_latency.run(args)
    from nodeagent.host.clock import SystemClock
    from nodeagent.host.etcd.guard import Access, EtcdGuard

    access = Access(args.endpoint, args.ca, args.cert, args.key)
    report = asyncio.run(EtcdGuard(SystemClock(), access=access, single=args.single).look())
    if args.json:
        emit(_answer(report))
    else:
        _describe(report)
    return 0 if report.verdict.allowed else REFUSED


def _answer(report: Report) -> dict[str, Any]:
    verdict, survey = report.verdict, report.survey
    return {
        "schema": SCHEMA,
        "member": bool(report.signs),
        "signs": list(report.signs),
        "allowed": verdict.allowed,
        "refusals": [{"reason": each.reason, "message": each.message} for each in verdict.refusals],
        "leader_to": survey.title(verdict.leader_to) if survey and verdict.leader_to else None,
        "members": _members(survey) if survey else [],
        "alarms": [{"member": survey.title(each.member), "kind": each.kind} for each in survey.alarms]
        if survey
        else [],
    }


def _members(survey: Survey) -> list[dict[str, Any]]:
    from nodeagent.core.etcd import troubles

    wrong = troubles(survey)
    leader = next((state.leader for state in survey.states.values() if state.leader), "")
    return [
        {
            "id": member.id,
            "name": member.name,
            "this": member.id == survey.us,
            "learner": member.learner,
            "leader": member.id == leader,
            "healthy": not wrong[member.id],
            "trouble": wrong[member.id],
        }
        for member in survey.members
    ]


def _describe(report: Report) -> None:
    from nodeagent.core.hints import hint

    if not report.signs:
        print("no member of etcd is on this host")
        return
    print(f"found      {printable(', '.join(report.signs))}")
    if report.survey is not None:
        rows = []
        for each in _members(report.survey):
            role = "learner" if each["learner"] else "leader" if each["leader"] else "voter"
            title = (each["name"] or each["id"]) + (" (this host)" if each["this"] else "")
            rows.append([printable(title), role, printable(each["trouble"] or "healthy")])
        table(["MEMBER", "ROLE", "STATE"], rows)
    for refusal in report.verdict.refusals:
        print(paint(f"{refusal.reason}: {printable(refusal.message)}", BAD))
        print(f"hint: {hint(refusal.reason)}")
    if report.verdict.allowed:
        moved = report.survey.title(report.verdict.leader_to) if report.survey and report.verdict.leader_to else ""
        first = f", after the lead has moved to {printable(moved)}" if moved else ""
        print(paint(f"this host may be disrupted{first}", GOOD))
