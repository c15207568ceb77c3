# SPDX-License-Identifier: Apache-2.0
"""Which side of an update a booted deployment is, and which deployment is that of the agent."""

from __future__ import annotations

import pytest

from nodeagent.core.plan.deployment import Deployment, OsTarget, target_to_dict
from nodeagent.update.record import OsProgress, Record
from nodeagent.update.stages.os_deployments import BootedSide, booted_side, find_own
from nodeagent.update.states import Apply, Phase, Prepare
from tests.world.os_host import at_old

TARGET = target_to_dict(OsTarget(kernel_arguments=("quiet",)))


@pytest.mark.parametrize(
    ("booted", "arguments", "target", "side"),
    [
        ("fedora-old.0", ("quiet",), TARGET, "OLD"),
        ("fedora-old.1", (), TARGET, "NEW"),
        ("fedora-old.2", ("quiet",), TARGET, "NEW"),
        ("fedora-old.2", (), TARGET, "OLD"),
        ("fedora-old.2", ("quiet",), None, "OLD"),
        ("fedora-other.0", (), TARGET, "OTHER"),
    ],
)
def test_the_side_of_a_booted_deployment(
    booted: str, arguments: tuple[str, ...], target: dict[str, object] | None, side: str
) -> None:
    """The update changes kernel arguments only, so both deployments have the same tree."""
    record = Record(Phase.VERIFYING, Apply(), os=OsProgress(target, "fedora-old.0", "fedora-old.1"))
    deployment = Deployment(booted, "sum", "fedora", kernel_arguments=arguments, booted=True)
    assert booted_side(record, deployment) is BootedSide[side]


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("arguments", "locked", "in_the_way", "own"),
    [
        (("quiet",), True, False, True),
        ((), True, False, False),
        (("quiet",), False, False, False),
        (("quiet",), False, True, True),
    ],
)
async def test_a_staged_deployment_that_was_not_recorded_is_known_by_the_target(
    arguments: tuple[str, ...], locked: bool, in_the_way: bool, own: bool
) -> None:
    host = await at_old()
    os = host.build().ports.os
    assert os is not None
    staged = Deployment("fedora-new.0", "sum", "fedora", kernel_arguments=arguments, staged=True, locked=locked)
    host.world.deployments.insert(0, staged)
    record = Record(Phase.STAGING, Prepare(), os=OsProgress(TARGET))
    assert await find_own(os, record, in_the_way=in_the_way) == (staged.id if own else "")
