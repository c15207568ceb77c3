# SPDX-License-Identifier: Apache-2.0
"""The fence in `nodeagent status` and `nodeagent history`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.features.fence.decide.view import FenceView
from nodeagent.update.history.trail import PaceTrail, trail_to_dict
from tests.cli.daemon.conftest import (
    Cli,
    bus_address,
    cli,
    daemon,
    loop_of_the_test,
    no_settings,
    three_in_the_morning,
)
from tests.cli.daemon.fake_daemon import FakeDaemon, entry
from tests.cli.daemon.test_history import TRAIL, update
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


def test_history_shows_etcds_fsyncs_around_a_staging(cli: Cli, daemon: FakeDaemon) -> None:
    spans = {
        "before": {"samples": 90000, "slow": 0, "p99_ms": 3.1},
        "during": {"samples": 4000, "slow": 2, "p99_ms": 15.9},
        "after": {"samples": 200, "slow": 0, "p99_ms": None},
    }
    daemon.history = [entry("u3", "worker-3", etcd_disk={"wal_fsync": spans}), entry("u2", "worker-2", etcd_disk={})]
    header, first, second, *_ = cli("history").out.splitlines()
    at = header.index("ETCD FSYNC P99")
    assert first[at:] == "3.1 / 15.9 / ? ms"
    assert second[at:].strip() == ""


def test_one_update_has_the_latency_and_the_course(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    spans = {span: {"samples": 10, "slow": 1, "p99_ms": p99} for span, p99 in (("before", 3.1), ("during", None))}
    trail = trail_to_dict(replace(TRAIL, fence=PaceTrail(0, 100.0, 10.0, 4.0, 2)))
    daemon.answers["Update"] = json.dumps(update(etcd_disk={"wal_fsync": spans}, trail=trail))
    lines = cli("history", "show").out.splitlines()
    shown = [line for line in lines if line.startswith(("etcd ", "I/O fence"))]
    golden("history", "the fence", "\n".join(shown))
