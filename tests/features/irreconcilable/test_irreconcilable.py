# SPDX-License-Identifier: Apache-2.0
"""Sections that no running host can take: accepted by name, reported, and never applied."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.agent.plan_answer import plan_answer
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import parse
from nodeagent.domains import check_update
from nodeagent.errors import Unreconcilable
from nodeagent.features.irreconcilable.cli import rows
from nodeagent.features.irreconcilable.decide import differing, from_text, to_text
from nodeagent.features.irreconcilable.events import PARTS, VIEWS, LeftOut, SectionsLeftOut
from nodeagent.features.irreconcilable.guard import NOTE, SectionsGuard
from nodeagent.features.irreconcilable.settings import IrreconcilableSettings
from nodeagent.report.status import Status
from nodeagent.update.next.preflight import Preflight
from nodeagent.update.run import Ports
from nodeagent.update.states import Phase
from tests.world import FakeReporter, FakeStore, World
from tests.world.run import Host, config

DISKS = IrreconcilableSettings(accept=("storage.disks",))
QUIET = {"/etc/quiet/q": "1"}

sections = st.dictionaries(st.sampled_from(["storage.disks", "storage.luks[a]", "storage.raid"]), st.text("ab"))


@given(sections, sections)
def test_only_what_differs_is_left_out(installed: dict[str, str], later: dict[str, str]) -> None:
    left = differing(installed, later)
    assert {*left} == {name for name, _ in installed.items() ^ later.items()}
    assert differing(installed, installed) == ()
    assert from_text(to_text(installed)) == installed


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', "null"])
def test_a_damaged_note_is_none(text: str) -> None:
    assert from_text(text) is None


def document(**storage: Any) -> MachineConfig:
    return parse(
        json.dumps(
            {
                "apiVersion": "machineconfiguration.openshift.io/v1",
                "kind": "MachineConfig",
                "metadata": {"name": "x"},
                "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": storage}},
            }
        ).encode()
    )


def test_each_section_is_accepted_by_its_own_name_only() -> None:
    disk = [{"device": "/dev/vda", "wipeTable": True}]
    bare, disks = document(), document(disks=disk)
    both = document(disks=disk, luks=[{"name": "data", "device": "/dev/vdb"}])
    with pytest.raises(Unreconcilable):
        check_update(bare, disks, "x")
    check_update(bare, disks, "x", accepted=("storage.disks",))
    check_update(disks, bare, "x", accepted=("storage.disks",))
    with pytest.raises(Unreconcilable) as raised:
        check_update(bare, both, "x", accepted=("storage.disks",))
    assert [problem.path for problem in raised.value.problems] == ["spec.config.storage.luks[data]"]
    check_update(bare, both, "x", accepted=("storage.disks", "storage.luks"))


@dataclass
class AcceptingHost(Host):
    settings: IrreconcilableSettings = field(default_factory=IrreconcilableSettings)

    def guard(self) -> SectionsGuard:
        return SectionsGuard(self.settings, FakeStore(self.world), FakeReporter(self.world), self._load)

    def ports(self) -> Ports:
        return replace(super().ports(), guards=[self.guard()])

    def left_out(self) -> list[tuple[str, ...]]:
        return [tuple(event.sections) for event in self.world.events if isinstance(event, SectionsLeftOut)]


def with_disks(name: str, digest: str, files: dict[str, str] | None = None) -> MachineConfig:
    return replace(config(name, files or QUIET), unapplied={"storage.disks": digest} if digest else {})


async def at(settings: IrreconcilableSettings) -> AcceptingHost:
    host = AcceptingHost(World(), settings=settings)
    host.want(with_disks("a", "1"))
    await host.settle()
    assert host.phase is Phase.IDLE
    return host


@pytest.mark.looptime
async def test_the_rest_is_applied_and_the_section_is_reported() -> None:
    host = await at(DISKS)
    await host.guard().look()
    assert host.left_out() == []
    new = with_disks("b", "2", {"/etc/quiet/q": "2"})
    preflight = Preflight(host.ports(), host.limits, (), host._policy, host.on_drift, host._view)
    known = [await host._load(host.world.current)]
    update = await preflight.prepare(await host._load(host.add(new)), known, dirty=False, first=False)
    notes = (await plan_answer(host.ports(), update, diff=False, private=False))["notes"]
    warning = "warning: spec.config.storage.disks changes and is not applied, which is accepted"
    assert warning in notes
    host.want(new)
    await host.settle()
    entry = host.world.history[-1]
    assert (entry.outcome, entry.to_name, warning in entry.message) == ("done", "b", True)
    guard = host.guard()
    await guard.look()
    await guard.look()
    assert host.left_out() == [("storage.disks",)]
    assert await guard.not_compared(new) == {
        "storage.disks": "is not applied: this host keeps what it was installed with"
    }
    # A later config that has the disks of the installation again.
    host.want(with_disks("c", "1"))
    await host.settle()
    await guard.look()
    assert host.left_out() == [("storage.disks",), ()]


@pytest.mark.looptime
@pytest.mark.parametrize("installed", ["1", ""])
async def test_the_way_back_needs_no_setting(installed: str) -> None:
    host = AcceptingHost(World(), settings=DISKS)
    for name, digest in (("a", installed), ("b", "2")):
        host.want(with_disks(name, digest))
        await host.settle()
        await host.guard().look()
    host.settings = IrreconcilableSettings()
    other = with_disks("other", "3", {"/etc/quiet/q": "3"})
    host.want(other)
    await host.settle()
    assert host.phase is Phase.DEGRADED
    host.want(with_disks("c", installed, {"/etc/quiet/q": "2"}))
    await host.settle()
    entry = host.world.history[-1]
    assert (entry.outcome, entry.to_name, "not applied" in entry.message) == ("done", "c", False)
    await host.guard().look()
    assert await host.guard().not_compared(with_disks("c", installed)) == {}


@pytest.mark.looptime
async def test_a_config_that_changes_nothing_else() -> None:
    host = await at(DISKS)
    host.want(with_disks("b", "2"))
    await host.settle()
    assert host.phase is Phase.IDLE
    await host.guard().look()
    assert host.left_out() == [("storage.disks",)]


@pytest.mark.looptime
@pytest.mark.parametrize("names", [(), ("storage.raid",)])
async def test_without_the_name_the_config_is_rejected(names: Any) -> None:
    host = await at(IrreconcilableSettings(accept=names))
    host.want(with_disks("b", "2", {"/etc/quiet/q": "2"}))
    await host.settle()
    assert host.phase is Phase.DEGRADED
    assert host.world.history[-1].to_name == "a"
    await host.guard().look()
    assert host.left_out() == []


@pytest.mark.looptime
async def test_the_first_update_with_the_feature_keeps_what_the_host_had() -> None:
    host = await at(DISKS)
    host.world.notes.pop(NOTE, None)
    host.want(with_disks("b", "2", {"/etc/quiet/q": "2"}))
    await host.settle()
    await host.guard().look()
    assert host.left_out() == [("storage.disks",)]


@pytest.mark.looptime
async def test_each_kill_on_the_way() -> None:
    new = with_disks("b", "2", {"/etc/quiet/q": "2"})
    undisturbed = await at(DISKS)
    undisturbed.world.calls = 0
    undisturbed.want(new)
    await undisturbed.settle()
    for call in range(1, undisturbed.world.calls + 1):
        host = await at(DISKS)
        host.world.calls = 0
        host.want(new)
        await host.kill_at(call, power=False)
        await host.settle()
        await host.guard().look()
        assert host.world.history[-1].outcome == "done", f"killed at {call}"
        assert host.left_out()[-1:] == [("storage.disks",)], f"killed at {call}"


def test_metric() -> None:
    (part,) = PARTS
    status = Status().with_part(LeftOut(("storage.disks", "storage.raid")))
    assert [sample.labels for sample in part.samples(status)] == [
        (("section", "storage.disks"),),
        (("section", "storage.raid"),),
    ]
    assert list(part.samples(Status())) == []


def test_status() -> None:
    (view,), (part,) = VIEWS, PARTS
    assert part.to_json(LeftOut(("storage.disks",)), Status()) == ["storage.disks"]
    status = view.fold(Status(), SectionsLeftOut(("storage.disks",)))
    assert status.part(LeftOut) == LeftOut(("storage.disks",))
    assert view.fold(status, SectionsLeftOut(())).part(LeftOut) is None
    assert view.sentence(SectionsLeftOut(()), status) == (
        "each section of the current config is as this host was installed"
    )
    assert "storage.disks" in view.sentence(SectionsLeftOut(("storage.disks",)), status)
    ((label, text),) = rows(["storage.disks"], datetime(2026, 11, 28, tzinfo=UTC))
    assert (label, text) == ("left out", "storage.disks (this host keeps what it was installed with)")
