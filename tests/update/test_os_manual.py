# SPDX-License-Identifier: Apache-2.0
"""Manual changes of deployments, and rollbacks that an operator requests."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nodeagent.errors import Refused
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import DeploymentsChanged, StagedInspected
from nodeagent.update.states import Phase
from tests.world import Fault, full_disk
from tests.world.os_host import (
    A_DIGEST,
    B_DIGEST,
    MORE,
    NEW,
    OLD,
    at_old,
    booted_digest,
    on,
)

pytestmark = pytest.mark.looptime


async def test_manual_rollback_is_drift() -> None:
    host = await at_old()
    host.want(NEW)
    await host.settle()
    host.world.deployments.reverse()
    host.world.power_cut()
    host.want(on("c", "newest", {"/etc/app/x": "2", "/etc/app/y": "2"}))
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Drifted")
    assert "osImageURL" in host.record.message
    host.want(on("a", "as it is", {"/etc/app/x": "2", "/etc/app/y": "2"}))
    await host.settle()
    assert (host.phase, host.world.history[-1].disruption) == (Phase.IDLE, "none")


async def test_refusal_while_reverted_survives_restart() -> None:
    host = await at_old()
    host.world.faults.append(full_disk())
    host.want(MORE)
    await host.settle()
    host.world.repair("install")
    rejected = host.record.lasting.failed_digest
    host.world.faults.append(Fault("guard", Refused("zincati", reason=Reason.OTHER_DRIVER), times=None))
    host.want(on("c", "newest"))
    await host.settle()
    assert (host.phase, host.record.reason, host.record.lasting.failed_digest) == (
        Phase.DEGRADED,
        "OtherDriver",
        rejected,
    )


async def test_rollback_is_permanent() -> None:
    host = await at_old()
    host.want(NEW)
    await host.settle()
    new = host.world.current
    host.want(OLD)
    assert host.loop is not None
    # As the daemon does it: one process, which also remembers what to avoid.
    await host.ask(host.loop, avoid=new)
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, A_DIGEST)
    assert (host.world.previous, host.record.lasting.rolled_back_digest) == (new, new)
    host.want(NEW)  # something writes it there again
    await host.settle()
    assert (host.phase, host.record.reason, booted_digest(host.world)) == (Phase.DEGRADED, "RolledBack", A_DIGEST)
    await host.ask()  # an operator does
    assert (host.phase, booted_digest(host.world), host.record.lasting.rolled_back_digest) == (Phase.IDLE, B_DIGEST, "")


async def test_what_a_staging_changes_is_reported_once() -> None:
    host = await at_old()
    host.want(NEW)
    await host.settle()
    (found,) = [event.changes for event in host.world.events if isinstance(event, StagedInspected)]
    assert (found.merged, found.staged) == ((), host.world.deployments[0].id)
    assert host.world.deployments[0].booted


async def test_deployments_are_reported_on_change() -> None:
    host = await at_old()
    host.want(NEW)
    await host.settle()
    orders = [event.deployments for event in host.world.events if isinstance(event, DeploymentsChanged)]
    assert all(before != after for before, after in pairwise(orders))
    assert [d.digest for d in orders[-1]] == [B_DIGEST, A_DIGEST]
    assert any(d.staged and d.locked for order in orders for d in order)
