# SPDX-License-Identifier: Apache-2.0
"""The door of a feature: what it declares to the base, and what it does in the running daemon.

The base knows no feature. It has places that features fill: commands, settings, reasons, guards of an update.
``nodeagent.features`` lists the features.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodeagent import installed
from nodeagent.core.config.machineconfig import ConfigSource, MachineConfig
from nodeagent.core.plan.policy import Policy
from nodeagent.core.self_check import OsService, SelfCheck
from nodeagent.errors import InvalidInput
from nodeagent.host.dbus.client import Bus
from nodeagent.kinds import ReasonEnum
from nodeagent.reasons import Reason
from nodeagent.report.event_view import EventView
from nodeagent.report.part_view import PartView
from nodeagent.report.status import Status
from nodeagent.settings.part import Part
from nodeagent.settings.schema import Settings
from nodeagent.update.ports.coordination import Backend, Slots
from nodeagent.update.ports.events import Event
from nodeagent.update.ports.host import Clock, Reporter, Units
from nodeagent.update.ports.store import Store
from nodeagent.update.ports.system import Deployments
from nodeagent.update.run import Ports, UpdatePolicy
from nodeagent.update.stages.coordination import Coordination
from nodeagent.update.stages.guard import Guard

if TYPE_CHECKING:
    from nodeagent.host.static_pods.replacement import KubeletStaticPods
    from nodeagent.kube.client import KubeClient
    from nodeagent.update.next.desired import DesiredSource
    from nodeagent.update.next.preflight import Desired


@dataclass(frozen=True, slots=True)
class Base:
    """What the base gives to a feature when the daemon starts.

    ``ports`` has the guards of all features only when all are open. ``policy`` returns the present one. ``api`` is the
    client of the API server; None for a host without a cluster, and for a plan without the daemon. ``backend`` is what
    ``Door.backend`` of a feature returned. ``desired_file`` is the file of the desired config, where no feature
    says what is desired. ``load`` returns a stored config by its digest, as it was applied, and ``policy_between`` the
    policy of an update from one config to another. ``wake`` lets the loop take another turn, and ``look_again`` lets it
    check what is desired, because a wait may be over. ``requested`` records that an operator requests the desired
    config again. ``shown`` returns the present status. ``status`` returns it as JSON, for the answer to a request.
    ``host_id`` returns the id of this host, and raises ``Terminal`` for a host without one.
    """

    settings: Settings
    store: Store
    clock: Clock
    reporter: Reporter
    units: Units
    static_pods: KubeletStaticPods
    bus: Bus
    coordination: Coordination
    ports: Ports
    policy: Callable[[], UpdatePolicy]
    api: KubeClient | None
    backend: Backend | None
    desired_file: str
    load: Callable[[str], Awaitable[Desired]]
    policy_between: Callable[[MachineConfig, MachineConfig], Awaitable[Policy]]
    wake: Callable[[], None]
    look_again: Callable[[], None]
    requested: Callable[[ConfigSource], Awaitable[None]]
    shown: Callable[[], Status]
    status: Callable[[], str]
    host_id: Callable[[], str]


def _keep(_settings: Settings) -> None:
    pass


async def _no_config() -> ConfigSource | None:
    return None


def _no_sections(_settings: Settings) -> Collection[str]:
    return ()


def _nothing_else(_values: Sequence[Any]) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BusMethod:
    """A method that a feature adds to ``org.nodeagent.Agent1.Manager``. Its answer is one text, or nothing.

    ``action`` is that of polkit, below org.nodeagent.agent1; "" for a read, which every user may repeat without end.
    ``also`` returns the other actions that a call with these values needs. ``gives`` is "" without an answer.
    ``arguments`` are the names of the values of ``takes``, then that of the answer. ``actions`` and ``about`` are for
    the reference.
    """

    name: str
    takes: str = ""
    gives: str = "s"
    arguments: Sequence[str] = ()
    action: str = ""
    also: Callable[[Sequence[Any]], Sequence[str]] = _nothing_else
    actions: str = ""
    about: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a method: the name of the user, and the unique name of the connection on the bus. "" for a read."""

    name: str = ""
    connection: str = ""


