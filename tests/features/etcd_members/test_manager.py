# SPDX-License-Identifier: Apache-2.0
"""Join, leave and replace over a cluster in memory: the lease, refusals, deadlines, and hosts without an operator.

Real members, and the kills, are in `integration/cluster/test_etcd_members.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from nodeagent.agent.report.report import Report
from nodeagent.core.etcd.data_directory import DataDirectory, Identity
from nodeagent.core.etcd.quorum import EtcdSurvey, Member, MemberState, Refusal
from nodeagent.errors import AgentError, Refused, Retryable, Terminal
from nodeagent.features.etcd_members.decide.member_facts import MemberFacts
from nodeagent.features.etcd_members.decide.membership import (
    NOTE_KEY,
    AddLearner,
    ArchiveData,
    MemberNote,
    MemberRequest,
    OperationKind,
    Promote,
    RemoveMember,
    StartMember,
    Step,
    StopMember,
    note_from_text,
)
from nodeagent.features.etcd_members.events import MemberProgress
from nodeagent.features.etcd_members.manager import MemberManager
from nodeagent.features.etcd_members.reasons import MemberReason
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.stages.coordination import Coordination
from tests.world import FakeClock, FakeLease, World

pytestmark = pytest.mark.looptime

OK = MemberState(leader="1", applied=100, index=100, cluster="9")
PEER = "http://n:2380"
VOTERS = (Member("1", "a", peers=("http://a:2380",)), Member("2", "b"))
EMPTY = DataDirectory()


@dataclass
class Etcd:
    """Two other voters, and the member on this host. ``stuck``: it never answers after its start."""

    members: list[Member] = field(default_factory=lambda: list(VOTERS))
    states: dict[str, MemberState] = field(default_factory=lambda: {"1": OK, "2": OK})
    data: DataDirectory = EMPTY
    running: bool = False
    stuck: bool = False
    refused: Refusal | None = None
    unattended: bool = False
    faults: list[AgentError] = field(default_factory=list)
    next_id: int = 10
    done: list[str] = field(default_factory=list)

    async def facts(self, note: Identity | None) -> MemberFacts:
        survey = EtcdSurvey("", tuple(self.members), dict(self.states))
        return MemberFacts("n", (PEER,), survey, data=self.data, note=note, running=self.running)

    async def problem(self) -> Refusal | None:
        return self.refused

    async def do(self, step: Step) -> str:
        self.done.append(type(step).__name__)
        if self.faults:
            raise self.faults.pop(0)
        match step:
            case AddLearner():
                self.next_id += 1
                self.members.append(Member(str(self.next_id), learner=True, peers=(PEER,)))
                return str(self.next_id)
            case StartMember():
                self.running = True
                if not self.stuck:
                    self.data = DataDirectory(True, step.identity)
                    self._change(step.identity.member, name="n")
                    self.states[step.identity.member] = OK
            case Promote():
                self._change(step.member, learner=False)
            case RemoveMember():
                self.members = [member for member in self.members if member.id != step.member]
                self.states.pop(step.member, None)
            case StopMember():
                self.running = False
            case ArchiveData():
                self.data = DataDirectory()
        return ""

    def _change(self, member: str, **fields: object) -> None:
        self.members = [replace(m, **fields) if m.id == member else m for m in self.members]  # type: ignore[arg-type]

    def joined(self) -> Etcd:
        self.members.append(Member("5", "n", peers=(PEER,)))
        self.states["5"] = OK
        self.data, self.running = DataDirectory(True, Identity("5", "9")), True
        return self

    def lose_disk(self) -> Etcd:
        self.data, self.running = DataDirectory(), False
        self.states["5"] = MemberState(fault="does not answer")
        return self


@dataclass
class Host:
    etcd: Etcd = field(default_factory=Etcd)
    world: World = field(default_factory=World)
    notes: dict[str, str] = field(default_factory=dict)
    settings: bool = True
    free: int = 0
    report: Report = field(default_factory=lambda: Report(Status()))

    async def note(self, key: str) -> str:
        return self.notes.get(key, "")

    async def keep_note(self, key: str, text: str) -> None:
        self.notes[key] = text

    async def open(self) -> Etcd | None:
        return self.etcd if self.settings else None

    def _released(self) -> None:
        self.free += 1

    @contextlib.asynccontextmanager
    async def agent(self, *, give_up: float = 600.0) -> AsyncIterator[MemberManager]:
        clock = FakeClock(self.world)
        coordination = Coordination(FakeLease(self.world))
        manager = MemberManager(
            coordination, clock, self, self.report, self.open, on_release=self._released, give_up=give_up
        )
        await manager.load()
        task = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def ended(self) -> MemberProgress:
        async with asyncio.timeout(3600):
            while (progress := self.report.status.part(MemberProgress)) is None or not progress.ended:
                await asyncio.sleep(1)
        return progress

    async def change(self, kind: OperationKind, **options: float) -> str:
        async with self.agent(**options) as manager:
            await manager.start("root", MemberRequest(kind))
            return (await self.ended()).ended

    @property
    def identity(self) -> MemberNote:
        return note_from_text(self.notes.get(NOTE_KEY, ""))


async def test_a_join() -> None:
    host = Host()
    assert await host.change(OperationKind.JOIN) == "done"
    assert host.etcd.done == ["AddLearner", "StartMember", "Promote"]
    assert host.identity == MemberNote("11", "9")
    assert host.world.holder is None


async def test_a_leave_holds_the_lease_and_lets_updates_begin_afterwards() -> None:
    host = Host(Etcd().joined())
    holders: list[str] = []
    do = host.etcd.do

    async def watched(step: Step) -> str:
        holders.append(host.world.holder.reason if host.world.holder is not None else "")
        return await do(step)

    host.etcd.do = watched  # type: ignore[method-assign]
    assert await host.change(OperationKind.LEAVE) == "done"
    assert host.etcd.done == ["RemoveMember", "StopMember", "ArchiveData"]
    assert holders == ["leave of the etcd member"] * 3
    assert host.world.holder is None
    assert host.free == 1
    assert host.identity == MemberNote(left=True)


async def test_a_lost_disk_is_replaced() -> None:
    host = Host(Etcd().joined().lose_disk())
    assert await host.change(OperationKind.REPLACE) == "done"
    assert host.etcd.done == ["RemoveMember", "AddLearner", "StartMember", "Promote"]
    assert host.identity == MemberNote("11", "9")
    assert host.world.holder is None


async def test_a_refusal_before_the_first_step_leaves_nothing() -> None:
    host = Host(Etcd().joined())
    host.etcd.states["2"] = MemberState(fault="does not answer")
    with pytest.raises(Refused) as raised:
        await host.change(OperationKind.LEAVE)
    assert raised.value.reason == "EtcdQuorumAtRisk"
    host.etcd.refused = Refusal(MemberReason.ETCD_CERTIFICATES, "it has ended")
    joining = Host(Etcd(refused=Refusal(MemberReason.ETCD_CERTIFICATES, "it has ended")))
    with pytest.raises(Refused) as raised:
        await joining.change(OperationKind.JOIN)
    assert raised.value.reason == "EtcdCertificates"
    for each in (host, joining):
        assert each.etcd.done == []
        assert not any(each.notes.values())
        assert each.world.holder is None


async def test_another_holder_of_the_lease_refuses_a_leave() -> None:
    host = Host(Etcd().joined())
    host.world.holder = Holder("nodeagent", "u1", "update", "now")
    with pytest.raises(Refused) as raised:
        await host.change(OperationKind.LEAVE)
    assert raised.value.reason == "LeaseHeld"
    assert (host.etcd.done, host.world.holder.operation) == ([], "u1")
    assert not any(host.notes.values())


async def test_one_operation_at_a_time() -> None:
    host = Host(Etcd(stuck=True))
    async with host.agent() as manager:
        await manager.start("root", MemberRequest(OperationKind.JOIN))
        await asyncio.sleep(5)
        with pytest.raises(Refused) as raised:
            await manager.start("root", MemberRequest(OperationKind.JOIN))
    assert raised.value.reason == "EtcdChanging"


async def test_a_step_that_fails_is_tried_again() -> None:
    unhealthy = Retryable("unhealthy cluster", reason=Reason.ETCD_QUORUM_AT_RISK)
    host = Host(Etcd(faults=[unhealthy, unhealthy]))
    assert await host.change(OperationKind.JOIN) == "done"
    assert host.etcd.done == ["AddLearner"] * 3 + ["StartMember", "Promote"]


async def test_a_member_that_never_starts_is_removed_again() -> None:
    host = Host(Etcd(stuck=True))
    ended = await host.change(OperationKind.JOIN, give_up=60)
    assert ended.startswith("EtcdStarting: ")
    assert host.etcd.done == ["AddLearner", "StartMember", "RemoveMember", "StopMember"]
    assert [member.name for member in host.etcd.members] == ["a", "b"]
    assert not host.etcd.running


async def test_a_learner_whose_addition_was_not_answered_is_removed_as_well() -> None:
    host = Host(Etcd(stuck=True))
    do = host.etcd.do

    async def unanswered(step: Step) -> str:
        found = await do(step)
        if isinstance(step, AddLearner):
            raise Retryable("no answer", reason=Reason.ETCD_REJECTED)
        return found

    host.etcd.do = unanswered  # type: ignore[method-assign]
    ended = await host.change(OperationKind.JOIN, give_up=60)
    assert ended.startswith("EtcdStarting: ")
    assert [member.name for member in host.etcd.members] == ["a", "b"]


async def test_steps_that_alternate_end() -> None:
    host = Host()
    do = host.etcd.do

    async def loses_its_disk(step: Step) -> str:
        found = await do(step)
        if isinstance(step, StartMember):
            await asyncio.sleep(30)
            host.etcd.data, host.etcd.running = EMPTY, False
        return found

    host.etcd.do = loses_its_disk  # type: ignore[method-assign]
    ended = await host.change(OperationKind.JOIN, give_up=60)
    assert ended == "TryAgain: its steps alternate, and it is not done after 360 s"
    assert host.etcd.done[:5] == ["AddLearner", "StartMember", "RemoveMember", "AddLearner", "StartMember"]
    assert [member.name for member in host.etcd.members] == ["a", "b"]


async def test_a_host_without_an_operator_joins_and_replaces_its_lost_disk() -> None:
    host = Host(Etcd(unattended=True))
    async with host.agent():
        assert (await host.ended()).ended == "done"
        assert [member.name for member in host.etcd.members] == ["a", "b", "n"]
        host.etcd.data, host.etcd.running = DataDirectory(), False
        host.etcd.states["11"] = MemberState(fault="does not answer")
        await asyncio.sleep(100)
        assert host.identity == MemberNote("12", "9")
        assert [member.id for member in host.etcd.members] == ["1", "2", "12"]
        assert host.world.holder is None


async def test_a_host_without_an_operator_leaves_a_removed_member_alone() -> None:
    host = Host(Etcd(unattended=True))
    async with host.agent():
        await host.ended()
        removed = host.etcd.members.pop()
        await asyncio.sleep(300)
        assert [(each.topic, each.reason) for each in host.report.status.problems] == [("etcd", "EtcdRemoved")]
        host.etcd.members.append(removed)
        await asyncio.sleep(300)
        assert host.report.status.problems == ()
    assert host.etcd.done == ["AddLearner", "StartMember", "Promote"]
    assert host.etcd.data.present


async def test_a_host_that_left_stays_away_until_an_operator_joins_it() -> None:
    host = Host(Etcd(unattended=True))
    async with host.agent() as manager:
        await host.ended()
        await manager.start("root", MemberRequest(OperationKind.LEAVE))
        await asyncio.sleep(300)
        assert [member.name for member in host.etcd.members] == ["a", "b"]
        await manager.start("root", MemberRequest(OperationKind.JOIN))
        await asyncio.sleep(100)
        assert [member.name for member in host.etcd.members] == ["a", "b", "n"]


async def test_a_member_that_was_started_without_the_agent_gets_a_note() -> None:
    host = Host(Etcd().joined())
    async with host.agent():
        await asyncio.sleep(1)
        assert host.identity == MemberNote("5", "9")
    assert host.etcd.done == []


async def test_a_host_without_settings_does_nothing() -> None:
    host = Host(settings=False)
    async with host.agent():
        await asyncio.sleep(300)
    assert host.notes == {}


async def test_a_damaged_operation_is_reported() -> None:
    host = Host(notes={"etcd-operation": "{"})
    with pytest.raises(Terminal) as raised:
        async with host.agent():
            pass
    assert raised.value.reason == "StoreCorrupt"
