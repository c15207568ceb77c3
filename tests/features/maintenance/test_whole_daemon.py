# SPDX-License-Identifier: Apache-2.0
"""The feature in the whole daemon."""

from __future__ import annotations

import pytest

from nodeagent.features.maintenance.manager import MaintenanceManager
from nodeagent.update.ports.coordination import Holder
from tests.agent.test_daemon_starts import host, on, private_bus, survives_bugs_of
from tests.agent.whole_daemon import WholeDaemon, source
from tests.support import damage
from tests.support.needs import acts_as_root

__all__ = ["host", "private_bus"]


@pytest.mark.finding(
    "daemon: a start with damaged files, daemon: no bug ends it",
    "A bug in the start, in a maintenance or in a change of the etcd member is reported and tried again; it does not "
    "end each new process.",
)
async def test_a_bug_in_what_continues_from_the_store_does_not_end_the_daemon(
    host: WholeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    await survives_bugs_of(MaintenanceManager, host, monkeypatch)


@pytest.mark.finding("store: damaged rows", "A damaged row of the lease means that the lease is held.")
@acts_as_root
async def test_a_damaged_lease_is_held_until_an_operator_ends_it(host: WholeDaemon) -> None:
    await on(host, source("old"))
    async with host.store() as store:
        await store.take_lease(Holder("root", "maintenance.m1", "disk swap", "2026-01-01T00:00:00.000Z"))
    damage.damage_row(host.database, "lease", "json", damage.DEEP)
    async with host.running() as client:
        status = await client.status()
        assert (status["lease"]["holder"], status["maintenance"]["state"]) == ("unknown", "under way")
        await client.request("StopMaintenance")
        assert (await client.status())["lease"] is None
