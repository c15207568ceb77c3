# SPDX-License-Identifier: Apache-2.0
"""The status of a host. Features add their keys to ``Status``."""

from __future__ import annotations

from typing import Annotated, Literal

from nodeagent.contract.keys import Keys, about
from nodeagent.contract.shared import Blocked, Lease, OsChanges, Problem
from nodeagent.core.boot import RebootKind
from nodeagent.update.states import Phase


class Step(Keys):
    name: Annotated[str, about("what is done, as restart crio.service")]
    index: Annotated[int, about("counts from 1")]
    count: Annotated[int, about("steps of this phase; 0 if they are not counted")]
    percent: Annotated[int, about("0 to 100, of the whole update")]


class Deployment(Keys):
    checksum: Annotated[str, about("of its commit")]
    version: Annotated[str, about("of the OS; empty without one")]
    booted: Annotated[bool, about("whether it runs")]
    staged: Annotated[bool, about("whether it becomes the default at the next shutdown")]
    locked: Annotated[bool | None, about("whether a reboot of others leaves it out; null if it is not staged")]
    digest: Annotated[str, about("of its container image; empty without one")]


class Partial(Keys):
    config: Annotated[str, about("the blocked config")]
    digest: Annotated[str, about("its digest")]
    since: Annotated[str, about("RFC 3339")]
    reason: Annotated[str, about("the reason that blocks it")]
    message: Annotated[str, about("what blocks it")]
    applied: Annotated[list[str], about("its entries that are applied")]
    waits: Annotated[list[Blocked], about("its entries that wait")]


class FailedUnit(Keys):
    name: Annotated[str, about("the unit")]
    at: Annotated[str, about("RFC 3339; the journal until then explains the failure")]


class Status(Keys):
    schema: Annotated[Literal["nodeagent/status/v1"], about("the schema of this object")]
    phase: Annotated[Phase, about("what the agent does now")]
    reason: Annotated[str, about("why it waits or is degraded; empty if neither")]
    message: Annotated[str, about("the reason in words, with names; empty without a reason")]
    documentation: Annotated[str, about("address of the page about the reason; empty without a reason")]
    since: Annotated[str, about("when the phase began, RFC 3339")]
    current: Annotated[str, about("name of the config that was applied and verified last; empty before the first")]
    desired: Annotated[str, about("name of the config that this host should have")]
    current_digest: Annotated[str, about("SHA-256 of the text of the current config; empty until the store was read")]
    desired_digest: Annotated[str, about("SHA-256 of the text of the desired config")]
    target: Annotated[str, about("name of the config of the update under way; empty without one")]
    boot_id: Annotated[str, about("boot id of the kernel")]
    soft_reboots: Annotated[int, about("soft reboots since the start of the kernel")]
    update_id: Annotated[str, about("id of the update under way, or of the last one; empty before the first")]
    reboot: Annotated[RebootKind | None, about("the kind of the reboot that the update requests; null otherwise")]
    step: Annotated[Step | None, about("the step of the update; null without one")]
    deployments: Annotated[list[Deployment], about("deployments of the OS; empty on a host without them")]
    os_changes: Annotated[OsChanges | None, about("what the staged OS changes; null without one")]
    lease: Annotated[Lease | None, about("the right to disrupt this host; null if it is free")]
    partial: Annotated[
        Partial | None, about("a blocked config of which the parts without disruption are applied; null without one")
    ]
    failed_unit: Annotated[FailedUnit | None, about("the unit that the reason is about; null without one")]
    problems: Annotated[list[Problem], about("what an admin must correct and does not stop the agent")]
    daemon: Annotated[Literal["running", "stopped"], about("stopped: the answer is from the store")]
