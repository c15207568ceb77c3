# SPDX-License-Identifier: Apache-2.0
"""What else a host says and does while it has parts of a config."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nodeagent.core.config.machineconfig import UnitEntry, meaning
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.states import Phase
from tests.agent.test_api import api
from tests.features.safe_parts.offering import offering
from tests.update.test_unit_entries import BASE, at
from tests.world.os_host import OLD, at_old, on
from tests.world.run import LIMITS, config

pytestmark = pytest.mark.looptime


async def test_it_waits_for_no_part_of_a_blocked_config() -> None:
    host = await at(BASE)
    host.limits = replace(LIMITS, may_reboot=False)
    offering(host)
    dropin = UnitEntry("chronnyd.service", dropins={"10-x.conf": "[Service]\nUser=a\n"})
    await at(config("b", {"/etc/quiet/q": "1", "/etc/unlisted": "1"}, [dropin]), host=host)
    assert host.record.reason == "RebootNotAllowed"
    assert "/etc/systemd/system/chronnyd.service.d/10-x.conf" in host.world.disk
    assert "/etc/unlisted" not in host.world.disk


async def test_rollback_and_verify_know_the_part_of_a_config_that_waits() -> None:
    host = await at_old()
    host.limits = replace(host.limits, may_reboot=False)
    offering(host)
    new = on("b", "new", {"/etc/app/x": "2", "/etc/quiet/q": "1"})
    host.want(new)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "RebootNotAllowed")
    verified = json.loads(await api(host, Phase.DEGRADED).verify())
    assert verified["config"] == "old"
    assert verified["waits"] == ["osImageURL:osImageURL"]
    assert verified["ok"]
    assert await api(host, Phase.DEGRADED).rollback() == "old"
    assert host.world.request == ApplyRequest(host.world.current, host.wanted, meaning(new))
    host.want(OLD)
    await host.settle()
    assert (host.phase, host.record.lasting.partial) == (Phase.IDLE, None)
    assert b"1" in host.world.disk["/etc/app/x"].content  # type: ignore[union-attr]
