"""The survey of etcd as one JSON object, for the command and for the D-Bus interface of the daemon."""

from __future__ import annotations

from typing import Any, Final

from nodeagent.core.etcd.quorum import EtcdSurvey, troubles
from nodeagent.host.etcd.quorum import QuorumReport
from nodeagent.reasons import hint

SCHEMA: Final = "nodeagent/etcd/v1"


def answer(report: QuorumReport, source: str) -> dict[str, Any]:
    """Return ``nodeagent/etcd/v1``. ``source`` is "daemon", whose verdict counts, or "command"."""
    verdict, survey = report.verdict, report.survey
    return {
        "schema": SCHEMA,
        "source": source,
        "member": bool(report.signs),
        "signs": list(report.signs),
        "allowed": verdict.allowed,
        "refusals": [
            {"reason": each.reason, "message": each.message, "hint": hint(each.reason)} for each in verdict.refusals
        ],
        "leader_to": survey.title(verdict.leader_to) if survey and verdict.leader_to else None,
        "members": _members(survey) if survey else [],
        "alarms": [{"member": survey.title(each.member), "kind": each.kind} for each in survey.alarms]
        if survey
        else [],
    }


def _members(survey: EtcdSurvey) -> list[dict[str, Any]]:
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
