# SPDX-License-Identifier: Apache-2.0
"""Whether this host may be disrupted without loss of etcd's quorum, and the move of the leader to another member.

``survey`` runs before a lease is taken and again before each step that stops the member, because another node can fail
in between; ``move_leader`` runs right before the last of them. A failed survey is a refusal. No API server is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nodeagent.core.etcd.quorum import EtcdSurvey, QuorumVerdict, Refusal, judge, troubles
from nodeagent.errors import Refused
from nodeagent.features.etcd_guard.reasons import QuorumReason
from nodeagent.host.etcd.client import TIMEOUT, EtcdAccess, EtcdFault, endpoints_of, open_client
from nodeagent.host.etcd.detect import detect
from nodeagent.host.etcd.options import Options
from nodeagent.host.etcd.survey import survey_cluster
from nodeagent.kinds import Kind
from nodeagent.reasons import hint
from nodeagent.update.ports.host import Clock

SCHEMA: Final = "nodeagent/etcd/v1"

MOVE_TIMEOUT: Final = 15.0
MOVE_PAUSE: Final = 0.2


@dataclass(frozen=True, slots=True)
class QuorumReport:
    """``signs`` is empty if no member is on this host: then a disruption is allowed without a survey. ``survey`` is
    also None if no member answers; the verdict has the reason."""

    signs: Sequence[str] = ()
    verdict: QuorumVerdict = field(default_factory=QuorumVerdict)
    survey: EtcdSurvey | None = None


class QuorumRefused(Refused):
    """The quorum does not allow a disruption, or is not known. The reason is that of the first finding."""

    kinds = frozenset(Kind)


class QuorumCheck:
    """Implements ``guard.Quorum``. ``single`` as in ``core.etcd.quorum.judge``; ``timeout`` of one request, in
    seconds."""

    def __init__(
        self,
        clock: Clock,
        *,
        access: EtcdAccess | None = None,
        single: bool = False,
        timeout: float = TIMEOUT,
        root: Path = Path("/"),
    ) -> None:
        self._clock = clock
        self._access = access or EtcdAccess()
        self._single = single
        self._timeout = timeout
        self._root = root
        self._status: asyncio.Future[Mapping[str, Any]] | None = None

    def use(self, *, single: bool) -> None:
        self._single = single

    async def status(self) -> Mapping[str, Any]:
        """Return ``nodeagent/etcd/v1``. Concurrent calls share one survey of the members."""
        if self._status is None or self._status.done():
            self._status = asyncio.ensure_future(self._answer())
        return await asyncio.shield(self._status)

    async def _answer(self) -> Mapping[str, Any]:
        return answer(await self.survey(), "daemon")

    async def survey(self) -> QuorumReport:
        """Survey the members. No fault of the host or of etcd raises an error."""
        member = await asyncio.to_thread(detect, self._root)
        if member is None and not self._access.endpoints:
            return QuorumReport()
        signs = member.signs if member is not None else ("configured address",)
        options = member.options if member is not None else Options()
        where = endpoints_of(options, self._access)
        try:
            client = await asyncio.to_thread(open_client, options, self._access, where, self._timeout)
            # The detected name may belong to another member than the configured address.
            survey = await survey_cluster(client, where, "" if self._access.endpoints else options.get("name"))
        except EtcdFault as fault:
            return QuorumReport(signs, QuorumVerdict((Refusal(reason=fault.reason, message=fault.message),)))
        return QuorumReport(signs, judge(survey, single=self._single), survey)

    async def check(self) -> QuorumReport:
        """Survey, and raise ``Refused`` with the reason of the first refusal and the messages of all."""
        report = await self.survey()
        if not report.verdict.allowed:
            messages = "; ".join(refusal.message for refusal in report.verdict.refusals)
            raise QuorumRefused(f"etcd: {messages}", reason=report.verdict.refusals[0].reason)
        return report

    async def move_leader(self) -> QuorumReport:
        """Check, and move the leadership to another member. Raises ``Refused``, also if it did not move in time
        (``EtcdLeaderStays``)."""
        deadline = self._clock.monotonic() + MOVE_TIMEOUT
        while True:
            report = await self.check()
            to, survey = report.verdict.leader_to, report.survey
            # This member does not lead, or there is no member on this host.
            if not to or survey is None:
                return report
            if self._clock.monotonic() > deadline:
                raise Refused(
                    f"etcd: the leadership did not move to {survey.title(to)} in {MOVE_TIMEOUT:g} s",
                    reason=QuorumReason.ETCD_LEADER_STAYS,
                )
            # The result of the request is not trusted: the next survey shows who leads.
            await self._move(to)
            await asyncio.sleep(MOVE_PAUSE)

    async def _move(self, to: str) -> None:
        """Request the move. After an error the next survey decides, because the leadership may have moved anyway."""
        member = await asyncio.to_thread(detect, self._root)
        options = member.options if member is not None else Options()
        where = endpoints_of(options, self._access)
        for url in where.ours:
            with suppress(EtcdFault):
                client = await asyncio.to_thread(open_client, options, self._access, where, self._timeout)
                await client.move_leader(url, to)
                return


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
            {"reason": refusal.reason, "message": refusal.message, "hint": hint(refusal.reason)}
            for refusal in verdict.refusals
        ],
        "leader_to": survey.title(verdict.leader_to) if survey and verdict.leader_to else None,
        "members": _members(survey) if survey else [],
        "alarms": [{"member": survey.title(alarm.member), "kind": alarm.kind} for alarm in survey.alarms]
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
