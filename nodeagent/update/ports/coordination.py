# SPDX-License-Identifier: Apache-2.0
"""Ports to the actors that coordinate disruptions: lease, node, slots, other actors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Holder:
    """The lease holder. Times are RFC 3339; ``expires`` is "" if the lease does not expire."""

    name: str
    operation: str
    reason: str
    since: str
    # A local lease has an end only if a maintenance gives it one.
    expires: str = ""


class Lease(Protocol):
    """The exclusive right to disrupt this node. Re-entrant for the same holder and operation."""

    backend: str

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        """Acquire the lease. Raises ``Refused`` (``LeaseHeld``) that names the holder if another operation holds it."""
        ...

    # ``offline`` is for a host past its point of no return: a half-updated host is worse than one update without an
    # answer of the cluster.
    async def check(self, operation: str, *, need: float = 0.0, offline: bool = False) -> None:
        """Check the lease before a step that cannot be undone, which takes at most ``need`` seconds.

        Raises ``Refused`` (``LeaseLost``), in a cluster also ``LeaseGivenBack`` (the former holder deleted the lease),
        ``LeaseExpired`` and the errors of an unreachable API server. With ``offline``, the remaining time suffices
        without an answer.
        """
        ...

    # No client renews the lease while the host is down, and the firmware of a server alone may take ten minutes.
    async def before_reboot(self, operation: str, cover: float) -> None:
        """Extend the lease to ``cover`` seconds from now, also while the host is down. Raises like ``check``."""
        ...

    # While the host is off for a maintenance, no client can renew the lease.
    async def extend(self, operation: str, seconds: float | None) -> None:
        """Extend the lease of this operation, also while the host is off; None means until it is released.

        Raises the errors of ``check``.
        """
        ...

    async def release(self, operation: str) -> None:
        """Release the lease. Does nothing if another operation holds it."""
        ...

    async def holder(self) -> Holder | None: ...


class NodeDrainer(Protocol):
    """Drains the node. A host without a cluster has no such port."""

    async def drain(self, operation: str, deadline: float) -> None: ...

    async def uncordon(self, operation: str) -> None:
        """Uncordon the node if this operation cordoned it."""
        ...

    # A machine-config-controller counts a cordoned node as unavailable, and gives it no other config.
    async def advice(self) -> str:
        """Return what an admin must do before a cordoned node can get another config, or "". Raises no errors."""
        ...


class NodeReadiness(Protocol):
    """The state of this node in the cluster. A host without a cluster has no such port."""

    async def unready(
        self, since: str = "", outdated: Mapping[str, str] | None = None, kept_back: Mapping[str, Decimal] | None = None
    ) -> str:
        """Return why pods cannot run on the node, or "". A report of the kubelet from before ``since`` (RFC 3339, by
        the clock of this host) does not count, nor one with a capacity of ``outdated``, nor one that does not keep the
        amounts of ``kept_back`` back from pods.

        Raises ``Refused`` (``NodeUnknown``) and the errors of an unreachable API server.
        """
        ...


class Slots(Protocol):
    """The slots of a pool. Re-entrant. A slot does not expire: a host that failed during an update keeps it."""

    # Thousands of hosts may wait, and each asks once a minute.
    async def look(self) -> None:
        """Raise ``OutOfTurn`` if no slot may be taken now. Takes nothing, and asks for as little as possible."""
        ...

    async def acquire(self, holder: str, operation: str, reason: str) -> object:
        """Acquire a slot. Raises ``OutOfTurn`` if none may be taken; this host has none then."""
        ...

    async def check(self, operation: str) -> None:
        """Raise ``Refused`` (``SlotLost``) if the slot was freed."""
        ...

    async def release(self, operation: str) -> None:
        """Release the slot of this operation, if it has one."""
        ...


class Gates(Protocol):
    """Other actors on this node that take no lease."""

    async def check(self) -> None:
        """Raise ``Refused`` that names the actor and its work."""
        ...

    # Machine controllers and autoscalers take no lease. A hook of the Machine and annotations of the Node hold them.
    async def hold_machine(self) -> None:
        """Protect the machine of this node from deletion until ``free_machine``. Raises ``Refused``."""
        ...

    async def free_machine(self) -> None: ...


class Backend(Protocol):
    """What coordinates the disruptions of this host with others, in place of the lease of the host alone.

    What is None does not exist there.
    """

    @property
    def lease(self) -> Lease: ...

    @property
    def gates(self) -> Gates | None: ...

    @property
    def node(self) -> NodeDrainer | None: ...

    @property
    def readiness(self) -> NodeReadiness | None: ...


class StopGuard(Protocol):
    """What must be true before this node stops. ``update.guard.Guard`` has it for features."""

    async def permit_begin(self, work: str, options: Mapping[str, str]) -> None:
        """Raise ``Refused`` if an update or a maintenance that stops the pods of this node must not begin now.

        ``work`` names it, and is the same after a restart. ``options`` are what its operator requested, by name. It is
        called before anything is taken for the work, and again when all is, but not once the work has begun. It must
        take no longer than some seconds.
        """
        ...

    async def permit_stop(self) -> None:
        """Raise ``Refused`` if the node must not be drained or stopped now, whether by an update or by a maintenance.

        It is called several times until the node stops, and must take no longer than a few seconds.
        """
        ...

    async def before_stop(self) -> None:
        """Check once more, and hand over what others need of the node, right before it stops. Raises ``Refused``."""
        ...
