# SPDX-License-Identifier: Apache-2.0
"""From which status a boot counts as verified."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.report.boot_complete import boot_verified

STATUS: dict[str, Any] = {"daemon": "running", "boot_id": "b", "phase": "Idle", "reason": "", "update_id": ""}


@pytest.mark.parametrize(
    ("changes", "verified"),
    [
        ({}, True),
        ({"phase": "Staging", "update_id": "u"}, True),
        ({"phase": "Staging", "update_id": "u", "reason": "StagedLost"}, None),
        ({"phase": "Leasing", "update_id": "u", "reason": "LeaseHeld"}, True),
        ({"phase": "Rebooting", "update_id": "u"}, None),
        ({"phase": "Verifying", "update_id": "u"}, None),
        ({"phase": "Reverting", "update_id": "u"}, None),
        ({"phase": "Releasing", "update_id": "u"}, True),
        ({"phase": "Degraded", "reason": "Reverted", "update_id": "u"}, True),
        ({"phase": "Degraded", "reason": "NotPossible"}, True),
        ({"phase": "Degraded", "reason": "UnitUnhealthy", "update_id": "u"}, False),
        ({"phase": "Degraded", "reason": "RecordUnreadable"}, None),
        ({"daemon": "not running"}, None),
        ({"boot_id": ""}, None),
    ],
)
def test_statuses(changes: dict[str, Any], verified: bool | None) -> None:
    assert boot_verified({**STATUS, **changes}) is verified


def test_no_daemon() -> None:
    assert boot_verified(None) is None
