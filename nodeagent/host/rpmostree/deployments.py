"""The daemon's deployment dictionaries as ``Deployment``: the only place that knows their keys.

Absent keys mean something. A container has no ``origin``, an ostree refspec no ``container-image-reference``; without
layered packages there is no ``base-checksum``. ``finalization-locked`` is not read at all: since rpm-ostree 2024.6 a
locked deployment does not have it either, because libostree keeps the lock elsewhere (``staged`` reads it there).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodeagent.core.deployment import Deployment
from nodeagent.core.kargs import split
from nodeagent.errors import Terminal

__all__ = ["first_of_booted", "read_all"]


def read_all(
    raw: Sequence[Mapping[str, Any]], *, booted_options: str, first_options: str, locked: Mapping[str, bool]
) -> tuple[Deployment, ...]:
    """``locked`` by id, of the staged one if that could be known. Raises ``Terminal`` (``UnexpectedReply``)."""
    deployments = [_one(values) for values in raw]
    first = first_of_booted(deployments)
    return tuple(
        replace(
            deployment,
            # One that is both first and booted has one set of arguments.
            kernel_arguments=tuple(
                split(booted_options if deployment.booted else first_options if deployment is first else "")
            ),
            locked=locked.get(deployment.id) if deployment.staged else None,
        )
        for deployment in deployments
    )


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
