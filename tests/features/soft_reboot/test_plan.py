# SPDX-License-Identifier: Apache-2.0
"""The kind of a reboot in a plan."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import ServiceUnavailable
from nodeagent.reasons import Reason
from tests.agent.test_api import api
from tests.features.soft_reboot.soft import guard_of
from tests.world import Fault
from tests.world.os_host import B_DIGEST, NEW, OLD, at_old
from tests.world.run import config


@pytest.mark.parametrize(
    ("files", "soft", "found"),
    [
        ({"/etc/app/x": "2"}, False, {"kind": "full", "why": "reboot.soft is never"}),
        ({"/etc/app/x": "2"}, True, {"kind": "soft"}),
        ({"/etc/quiet/x": "2"}, True, None),
        ({"/etc/unlisted": "2"}, True, None),
    ],
    ids=["never", "fallback", "no action", "planned reboot"],
)
async def test_a_plan_has_the_kind_of_its_fallback(
    files: dict[str, str], soft: bool, found: dict[str, str] | None
) -> None:
    host = await at_old()
    host.guards = [guard_of(host.world, "fallback" if soft else "never")]
    digest = host.add(replace(OLD, name="new", files={**OLD.files, **config("new", files=files).files}))
    assert json.loads(await api(host).plan(digest)).get("fallback") == found


async def test_a_plan_says_why_its_fallback_is_full() -> None:
    host = await at_old()
    host.guards = [guard_of(host.world, "fallback")]
    host.world.next_root_of_another = True
    digest = host.add(replace(OLD, name="new", files=config("new", files={"/etc/app/x": "2"}).files))
    found = json.loads(await api(host).plan(digest))["fallback"]
    assert found == {"kind": "full", "why": "another system", "reason": "NextRootPrepared"}


@pytest.mark.parametrize("auto", [False, True])
async def test_a_plan_has_the_kind_of_its_reboot(auto: bool) -> None:
    """Before the deployment exists it may only be excluded."""
    host = await at_old()
    host.guards = [guard_of(host.world, "auto" if auto else "never")]
    host.world.kernel_start = 95.0
    digest, listed = host.add(NEW), host.add(replace(NEW, name="kernel", kernel_arguments=("nosmt",)))

    async def kind(of: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await api(host).plan(of))["reboot"]
        return found

    if not auto:
        assert await kind(digest) == {"kind": "full", "why": "reboot.soft is not auto", "saves_seconds": 95.0}
        return
    later = {"kind": "undecided", "why": "decided when the deployment is staged", "saves_seconds": 95.0}
    assert await kind(digest) == later
    assert (await kind(listed))["because"] == ["kernelArguments:kernelArguments"]
    left = Deployment("os-bbbb.7", "b", "os", digest=B_DIGEST, staged=True, locked=True)
    host.world.deployments.insert(0, replace(left, kernel_arguments=host.world.deployments[0].kernel_arguments))
    assert await kind(digest) == {"kind": "soft", "saves_seconds": 95.0}
    host.world.kernels[B_DIGEST] = "6.2"
    found = await kind(digest)
    assert (found["kind"], found["reason"], found["why"]) == ("full", "KernelStartNeeded", "another kernel")
    away = ServiceUnavailable("no answer", reason=Reason.BUS_TIMEOUT, service="rpm-ostreed")
    host.world.faults.append(Fault("soft reboot into", away))
    assert (await kind(digest))["kind"] == "undecided"
