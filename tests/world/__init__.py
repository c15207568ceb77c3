# SPDX-License-Identifier: Apache-2.0
"""A host in memory for the tests of the agent, and what runs the agent on it.

``World`` is the durable state, ``run.Host`` starts, kills and reboots. ``os_host`` and ``cluster_host`` add deployments
and a cluster. The integration tests of a cluster use the same host.
"""

from __future__ import annotations

from tests.world.deployments import Etc, FakeBootedSystem, FakeDeployments, lost_answer
from tests.world.disk import FakeFiles, FakeUsers, full_disk
from tests.world.faults import Fault, Killed, kill_points
from tests.world.outages import LocalService, Outage
from tests.world.power import FakePower
from tests.world.store import FakeLease, FakeStore
from tests.world.unit_files import FakeUnitFiles
from tests.world.units import FakeHealth, FakeUnit, FakeUnits, JobFailed
from tests.world.world import FakeClock, FakeReporter, World

__all__ = [
    "Etc",
    "FakeBootedSystem",
    "FakeClock",
    "FakeDeployments",
    "FakeFiles",
    "FakeHealth",
    "FakeLease",
    "FakePower",
    "FakeReporter",
    "FakeStore",
    "FakeUnit",
    "FakeUnitFiles",
    "FakeUnits",
    "FakeUsers",
    "Fault",
    "JobFailed",
    "Killed",
    "LocalService",
    "Outage",
    "World",
    "full_disk",
    "kill_points",
    "lost_answer",
]
