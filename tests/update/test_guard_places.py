# SPDX-License-Identifier: Apache-2.0
"""The places of a feature in an update of the OS: when its guard is called, and what its refusals end."""

from __future__ import annotations

from typing import Final

import pytest

from nodeagent import installed
from nodeagent.door import Door
from nodeagent.errors import Refused
from nodeagent.kinds import Kind, ReasonEnum
from nodeagent.update.ports.events import UpdateFinished
from nodeagent.update.run import Run
from nodeagent.update.stages.guard import Guard
from nodeagent.update.states import Phase
from tests.world.os_host import A_DIGEST, B_DIGEST, NEW, at_old, booted_digest
from tests.world.run import Host

pytestmark = pytest.mark.looptime


class Words(ReasonEnum):
    NEVER = "NeverOnThisHost", Kind.REJECTED, "take another host"


FEATURE: Final = Door(title="Words", page="", reasons=Words)


class Watching(Guard):
    """Notes the name of each call, its phase, and whether the lease was held. It refuses at ``place``."""

    def __init__(self, host: Host, place: str = "") -> None:
        self.host, self.place = host, place
        self.calls: list[tuple[str, Phase, bool]] = []

    def _called(self, name: str, run: Run) -> None:
        self.calls.append((name, run.record.phase, self.host.world.holder is not None))
        if name == self.place:
            raise Refused("no", reason=Words.NEVER)

    def fetches(self) -> bool:
        return True

    async def fetch(self, run: Run) -> None:
        self._called("fetch", run)

    async def check_staged(self, run: Run) -> None:
        self._called("staged", run)

    async def before_disruption(self, run: Run) -> None:
        self._called("before", run)

    async def after_verification(self, run: Run) -> None:
        self._called("after", run)


async def test_the_places_of_an_update_of_the_os() -> None:
    host = await at_old()
    host.guards = [guard := Watching(host)]
    host.want(NEW)
    await host.settle()
    assert booted_digest(host.world) == B_DIGEST
    assert guard.calls == [
        ("staged", Phase.STAGING, False),
        ("fetch", Phase.LEASING, False),
        ("before", Phase.LEASING, True),
        ("after", Phase.VERIFYING, True),
    ]


@pytest.mark.parametrize("place", ["staged", "fetch", "before"])
async def test_a_rejection_ends_the_update_before_anything_is_disrupted(place: str) -> None:
    host = await at_old()
    host.guards = [guard := Watching(host, place)]
    host.want(NEW)
    with installed.replaced((FEATURE,)):
        await host.settle()
        calls = len(guard.calls)
        await host.settle()
    (end,) = (event for event in host.world.events if isinstance(event, UpdateFinished))
    assert (end.entry.outcome, end.entry.reason, end.exit_code) == ("refused", Words.NEVER, 4)
    assert (host.world.history[-1].outcome, host.actions(), host.world.holder) == ("refused", [], None)
    assert (len(guard.calls), booted_digest(host.world)) == (calls, A_DIGEST), "it is not tried again"
