# SPDX-License-Identifier: Apache-2.0
"""Rows of the status for a drain."""

from __future__ import annotations

from tests.cli.daemon.conftest import (
    Cli,
    bus_address,
    cli,
    daemon,
    loop_of_the_test,
    no_settings,
    private_bus,
    three_in_the_morning,
)
from tests.cli.daemon.fake_daemon import FakeDaemon
from tests.cli.daemon.test_status import BUSY, DEPLOYMENTS
from tests.support.golden import Golden

__all__ = ["bus_address", "cli", "daemon", "loop_of_the_test", "no_settings", "private_bus", "three_in_the_morning"]


def test_beside_deployments(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    pods = [{"namespace": "db", "name": "pg-0", "why": "would break its budget"}]
    daemon.status |= {**DEPLOYMENTS, "drain": {"remaining": pods}}
    golden("status", "deployments", cli("status").out)


def test_a_drain_at_night(cli: Cli, daemon: FakeDaemon, golden: Golden) -> None:
    """Requester, reason, deadline and what follows, remaining pods with their causes, lease holder and remedy."""
    budget = "a disruption budget: The disruption budget web needs 3 healthy pods and has 3 currently"
    hint = "give it one replica more: kubectl get pdb,pods -n shop"
    daemon.status |= {
        **BUSY,
        "phase": "Draining",
        "step": None,
        "drain": {
            "requester": "nodeagent",
            "reason": "update to worker-2",
            "since": "2026-11-21T03:00:00.000Z",
            "deadline": "2026-11-21T04:00:00.000Z",
            "then": "the host is rebooted anyway",
            "remaining": [
                {"namespace": "shop", "name": "web-0", "why": budget, "blocked": True, "hint": hint},
                {"namespace": "shop", "name": "web-1", "why": budget, "blocked": True, "hint": hint},
                {"namespace": "shop", "name": "db-0", "why": "eviction requested", "blocked": False, "hint": ""},
            ],
        },
    }
    golden("status", "draining", cli("status").out)
    pods = [{"namespace": "shop", "name": f"web-{number}", "why": "eviction requested"} for number in range(30)]
    daemon.status["drain"] = {"remaining": pods}
    lines = cli("status").out.splitlines()
    assert sum(line.startswith("waits for") for line in lines) == 21
    assert any("10 more" in line for line in lines)
    daemon.status["drain"] = {"remaining": []}
    golden("status", "drained", cli("status").out)
