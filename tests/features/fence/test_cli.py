# SPDX-License-Identifier: Apache-2.0
"""The row of the fence in `nodeagent status`."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.features.fence.decide.view import FenceView
from tests.cli.daemon.conftest import (
    Cli,
    bus_address,
    cli,
    daemon,
    loop_of_the_test,
    no_settings,
    three_in_the_morning,
)
from tests.cli.daemon.fake_daemon import FakeDaemon
from tests.support.golden import Golden

__all__ = ["bus_address", "cli", "daemon", "loop_of_the_test", "no_settings", "three_in_the_morning"]


@pytest.mark.parametrize(
    ("case", "fence"),
    [
        ("capped", {}),
        ("not capped", {"write_bps": None, "exceedances": 2}),
        ("not measured", {"victim_p99_ms": None}),
        ("not active", {"active": False, "message": "/: on no disk"}),
    ],
)
def test_the_fence(cli: Cli, daemon: FakeDaemon, golden: Golden, case: str, fence: dict[str, Any]) -> None:
    view = FenceView(True, "calm", "0 of 98 fsyncs over 24 ms", 16_000_000, 489, 0.0031, 0, 40.4, 61.0, "etcd")
    daemon.status |= {"fence": {**view.to_dict(), **fence}}
    golden("status", f"fence, {case}", cli("status").out)


def test_it_follows_the_rows_about_the_host(cli: Cli, daemon: FakeDaemon) -> None:
    view = FenceView(True, "calm", "0 of 98 fsyncs over 24 ms", 16_000_000, p99=0.0031)
    daemon.status |= {"fence": view.to_dict(), "os_changes": {"summary": "packages 2 added"}, "update_id": "u1"}
    labels = [line.split("  ")[0] for line in cli("status").out.splitlines()]
    assert labels.index("next boot") < labels.index("fence") < labels.index("update")
