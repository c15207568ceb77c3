# SPDX-License-Identifier: Apache-2.0
"""Rules for versions of the OS in an update: what is refused before the staging, after it, and what goes on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from nodeagent.agent.plan_answer import plan_answer
from nodeagent.core.plan.deployment import staged
from nodeagent.errors import Refused, Unreachable
from nodeagent.features.update_graph.decide.declared import Barrier, Requirement, UpdatePath
from nodeagent.features.update_graph.decide.judge import HostFacts, applicable, check_path, check_requirements, resolved
from nodeagent.features.update_graph.decide.release import Jump, JumpAnswer
from nodeagent.features.update_graph.guard import JumpGuard
from nodeagent.features.update_graph.reasons import JumpReason
from nodeagent.update.next.preflight import Preflight
from nodeagent.update.ports.events import UpdateWaiting
from nodeagent.update.run import Ports
from nodeagent.update.states import Phase
from tests.world.os_host import A_DIGEST, B_DIGEST, C_DIGEST, FILES, NEW, OLD, at_old, booted_digest, on
from tests.world.run import Host, kinds, until

pytestmark = pytest.mark.looptime


@dataclass
class FakeJumps:
    """Implements ``guard.JumpGate`` with the judgement of the real one, and no host."""

    declared: UpdatePath = field(default_factory=UpdatePath)
    down: bool = False
    warnings: tuple[str, ...] = ()
    asked: list[Jump] = field(default_factory=list)

    async def check(self, jump: Jump) -> JumpAnswer:
        self.asked.append(jump)
        if self.down:
            raise Unreachable("no graph", reason=JumpReason.GRAPH_UNREACHABLE)
        jump = resolved(jump, self.declared, None)
        notes = check_path(jump, self.declared, None)
        needed = applicable(jump, self.declared, "test")
        facts = HostFacts(jump.kernel_arguments, {path: text for path, text in jump.managed.items() if text})
        return JumpAnswer((*notes, *check_requirements(jump, needed, facts)), self.warnings)


@dataclass
class JumpingHost(Host):
    jumps: FakeJumps = field(default_factory=FakeJumps)

    def ports(self) -> Ports:
        return replace(super().ports(), guards=[JumpGuard(self.jumps)])


BARRIER = UpdatePath(barriers=(Barrier("2", "keys"),))
KNOWN = UpdatePath(barriers=BARRIER.barriers, images={B_DIGEST: "3"})


async def host_at_1(declared: UpdatePath, version: str = "3") -> JumpingHost:
    """Return a host at version 1, for which the image of ``NEW`` has ``version``."""
    old = await at_old()
    host = JumpingHost(old.world, configs=old.configs, texts=old.texts)
    host.jumps.declared = declared
    host.world.versions[B_DIGEST] = version
    return host


async def test_a_known_image_that_skips_a_barrier_is_not_even_pulled() -> None:
    host = await host_at_1(KNOWN)
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, JumpReason.BARRIER_SKIPPED)
    assert "1 -> 3 skips a version that must not be skipped: go to 2 first (keys)" in host.record.message
    assert (host.world.credentials, host.actions(), booted_digest(host.world)) == ([], [], A_DIGEST)


async def test_an_unknown_image_is_refused_when_it_is_staged_and_pulled_once() -> None:
    host = await host_at_1(BARRIER)
    host.want(NEW)
    await host.settle()
    assert host.record.reason == JumpReason.BARRIER_SKIPPED
    left = staged(host.world.deployments)
    assert left is not None
    assert (left.locked, len(host.world.credentials), host.world.holder) == (True, 1, None)
    # It stays locked, so that neither this process nor the next one pulls it again.
    for loop in (host.build(), host.build()):
        await loop.turn()
        await loop.turn()
    assert (len(host.world.credentials), host.record.reason, host.actions()) == (1, JumpReason.BARRIER_SKIPPED, [])
    host.world.versions[C_DIGEST] = "2"
    host.want(on("c", "at the barrier"))
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, C_DIGEST)
    host.want(NEW)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_the_update_goes_on_at_the_barrier_and_beyond_it() -> None:
    for version in ("2", "1"):
        host = await host_at_1(BARRIER, version)
        host.want(NEW)
        await host.settle()
        assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    host.world.versions[A_DIGEST] = "0"
    host.want(OLD)
    await host.settle()
    assert booted_digest(host.world) == A_DIGEST, "a way back skips nothing"


async def test_an_image_without_a_version_is_refused_where_there_are_rules() -> None:
    host = await host_at_1(BARRIER, "")
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, JumpReason.VERSION_UNKNOWN)
    host = await host_at_1(UpdatePath(), "")
    host.want(NEW)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_updates_that_keep_the_image_are_not_checked() -> None:
    host = await host_at_1(BARRIER)
    host.jumps.down = True
    host.want(on("a", "kargs", kernel_arguments=("nosmt",)))
    await host.settle()
    assert (host.phase, host.actions(), host.jumps.asked) == (Phase.IDLE, ["reboot"], [])


async def test_without_a_graph_nothing_is_staged_and_the_update_begins_when_it_answers() -> None:
    host = await host_at_1(BARRIER, "2")
    host.jumps.down = True
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, JumpReason.GRAPH_UNREACHABLE)
    assert host.world.credentials == []
    host.jumps.down = False
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_a_graph_that_is_lost_during_the_staging_is_waited_for() -> None:
    host = await host_at_1(BARRIER, "2")
    host.world.stage_seconds = 600
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.STAGING)
    await asyncio.sleep(60)
    host.jumps.down = True
    await asyncio.sleep(3600)
    assert (host.phase, kinds(host, UpdateWaiting)) == (Phase.STAGING, [JumpReason.GRAPH_UNREACHABLE])
    host.jumps.down = False
    await task
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_a_warning_is_kept_in_the_history() -> None:
    host = await host_at_1(BARRIER, "2")
    host.jumps.warnings = ("warning: continuing without the update graph: x",)
    host.want(NEW)
    await host.settle()
    assert host.world.history[-1].message == "warning: continuing without the update graph: x"


NO_ARGUMENT = Requirement(name="old-argument", to="3", must="not-have", kernel_arguments=("old=1",), then="remove it")
NEEDS_FILE = Requirement(name="new-file", to="3", must="have", files=("/etc/app/z",), then="write it")


async def test_requirements_look_at_the_host_as_the_config_makes_it() -> None:
    host = await host_at_1(UpdatePath(requirements=(NO_ARGUMENT, NEEDS_FILE), images={B_DIGEST: "3"}))
    host.want(on("b", "both", kernel_arguments=("old=1",)))
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, JumpReason.REQUIREMENT_UNMET)
    for words in ("old-argument: the host has old=1; remove it", "new-file: the host lacks /etc/app/z; write it"):
        assert words in host.record.message
    host.want(on("b", "good", {**FILES, "/etc/app/z": "1"}))
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_a_plan_shows_the_way_and_the_requirements() -> None:
    declared = UpdatePath(barriers=(Barrier("3"),), requirements=(NO_ARGUMENT,), images={B_DIGEST: "3"})
    host = await host_at_1(declared)
    ports = host.ports()
    preflight = Preflight(ports, host.limits, (), host._policy, host.on_drift, host._view)
    new, old = [await host._load(host.add(each)) for each in (NEW, OLD)]
    update = await preflight.prepare(new, [old], dirty=False, first=False)
    answer = await plan_answer(ports, update, diff=False, private=False)
    assert answer["notes"][:2] == ["update path: 1 -> 3 is allowed", "requirements of 3: old-argument"]
    host.jumps.declared = KNOWN
    with pytest.raises(Refused, match="go to 2 first"):
        await preflight.prepare(new, [old], dirty=False, first=False)
