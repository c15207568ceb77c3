# SPDX-License-Identifier: Apache-2.0
"""Build the adapters of this host, as the settings configure them.

This is the only module that knows all adapters, but for those of features. The client of the API server is not imported
where no cluster is configured.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from nodeagent import log
from nodeagent.agent.last_good_settings import FoundSettings, choose
from nodeagent.agent.report.journal import to_journal
from nodeagent.agent.report.report import Report
from nodeagent.core.config.machineconfig import ConfigSource, MachineConfig
from nodeagent.core.host_id import host_id
from nodeagent.core.plan.change import KeyChange
from nodeagent.core.plan.domain import Health
from nodeagent.core.plan.policy import Policy
from nodeagent.core.plan.sides import NO_CONFIG
from nodeagent.domains import health_of, kept_back, reload_proof_of
from nodeagent.door import BackendHost, Base, FleetSlots
from nodeagent.errors import AgentError, Terminal
from nodeagent.features import doors
from nodeagent.host import boot
from nodeagent.host.booted_system import HostBootedSystem
from nodeagent.host.clock import SystemClock
from nodeagent.host.config_file import desired_file
from nodeagent.host.dbus.client import Bus
from nodeagent.host.etcd.proof import MemberProof
from nodeagent.host.fs.files import HostFiles
from nodeagent.host.health import HostHealth
from nodeagent.host.lease import LocalLease
from nodeagent.host.logind import Logind
from nodeagent.host.static_pods.replacement import KubeletStaticPods
from nodeagent.host.static_pods.running import Crictl
from nodeagent.host.store.store import SqliteStore
from nodeagent.host.systemd import Systemd
from nodeagent.host.unit_files import HostUnitFiles
from nodeagent.host.users import HostUsers
from nodeagent.host.view import read_view
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.report.status_json import status_to_dict
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.schema import Settings
from nodeagent.update.next.preflight import Desired
from nodeagent.update.ports.coordination import Backend
from nodeagent.update.ports.events import DeploymentsServed
from nodeagent.update.ports.host import Clock
from nodeagent.update.ports.store import SERVED_BY, Notes
from nodeagent.update.ports.system import Deployments
from nodeagent.update.run import Ports, UpdatePolicy
from nodeagent.update.stages.coordination import Coordination
from nodeagent.update.stages.guard import Guard
from nodeagent.update.stages.os_deployments import HostDeployments

if TYPE_CHECKING:
    from nodeagent.kube.client import KubeClient

MACHINE_ID: Final = Path("/etc/machine-id")
T = TypeVar("T")
# The note with the feature that serves the deployments, from the first staging on.
# The keyspace before etcd gets another image: the old etcd refuses to start once the cluster has a newer version.
SNAPSHOT: Final = "etcd-before-change.db"


class Adapters:
    """The adapters of this host. Building them blocks: it imports modules and reads small files.

    ``only_plan``: what a plan does not need is not built, such as the connection to a cluster.
    Raises ``InvalidInput`` for settings that contradict each other, and ``Terminal`` (``NoMachineId``).
    """

    def __init__(
        self,
        settings: Settings,
        report: Report,
        store: SqliteStore,
        units: Systemd,
        power: Logind,
        os: HostDeployments | None,
        bus: Bus,
        static_pods: KubeletStaticPods,
        *,
        only_plan: bool = False,
    ) -> None:
        check_consistency(settings)
        clock = SystemClock()
        self.settings = settings
        self.desired_file = desired_file(settings.desired_config, settings.state_dir)
        self.report = report
        self.store = store
        self.static_pods = static_pods
        self.api = None if only_plan else connect(settings, clock)
        # The daemon sets these. A plan without a daemon has no loop.
        self.look_again: Callable[[], None] = _nothing
        self.requested: Callable[[ConfigSource], Awaitable[None]] = _ignored
        self.wake: Callable[[], None] = _nothing
        self.load: Callable[[str], Awaitable[Desired]]
        self.policy_between: Callable[[MachineConfig, MachineConfig], Awaitable[Policy]]
        alone = Coordination(LocalLease(store, clock))
        coordination, self.backend = (
            (alone, None) if only_plan else coordinate(settings, store, clock, self.api, report)
        )
        # Filled below: a feature needs the ports before it can give its guard.
        guards: list[Guard] = []
        coordination.guards = guards
        if os is not None:
            os.guards = guards
        self.ports = Ports(
            store=store,
            files=HostFiles(),
            units=units,
            users=HostUsers(),
            health=HostHealth(declared_health, reload_proof_of, kept_back_now, lambda: static_pods.etcd.trouble("")),
            power=power,
            coordination=coordination,
            os=os,
            node=coordination.node,
            clock=clock,
            reporter=report,
            unit_files=HostUnitFiles(),
            readiness=self.backend.readiness if self.backend is not None else None,
            static_pods=static_pods,
            system=HostBootedSystem(),
            guards=guards,
        )
        base = Base(
            settings=settings,
            store=store,
            clock=clock,
            reporter=report,
            units=units,
            static_pods=static_pods,
            bus=bus,
            coordination=coordination,
            ports=self.ports,
            policy=lambda: self.update_policy,
            api=self.api,
            backend=self.backend,
            desired_file=self.desired_file,
            load=lambda digest: self.load(digest),
            policy_between=lambda old, new: self.policy_between(old, new),
            wake=lambda: self.wake(),
            look_again=lambda: self.look_again(),
            requested=lambda source: self.requested(source),
            shown=lambda: report.status,
            status=lambda: json.dumps(status_to_dict(report.status, daemon="running")),
            host_id=instance,
        )
        self.features = [door.open(base) for door in doors().values() if door.open is not None]
        self.desired = next((feature.desired for feature in self.features if feature.desired is not None), None)
        # Features get the ports and the coordination when they are opened.
        guards += [feature.guard for feature in self.features if feature.guard is not None]

    @property
    def update_policy(self) -> UpdatePolicy:
        settings = self.settings
        return UpdatePolicy(
            action_timeout=settings.actions.timeout,
            settle=settings.actions.settle,
            verify_timeout=settings.verify.timeout,
            inhibitor_wait=settings.reboot.inhibitor_wait,
            inhibitor_override=settings.reboot.inhibitor_override,
            warn_users=settings.reboot.warn_users,
            may_reboot=settings.reboot.allow,
            revert=settings.on_failure == "revert",
            drain_timeout=settings.drain.timeout,
            strict_units=settings.strict_units,
            drain_or_reboot=settings.drain.on_deadline == "reboot",
        )

    def use(self, settings: Settings) -> None:
        """Apply settings that were read again. The caller has compared those that require a restart."""
        # Nothing is awaited: no task sees half of the new settings.
        for feature in self.features:
            feature.use(settings)
        self.settings = settings


def _nothing() -> None:
    pass


async def _ignored(_source: ConfigSource) -> None:
    pass


async def declared_health(unit: str) -> Sequence[Health]:
    """Return the checks of ``unit`` for the files that the host has now, whichever config they come from."""
    return health_of(unit, await read_view(NO_CONFIG, NO_CONFIG))


async def kept_back_now(keys: Sequence[KeyChange]) -> Mapping[str, Decimal]:
    """Return what the kubelet keeps back from pods with the files that the host has now, if ``keys`` change that."""
    return kept_back(keys, await read_view(NO_CONFIG, NO_CONFIG))


async def open_adapters(
    found_settings: FoundSettings, bus: Bus, stack: AsyncExitStack, *, only_plan: bool = False
) -> Adapters:
    """Open the store and build the adapters; ``stack`` closes them. Raises ``AgentError`` if the agent cannot start.

    ``only_plan``: for a plan without the daemon, on a copy of the store. Nothing is recovered or removed.
    """
    report = Report(Status())
    state_dir = Path(found_settings.settings.state_dir)
    if not only_plan:
        report.add(to_journal)
        for door in doors().values():
            if door.recover is not None:
                await door.recover(bus)
    # A daemon that starts while a plan is made must find its store unlocked, and as its predecessor left it.
    store = SqliteStore(state_dir / "state.db", copy=only_plan)
    await store.open()
    stack.push_async_callback(store.close)
    static_pods = _static_pods(store, state_dir)
    if not only_plan:
        await _recover(static_pods, report)
    settings = await choose(found_settings, store, report)
    if not only_plan:
        # The last valid settings may have another level than the readable part of invalid ones.
        log.setup(settings.log.level)
    units, power = Systemd(bus), Logind(bus, await boot.identify(bus))
    chosen = await store.note(SERVED_BY)
    served = await deployments_of(units, settings, chosen)
    os = None
    if served is not None:
        by, port = served
        if chosen not in ("", by) and not only_plan:
            await keep_choice(store, by)
            report.emit(DeploymentsServed(_title(by), _title(chosen)))
        os = HostDeployments(port, report, begins=partial(keep_choice, store, by))
    made = partial(Adapters, settings, report, store, units, power, os, bus, static_pods, only_plan=only_plan)
    adapters = await asyncio.to_thread(made)
    if adapters.api is not None:
        stack.push_async_callback(adapters.api.close)
    return adapters


async def deployments_of(units: Systemd, settings: Settings, chosen: str = "") -> tuple[str, Deployments] | None:
    """Return the feature that serves the deployments of this host, and what does it: that of the first that has one.

    ``chosen`` is the feature that has staged an OS here before, "" for none. The others are asked where it cannot any
    more: this boot may be of an image without its programs.
    """
    kept = {name: door for name, door in doors().items() if name == chosen}
    for asked in (kept, doors()):
        for name, door in asked.items():
            if door.deployments is None:
                continue
            if (port := await door.deployments(units, settings, asked is kept)) is not None:
                return name, port
    return None


async def keep_choice(notes: Notes, name: str) -> None:
    """Record which feature stages here. Another one would not continue what this one has begun."""
    # Each staging asks, and a write would be a sync of the disk.
    if await notes.note(SERVED_BY) != name:
        await notes.keep_note(SERVED_BY, name)


def _title(name: str) -> str:
    # Without its folder, a feature has its name only.
    return doors()[name].title if name in doors() else name


def _static_pods(store: SqliteStore, state_dir: Path) -> KubeletStaticPods:
    return KubeletStaticPods(HostFiles(), store, SystemClock(), Crictl(), MemberProof(state_dir / SNAPSHOT))


async def _recover(pods: KubeletStaticPods, report: Report) -> None:
    """Put back a manifest that a killed agent took away, before anything else can fail: its pod does not run."""
    try:
        if path := await pods.recover():
            log.get(__name__).warning(f"put back {path}, which was taken away when the agent ended")
    except AgentError as error:
        report.problem("static-pods", error)


def connect(settings: Settings, clock: Clock) -> KubeClient | None:
    """Return the client of the API server, None if no cluster is configured. It sends no request yet."""
    if not settings.cluster.configured:
        return None
    from nodeagent.kube.client import KubeClient
    from nodeagent.kube.credentials import ClusterAccess

    about = settings.cluster
    access = ClusterAccess(about.kubeconfig, private="/run/nodeagent", service_account=Path(about.service_account))
    return KubeClient(access, clock)


def coordinate(
    settings: Settings, store: SqliteStore, clock: Clock, api: KubeClient | None, report: Report
) -> tuple[Coordination, Backend | None]:
    """Return the coordination of this host, and its back end; None for a host alone."""
    host = BackendHost(
        settings=settings,
        clock=clock,
        host_id=instance,
        api=api,
        store=store,
        reporter=report,
        shown=lambda: report.status,
    )
    backend = _first(door.backend(host) for door in doors().values() if door.backend is not None)
    slots = _first(door.slots(host) for door in doors().values() if door.slots is not None) or FleetSlots()
    coordination = Coordination(
        # The lease in the store counts on this host only. Across hosts, without a back end, slots are the only limit.
        backend.lease if backend is not None else LocalLease(store, clock),
        slot=slots.disrupt,
        staging_slot=slots.stage,
        gates=backend.gates if backend is not None else None,
        node=backend.node if backend is not None else None,
        report=report.lease,
    )
    return coordination, backend


def _first(candidates: Iterable[T | None]) -> T | None:
    return next((candidate for candidate in candidates if candidate is not None), None)


def instance() -> str:
    """Return an id of this host that does not reveal its machine id: everyone may read a lease."""
    try:
        return host_id(MACHINE_ID.read_text().strip())
    except (OSError, ValueError) as error:
        raise Terminal(f"{MACHINE_ID} has no machine id: {error}", reason=Reason.NO_MACHINE_ID) from error
