# SPDX-License-Identifier: Apache-2.0
"""The deployments of the host: from the dictionaries of the daemon and the boot menu.

An absent key of the daemon's dictionary has a meaning. A deployment from a container has no ``origin``, one from an
ostree remote no ``container-image-reference``; without layered packages there is no ``base-checksum``.
``finalization-locked`` is not used: since rpm-ostree 2024.6 it is missing for locked deployments too, because libostree
keeps the lock elsewhere (``host.ostree.staged``). No dictionary has the kernel arguments; they come from the boot menu.

The boot menu entries are read from /boot. The daemon offers them too (``GetDeploymentBootConfig``), but it aborts if an
entry lacks an expected key: a kernel without an initramfs has no ``initrd``, and a deployment that was staged without
kernel arguments has no ``options``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import Retryable, Terminal
from nodeagent.host.ostree.boot_order import BootEntry
from nodeagent.host.ostree.staged import Lock
from nodeagent.reasons import Reason


def read_all(
    raw: Sequence[Mapping[str, Any]], *, entries: Mapping[str, BootEntry], staged: Lock | None
) -> tuple[Deployment, ...]:
    """Return all deployments in boot order.

    ``entries`` are by deployment id. A staged deployment has no entry before it is finalized; ``staged`` is its state.
    Raises ``Terminal`` (``UnexpectedReply``) and ``Retryable`` (``NoBootEntry``).
    """
    deployments = [_deployment(values) for values in raw]
    booted = next((d for d in deployments if d.booted), None)
    if booted is not None and booted.id not in entries:
        raise Retryable(f"/boot has no entry for {booted.id}, which is booted", reason=Reason.NO_BOOT_ENTRY)
    of_booted = entries[booted.id].kernel_arguments if booted is not None else ()

    def completed(deployment: Deployment) -> Deployment:
        if not deployment.staged:
            entry = entries.get(deployment.id)
            return replace(deployment, kernel_arguments=entry.kernel_arguments if entry else ())
        if staged is None or staged.id != deployment.id:
            return deployment
        arguments = of_booted if staged.kernel_arguments is None else staged.kernel_arguments
        return replace(deployment, kernel_arguments=arguments, locked=staged.locked)

    return tuple(map(completed, deployments))


def first_of_booted(deployments: Sequence[Deployment]) -> Deployment | None:
    """Return the deployment from which the daemon makes a new one: the first of the booted OS in boot order."""
    osname = next((d.osname for d in deployments if d.booted), None)
    return next((d for d in deployments if d.osname == osname), None)


def _deployment(values: Mapping[str, Any]) -> Deployment:
    try:
        checksum = str(values["checksum"])
        return Deployment(
            id=str(values["id"]),
            checksum=checksum,
            osname=str(values["osname"]),
            base=str(values.get("base-checksum", "")) or checksum,
            version=str(values.get("version", "")),
            image=str(values.get("container-image-reference", "")),
            digest=str(values.get("container-image-reference-digest", "")),
            origin=str(values.get("origin", "")),
            # The requested packages. A package that the image includes is requested, but not layered.
            packages=frozenset(map(str, values.get("requested-packages", ()))),
            removed=frozenset(map(str, values.get("requested-base-removals", ()))),
            booted=bool(values.get("booted", False)),
            staged=bool(values.get("staged", False)),
            pinned=bool(values.get("pinned", False)),
        )
    except (KeyError, TypeError) as error:
        message = f"unexpected deployment from rpm-ostree: {error}"
        raise Terminal(message, reason=Reason.UNEXPECTED_REPLY) from error
