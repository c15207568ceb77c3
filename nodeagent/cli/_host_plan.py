# SPDX-License-Identifier: Apache-2.0
"""The plan of an update of this host, as the daemon answers it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nodeagent.cli import _io
from nodeagent.cli._features import lines_after
from nodeagent.cli._plan_view import FALLBACK, WHOLE, View, show_plan
from nodeagent.cli._render import change_name
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.plan import disruption
from nodeagent.core.plan.plan_json import plan_from_dict
from nodeagent.core.plan.removal import BY_CLUSTER, Removal, check_removal
from nodeagent.errors import InvalidInput, Problem, Refused, Terminal
from nodeagent.reasons import Reason

DECLINED: Final = "not applied: nothing was changed"
# What an operator confirms, by the disruption of the plan. The others are applied without a question.
QUESTIONS: Final = {
    "restart": "Services restart.",
    "drain": "Workloads move away, and services restart.",
    "reboot": "This host reboots.",
}
THEN: Final = {
    "kept": "it stays as it is",
    "overwritten": "this update overwrites it",
    "wanted": "it is as the new config wants it",
}


@dataclass(frozen=True, slots=True)
class HostPlan:
    """``lines`` come before the summary. ``fallback`` is the line about the reboot after a failed action, "" for none.

    ``alone``: the host is in no cluster. ``missing`` are entries of units that exist nowhere.
    """

    plan: Plan
    diffs: Mapping[str, str]
    drift: Sequence[str]
    lines: Sequence[str]
    fallback: str
    alone: bool
    problems: Sequence[str]
    missing: Sequence[Problem]
    removal: Removal
    by_cluster: bool

    @classmethod
    def read(cls, answer: Mapping[str, Any], *, stage: bool = False) -> HostPlan:
        """Read all of an answer before the first line is shown: the daemon may be of another version.

        Raises ``Terminal`` (``UnexpectedReply``).
        """
        try:
            plan = plan_from_dict(answer)
            changes = zip(plan.changes, answer["changes"], strict=True)
            return cls(
                plan,
                diffs={planned.change.id: str(data["diff"]) for planned, data in changes if "diff" in data},
                drift=[*_drift_lines(answer, plan.from_name)],
                lines=[*_lines(answer, stage=stage)],
                fallback=_fallback(answer["fallback"]) if "fallback" in answer else "",
                alone=not answer.get("in_cluster", True),
                problems=[f"{problem['reason']}: {problem['message']}" for problem in answer.get("problems", [])],
                missing=[Problem(warning["entry"], warning["message"]) for warning in answer.get("unit_warnings", [])],
                removal=_removal(answer["removal"]),
                by_cluster=bool(answer.get("by_cluster")),
            )
        except (TypeError, ValueError, KeyError) as error:
            raise Terminal(f"unexpected reply from the daemon: {error}", reason=Reason.UNEXPECTED_REPLY) from error

    def show(
        self,
        answer: Mapping[str, Any],
        view: View = WHOLE,
        *,
        as_json: bool,
        falls_back: bool = True,
        ends: Sequence[str] = (),
    ) -> None:
        """Print the plan. Without ``falls_back``, a failed action does not reboot the host. ``ends`` are lines about
        what follows the update."""
        # They come with a plan without the daemon, when no status shows them.
        for problem in self.problems:
            _io.warn(problem)
        if as_json:
            _io.emit(answer)
            return
        notes = [*self.drift, *self.lines, *([self.fallback] if self.fallback and falls_back else []), *ends]
        nothing = "nothing to do: the host is already as this config describes it"
        show_plan(self.plan, notes, self.diffs, nothing, replace(view, alone=self.alone))

    def check_units(self) -> None:
        """Raise ``InvalidInput`` (``UnitMissing``) for entries of units that exist nowhere."""
        if self.missing:
            _io.flush()
            reason, message = Reason.UNIT_MISSING, f"{self.plan.to_name} was refused"
            raise InvalidInput(message, reason=reason, hint=reason.hint, problems=self.missing)

    def check_request(self, removes: int | None) -> None:
        """Raise ``Refused`` (``RemovesMost``, ``ClusterDecides``) for what the daemon would refuse, if the config were
        applied now. ``removes`` is the number of removed entries that the operator confirms; None: any number."""
        _io.flush()
        if self.by_cluster:
            raise Refused(BY_CLUSTER, reason=Reason.CLUSTER_DECIDES)
        if removes is not None:
            check_removal(self.plan.to_name, replace(self.removal, confirmed=removes))

    def confirmed(self, question: str) -> str | None:
        """Prompt if the plan, which was shown, disrupts. Return its disruption, which that of the daemon must not
        exceed: the host may change before it plans again. None if the operator did not confirm it."""
        effect = View(alone=self.alone).effect(self.plan)
        if effect in QUESTIONS and not _io.confirm(f"{_io.printable(question)}? {QUESTIONS[effect]}"):
            return None
        return disruption(self.plan)


def _removal(counts: Mapping[str, Any]) -> Removal:
    # A daemon of an earlier version does not know whether it is a part.
    return Removal(int(counts["removed"]), int(counts["total"]), part=bool(counts.get("part")))


def _drift_lines(answer: Mapping[str, Any], name: str) -> Iterator[str]:
    drift = answer.get("drift", [])
    if drift:
        differ = "entry differs" if len(drift) == 1 else "entries differ"
        yield f"{len(drift)} managed {differ} from {name}:"
    for entry in drift:
        yield f"  {change_name(entry['entry'])} {entry['why']}; {THEN.get(entry['then'], entry['then'])}"


def _lines(answer: Mapping[str, Any], *, stage: bool) -> Iterator[str]:
    yield from map(str, answer.get("notes", []))
    yield from _os_lines(answer, stage=stage)
    if reboot := _kind(answer.get("reboot") or {}, planned=True):
        yield f"the reboot: {reboot}"
    yield from lines_after("the reboot", answer)


def _fallback(reboot: Mapping[str, Any]) -> str:
    kind = _kind(reboot)
    return f"if an action fails: {kind}" if kind else FALLBACK


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
