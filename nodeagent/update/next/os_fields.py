# SPDX-License-Identifier: Apache-2.0
"""The OS fields of a config where no deployments serve them: refused in the first config, and never taken for compared.

A later config is compared with the current one, whose fields this host had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nodeagent.core.config.image import is_pinned
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.effective import asks_of_os, fields_of_os
from nodeagent.errors import Problem, Unreconcilable
from nodeagent.reasons import Reason
from nodeagent.update.run import Ports
from nodeagent.update.stages.compare import os_mismatches

NO_OS = "this host has no deployments of an operating system: it is not booted from an image"


async def first_basis(ports: Ports, new: MachineConfig) -> MachineConfig:
    """Return what a host has of its first config before that is applied: nothing that is managed.

    The fields of the OS are those of ``new``, for the comparison with the booted deployment. Raises ``Unreconcilable``
    (``NoDeployments``, ...) if there is none to compare.
    """
    if refusal := await _unserved(ports, new):
        refusal.problems = tuple(Problem(f"spec.{name}", "is set") for name in fields_of_os(new))
        raise refusal
    return replace(new, files={}, units={}, users={}, fips=new.fips and not await _lacks_fips(ports, new))


async def os_drift(ports: Ports, config: MachineConfig, *, needed: bool = True) -> dict[str, str]:
    """Return how the host differs from the OS fields of ``config``, by entry. A field that cannot be compared is among
    them.

    Without ``needed``, deployments that cannot be read are no difference.
    """
    differences: dict[str, str] = {}
    if refusal := await _unserved(ports, config):
        differences = {f"{name}:{name}": f"was not compared: {refusal.message}" for name in fields_of_os(config)}
    else:
        differences |= await os_mismatches(ports, config, needed=needed)
    if await _lacks_fips(ports, config):
        differences["fips:fips"] = "is off"
    return differences


def not_compared(config: MachineConfig) -> Mapping[str, str]:
    """Return the fields whose value no host can be compared with, by entry, and why."""
    if not config.os_image_url or is_pinned(config.os_image_url):
        return {}
    return {"osImageURL:osImageURL": "names no digest, so the booted image cannot be compared with it"}


async def _lacks_fips(ports: Ports, config: MachineConfig) -> bool:
    # A config that does not require FIPS mode is one for hosts of either kind.
    return config.fips and ports.system is not None and not await ports.system.fips()


async def _unserved(ports: Ports, config: MachineConfig) -> Unreconcilable | None:
    """Return why this host has no deployment for the OS fields of ``config``, None if it has one or there are none."""
    if not asks_of_os(config):
        return None
    if ports.os is None:
        return Unreconcilable(NO_OS, reason=Reason.NO_DEPLOYMENTS)
    try:
        await ports.os.booted()
    except Unreconcilable as error:
        return error
    return None