# A call of a method: the caller, and the values. Returns the answer, "" without one.
Call = Callable[[Caller, Sequence[Any]], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What a feature does in the running daemon. It does nothing of what it leaves out.

    ``use`` is called with settings that were read again. It must not wait and must not fail.
    """

    use: Callable[[Settings], None] = _keep
    guard: Guard | None = None
    # Where the desired config comes from, if not from the file of this host. At most one feature has it.
    desired: DesiredSource | None = None
    # What gets each event with the status after it, ``DaemonStarted`` first. They must not wait.
    sinks: Sequence[Callable[[Event, Status], None]] = ()
    # What is awaited when there is nothing to do, and while no update can begin. Returns the seconds until it is to be
    # called again, None: when something changes.
    at_rest: Callable[[], Awaitable[float | None]] | None = None
    # What runs beside the loop, and its name. One that fails is started again.
    beside: Sequence[tuple[str, Callable[[], Awaitable[None]]]] = ()
    # What is read from the store before the status is served. An error is a problem of the status with this topic.
    at_start: Sequence[tuple[str, Callable[[], Awaitable[None]]]] = ()
    # Returns what another program applied to this host before. Called while there is no current config, until one
    # feature has it.
    earlier_config: Callable[[], Awaitable[ConfigSource | None]] = _no_config
    # By the name of the method.
    calls: Mapping[str, Call] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstallationCheck:
    """A check of the installation by any user, without the daemon. It only reads. One of a server is named ``reach.*``.

    ``read`` imports what it needs, and returns the result under ``name``. An ``AgentError`` is a failed check.
    """

    name: str
    read: Callable[[Settings], Awaitable[SelfCheck]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHost:
    """This host among others, for what limits how many of them do the same at once.

    ``host_id`` returns the id of this host. ``api`` is the client of the API server; None for a host without a cluster.
    """

    settings: Settings
    clock: Clock
    host_id: Callable[[], str]
    api: KubeClient | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendHost(FleetHost):
    """This host for a back end of coordination. ``shown`` returns the present status."""

    store: Store
    reporter: Reporter
    shown: Callable[[], Status]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSlots:
    """How many hosts are disrupted at once, and how many pull an image at once. None: any number."""

    disrupt: Slots | None = None
    stage: Slots | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """``title`` is the heading in the references. ``page`` is below docs/.

    ``open`` builds the feature when the daemon starts, and imports what it needs. It may block.
    """

    title: str
    page: str
    settings: tuple[type[Part], ...] = ()
    reasons: type[ReasonEnum] | None = None
    events: tuple[EventView[Any], ...] = ()
    status: tuple[PartView[Any], ...] = ()
    methods: tuple[BusMethod, ...] = ()
    self_checks: tuple[InstallationCheck, ...] = ()
    # Returns ``Guard.accepts`` by these settings, for a plan without a host, and ``Guard.acceptable``.
    accepts: Callable[[Settings], Collection[str]] = _no_sections
    acceptable: Mapping[str, str] = field(default_factory=dict)
    # Checks its options of the method Apply, by name. Raises ``InvalidInput``.
    check_request: Callable[[Mapping[str, str]], None] | None = None
    # Takes back what a killed agent left. Called first at the start, before anything that may fail. It raises no error.
    recover: Callable[[Bus], Awaitable[None]] | None = None
    # Returns what coordinates disruptions with others, in place of the lease of this host alone; None if it is not set.
    # It sends no request yet. At most one feature is set. It is not called for a plan without the daemon.
    backend: Callable[[BackendHost], Backend | None] | None = None
    # Returns what limits how many hosts are disrupted at once; None if it is not set. At most one feature is set.
    slots: Callable[[FleetHost], FleetSlots | None] | None = None
    # Returns what serves the deployments of this host; None for a host of others. Asked in the order of the features
    # until one has it, once for each start: a feature that leaves hosts to another one comes first. It changes nothing.
    # Once that of a feature has staged an OS, that one is asked first, with True. It leaves this host to another one if
    # only that can serve it now, and refuses with the reason what it cannot do here.
    deployments: Callable[[Units, Settings, bool], Awaitable[Deployments | None]] | None = None
    # Returns whether it could serve a host that runs this tree, the directory of a deployment. Blocks.
    serves_tree: Callable[[Path], bool] | None = None
    # Returns the same as ``deployments`` for the check of an installation, by any user and without the daemon. Raises
    # ``AgentError``.
    os_service: Callable[[Bus, bool], Awaitable[OsService | None]] | None = None
    open: Callable[[Base], Feature] | None = None


def request_options(options: Mapping[str, Any], *, starts: bool = False) -> dict[str, str]:
    """Return those of a request that features add (``commands.Option``), as far as they are given. With ``starts``,
    only those about when it begins.

    Raises ``InvalidInput``.
    """
    added = [option for option in installed.options() if option.starts or not starts]
    given = {name: options[name] for option in added for name in option.names if options.get(name)}
    if wrong := [name for name, value in given.items() if not isinstance(value, str)]:
        raise InvalidInput(f"{wrong[0]} must be a text", reason=Reason.BAD_OPTION)
    for door in installed.doors():
        if door.check_request is not None:
            door.check_request(given)
    return given
