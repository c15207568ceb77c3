# SPDX-License-Identifier: Apache-2.0
"""What a feature may add to the course of an update."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodeagent.core.config.machineconfig import MachineConfig
    from nodeagent.core.plan.deployment import OsTarget
    from nodeagent.errors import Cause
    from nodeagent.update.history.lasting import Hold, RequestedReboot
    from nodeagent.update.ports.system import StagingUnit
    from nodeagent.update.run import Progress, Run, Update
    from nodeagent.update.stages.offer import Offer
    from nodeagent.update.stages.os_deployments import HostDeployments
    from nodeagent.update.stages.reboot_choice import RebootChoice


class RebootRequests:
    """The requests of the base: there are none. A feature may have others (``Guard.reboot_requests``)."""

    def pending(self) -> RequestedReboot | None:
        """Return the request that no boot has answered yet."""
        return None

    def waits(self, cause: Cause) -> None:
        """Take why the pending request cannot begin now."""

    async def drop(self, request: str, cause: str) -> None:
        """End the pending request, if it has this id: an operator cancelled it, or it failed. Durable when it returns.

        Raises what the store raises.
        """


class Guard:
    """The base of what a feature adds. A method that it does not override adds nothing.

    Guards are called in the order of the list of features.
    """

    # How the kind of a reboot is chosen. At most one feature chooses it.
    reboots: RebootChoice | None = None
    # What of a blocked config is applied. At most one feature offers it.
    offer: Offer | None = None
    # Which reboots are requested without a change of the config. At most one feature takes requests.
    reboot_requests: RebootRequests | None = None
    # The sections of a config that a setting can accept, and its key, for a hint: see ``accepts``.
    acceptable: Mapping[str, str] = MappingProxyType({})

    def accepts(self) -> Collection[str]:
        """Return the sections of a config that may change although no running host can take them, by their names in
        ``MachineConfig.unapplied`` without what is in brackets. They are not applied, and the plan says so."""
        return ()

    async def as_installed(self, old: MachineConfig, new: MachineConfig) -> Collection[str]:  # noqa: ARG002
        """Return the sections, with what is in brackets, that an update changes to what this host has already. They may
        change, and nothing is left out."""
        return ()

    def fetches(self) -> bool:
        """Return whether ``fetch`` brings what links of a config lead to (``core.config.fetched``)."""
        return False

    async def fetch(self, run: Run) -> None:
        """Bring what the new config names and this host does not have, before the update waits for its turn. It may
        take minutes, and ends as soon as another config is desired.

        Raises ``Unreachable`` and ``Refused``: the update waits. With a reason of the kind ``REJECTED`` it ends.
        """

    async def not_compared(self, config: MachineConfig) -> Mapping[str, str]:  # noqa: ARG002
        """Return what of the current config is not compared with the host, and why. It raises no error."""
        return {}

    async def planned(self, update: Update, *, stops_node: bool) -> Sequence[str]:  # noqa: ARG002 - for features
        """Return notes for a plan: what the update will wait for, and what will run. ``stops_node``: it drains or stops
        the node."""
        return ()

    async def check_target(
        self,
        update: Update,  # noqa: ARG002 - for features
        os: HostDeployments,  # noqa: ARG002
        target: OsTarget,  # noqa: ARG002
        *,
        staged: bool,  # noqa: ARG002
    ) -> Sequence[str]:
        """Check whether the OS may become ``target``, and return notes for a plan. It is called before the staging, and
        again after it (``staged``), when more is known about the new OS.

        Raises ``Refused`` and ``Unreachable``: the config is not applied now.
        """
        return ()

    async def check_staged(self, run: Run) -> None:
        """Check the staged OS, before the update waits for its turn: a host that waits for hours must not be refused
        after them.

        Raises ``Refused``, with a reason of the kind ``REJECTED`` if a repetition has the same result.
        """

    async def staged_plan(self, update: Update, os: HostDeployments) -> Mapping[str, Any]:  # noqa: ARG002
        """Return keys of a plan about the OS that is staged for it. It raises no error."""
        return {}

    async def before_disruption(self, run: Run) -> None:
        """Prepare the host under the lease, right before the node is drained or the first file is written. It may take
        minutes.

        Raises as ``check_staged``.
        """

    async def os_plan(self, update: Update) -> Mapping[str, Any]:  # noqa: ARG002
        """Return keys of a plan that changes the OS. It raises no error."""
        return {}

    async def files_plan(self, update: Update) -> Mapping[str, Any]:  # noqa: ARG002
        """Return keys of a plan about the files that it writes. It raises no error."""
        return {}

    async def before_new_os(self, run: Run) -> None:
        """Prepare the boot loader for the first boot of the staged OS, right before that is unlocked for a reboot. It
        raises no error. A power cut may follow at any point, here and in ``before_discard`` and ``end_new_os``."""

    async def before_discard(self) -> None:
        """Prepare the boot loader for the removal of a deployment that boots next.

        Raises ``Terminal`` and ``ServiceUnavailable``.
        """

    async def end_new_os(self) -> None:
        """End what ``before_new_os`` began, if it did: the new OS is verified, or does not boot, or the boot order is
        about to change.

        Raises ``Terminal`` and ``ServiceUnavailable``.
        """

    async def why_other_boot(self, run: Run, order: Sequence[str], staged: str, booted: str) -> str:  # noqa: ARG002
        """Return why the host booted ``booted``, and not the new OS ``staged``; "" if that is not known. Both are ids,
        and ``order`` has those of all finalized deployments in boot order."""
        return ""

    async def verify_boot(self, run: Run, progress: Progress) -> None:
        """Wait for what checks each boot, after a reboot of the update and before the node must be ready.

        Raises as ``verify``.
        """

    async def at_rest(self, os: HostDeployments) -> str:  # noqa: ARG002
        """End what an update left that is over, and return a message about it. It is called between two updates.

        Raises as ``end_new_os``, and as ``os.list``.
        """
        return ""

    async def permit_begin(self, work: str, options: Mapping[str, str]) -> None:
        """Check whether ``work`` that stops the pods of this node may begin, an update or a maintenance. See
        ``StopGuard``.

        Raises ``Refused``: it waits, and what an update has taken is given back.
        """

    async def permit_stop(self) -> None:
        """Check whether the node may be drained or stopped now, whether by an update or by a maintenance. It is called
        several times until the node stops, and must take no longer than a few seconds.

        Raises ``Refused``: the update or the maintenance waits.
        """

    async def before_stop(self) -> None:
        """Check once more, and hand over what others need of the node, right before it stops.

        A member of etcd that stops alone counts as well. Raises ``Refused``: the stop waits.
        """

    # It writes in a process of its own, which may outlive the one that asked for it.
    def around_staging(self, run: Run, unit: StagingUnit) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        """Return a context in which ``unit`` stages the OS. It raises no error of its own."""
        return nullcontext()

    async def may_request(self, hold: Hold | None, *, reverts: bool) -> None:
        """Check whether an operator may request an update now. ``hold`` is what the request says about it, and
        ``reverts`` whether a bad config is taken back.

        Raises ``Refused``: nothing of the request is kept.
        """

    async def check_request(self, run: Run) -> None:
        """Check what an operator requested about the start of the update (``Run.hold``), before anything is acquired.

        Raises ``Delayed``: nothing of the config is applied before.
        """

    async def may_begin(self, run: Run) -> None:
        """Check whether an update may begin now, before any other host or program is asked. It is asked again until it
        may. Safe parts are not asked for.

        Raises ``Refused``: the update waits.
        """

    async def permit(self, run: Run) -> None:
        """Check what must be true before the node is drained or stopped. It may take minutes. Other nodes can have the
        slot until it returns.

        Raises ``Refused`` and ``Unreachable``: the update waits.
        """

    async def permit_fallback(self, run: Run) -> None:
        """Check what must be true before the node is drained for a fallback reboot. The host is half-way.

        Raises ``Refused``: the update is reverted.
        """

    async def permit_reboot(self, run: Run) -> None:
        """Check what must be true before a reboot, also that of a revert. It is called before users are warned, and
        again after that.

        Raises ``Refused`` and ``Unreachable``: the update waits.
        """

    async def verify(self, run: Run, progress: Progress) -> None:
        """Check the host when the config took effect, or when a revert did. It may take minutes.

        Raises ``Refused``: the config is bad.
        """

    async def before_good_end(self, run: Run) -> None:
        """Wait for what decides whether a verified config stays, while everything can be taken back. It may take hours,
        if it calls ``Update.progressed`` every few minutes. After a restart it is called again.

        Raises ``Refused``: the config is taken back.
        """

    async def after_verification(self, run: Run) -> None:
        """Do what follows when the new config is verified. A failure is reported only.

        Raises ``ServiceUnavailable``.
        """
