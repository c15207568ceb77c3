"""The daemon's deployment dictionaries as ``Deployment``: the only place that knows their keys.

Absent keys mean something. A container has no ``origin``, an ostree refspec no ``container-image-reference``; without
layered packages there is no ``base-checksum``. ``finalization-locked`` is not read at all: since rpm-ostree 2024.6 a
locked deployment does not have it either, because libostree keeps the lock elsewhere (``staged`` reads it there).
Kernel arguments are in no dictionary of the daemon (``boot_entries``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import Retryable, Terminal
from nodeagent.host.rpmostree.boot_entries import BootEntry
from nodeagent.host.rpmostree.staged import Lock

__all__ = ["first_of_booted", "read_all"]


def read_all(
    raw: Sequence[Mapping[str, Any]], *, entries: Mapping[str, BootEntry], staged: Lock | None
) -> tuple[Deployment, ...]:
    """``entries`` by the id of their deployment; a staged deployment has none before it is finalized, and ``staged``
    is what libostree noted of it. Raises ``Terminal`` (``UnexpectedReply``) and ``Retryable`` (``NoBootEntry``)."""
    deployments = [_one(values) for values in raw]
    booted = next((d for d in deployments if d.booted), None)
    if booted is not None and booted.id not in entries:
        raise Retryable(f"/boot has no entry for {booted.id}, which is booted", reason="NoBootEntry")
    of_booted = entries[booted.id].kernel_arguments if booted is not None else ()

    def one(deployment: Deployment) -> Deployment:
        if not deployment.staged:
            entry = entries.get(deployment.id)
            return replace(deployment, kernel_arguments=entry.kernel_arguments if entry else ())
        if staged is None or staged.id != deployment.id:
            return deployment
        arguments = of_booted if staged.kernel_arguments is None else staged.kernel_arguments
        return replace(deployment, kernel_arguments=arguments, locked=staged.locked)

    return tuple(map(one, deployments))


def first_of_booted(deployments: Sequence[Deployment]) -> Deployment | None:
    """The one that the daemon makes a new deployment from: the first in boot order that is of the booted OS."""
    osname = next((d.osname for d in deployments if d.booted), None)
    return next((d for d in deployments if d.osname == osname), None)


def _one(values: Mapping[str, Any]) -> Deployment:
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
            # What was asked for. One that the image brings by itself is not layered, and yet it is there.
            packages=frozenset(map(str, values.get("requested-packages", ()))),
            removed=frozenset(map(str, values.get("requested-base-removals", ()))),
            booted=bool(values.get("booted", False)),
            staged=bool(values.get("staged", False)),
            pinned=bool(values.get("pinned", False)),
        )
    except (KeyError, TypeError) as error:
        message = f"rpm-ostree told of a deployment that we do not understand: {error}"
        raise Terminal(message, reason="UnexpectedReply") from error
