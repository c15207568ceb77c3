# SPDX-License-Identifier: Apache-2.0
"""The daemon: connects the loop, the API and the reports, and runs them until it is stopped."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

from nodeagent import __version__, log
from nodeagent.agent import tidying
from nodeagent.agent.api import Api
from nodeagent.agent.compose import Adapters, open_adapters
from nodeagent.agent.holding import Held
from nodeagent.agent.last_good_settings import FoundSettings, keep, read_settings
from nodeagent.agent.loop import Loop
from nodeagent.agent.own_config import HostPolicy, OwnConfig
from nodeagent.agent.report.dbus import serve
from nodeagent.agent.report.journal import to_notify
from nodeagent.agent.report.metrics import Metrics
from nodeagent.agent.report.motd import MOTD, MotdFile
from nodeagent.agent.report.report import first_status
from nodeagent.agent.report.under_way import PATH as UNDER_WAY
from nodeagent.agent.report.under_way import UnderWayFile
from nodeagent.agent.staged_watch import FILES, StagedWatch
from nodeagent.agent.supervise import SoftRebootWatch, keep_running, run_until, stop_signals, watchdog
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.config.parse import parse_stored
from nodeagent.core.plan.policy import drop_in_directory, is_drop_in
from nodeagent.core.plan.steps import ActStep, ReloadUnit, describe
from nodeagent.errors import AgentError, InvalidInput, full_text
from nodeagent.host import config_file
from nodeagent.host.checkers import HostValidator
from nodeagent.host.dbus.client import Bus
from nodeagent.host.drop_in_names import unread_names
from nodeagent.host.eventloop import DaemonLoop
from nodeagent.host.notify import Notifier
from nodeagent.host.ostree.soft_reboot import PREPARED
from nodeagent.host.static_pods.validator import StaticPodValidator
from nodeagent.host.view import read_view
from nodeagent.reasons import Reason
from nodeagent.settings.consistency import fixed_change
from nodeagent.settings.schema import Settings
from nodeagent.update.next.desired import parse_desired
from nodeagent.update.next.preflight import Desired, Preflight, read_source
from nodeagent.update.ports.events import DaemonStarted, DaemonStopped
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.stages.failure import bug

NAMES_TOPIC = "drop-ins"


class Daemon:
    """The loop, and what runs beside it, for as long as the process lives. ``read`` reads the settings again."""

    def __init__(self, adapters: Adapters, read: Callable[[], FoundSettings]) -> None:
        self.adapters = adapters
        self.ports, self.report, self.store = adapters.ports, adapters.report, adapters.store
        self._read = read
        self.policy = HostPolicy(self.store, self.report, lambda: self.settings)
        self.metrics = Metrics(self.store, self.ports.clock, self.settings.metrics.file)
        source = adapters.desired
        self.desired_path = adapters.desired_file if source is None else ""
        self.loop = Loop(
            self.ports,
            adapters.update_policy,
            self._preflight(),
            desired=self._desired,
            load=self.load,
            adopted=self._adopted,
            random=random.random,
            renew=self._renew,
            complete=source.complete if source is not None else None,
            at_rest=self._at_rest,
        )
        adapters.look_again, adapters.requested = self.loop.look_again, self._requested
        adapters.load, adapters.policy_between, adapters.wake = self.load, self.policy, self.loop.wake
        # The process replaces it by the event of its signals. A plan without a daemon never waits for it.
        self.stop = asyncio.Event()
        self.api = Api(
            self.ports,
            self.loop,
            self.report,
            desired_path=self.desired_path,
            source=source,
            parse=parse_desired,
            load=self.load,
            valid=self._valid,
            desired=self._desired,
            read_again=self.reload,
            calls={name: call for feature in adapters.features for name, call in feature.calls.items()},
        )

    @property
    def settings(self) -> Settings:
        return self.adapters.settings

    def _preflight(self) -> Preflight:
        return Preflight(
            self.ports,
            self.adapters.update_policy,
            (HostValidator(), OwnConfig(self.settings), StaticPodValidator(self.adapters.static_pods.etcd, self.store)),
            self.policy,
            self.settings.on_drift,
            read_view,
        )

    async def reload(self) -> None:
        """Read the settings again. A step that has begun continues with the old ones.

        Raises ``InvalidInput`` and changes nothing if they are invalid.
        """
        reread = await asyncio.to_thread(self._read)
        if reread.error is not None:
            self.report.problem("settings", reread.error)
            raise reread.error
        settings = reread.settings
        if name := fixed_change(self.settings, settings):
            raise InvalidInput(f"{name} requires a restart", reason=Reason.RESTART_NEEDED)
        # The adapters come first: the policy of the loop is made from their settings.
        self.adapters.use(settings)
        await self.metrics.use(settings.metrics.file)
        log.setup(settings.log.level)
        self.loop.reload(self.adapters.update_policy, self._preflight())
        self.report.solved("settings", "the settings are valid again")
        await self.check_names()
        await self.policy.check()
        # Settings are kept last, because the next start must be able to use them.
        await keep(settings, self.store, self.report)

    async def check_names(self) -> None:
        """Report names in the drop-in trees of the admin that nothing reads."""
        if problems := await asyncio.to_thread(unread_names):
            first = f"{problems[0].path} {problems[0].message}" + (
                f" (and {len(problems) - 1} more)" if problems[1:] else ""
            )
            self.report.problem(NAMES_TOPIC, InvalidInput(first, reason=Reason.NAME_UNREAD, problems=problems))
        else:
            self.report.solved(NAMES_TOPIC, "all names in the drop-in directories are read")

    async def _renew(self, step: ActStep) -> None:
        """Reload or restart this agent for a plan, once the update is closed: a restart before that would be repeated.

        systemd starts the process again when it ends.
        """
        try:
            if isinstance(step, ReloadUnit):
                await self.reload()
                return
        except InvalidInput as error:
            if error.reason != Reason.RESTART_NEEDED:
                # The status has the problem.
                return
        log.get(__name__).info(f"stopping for a restart: {describe(step)}")
        self.stop.set()

    async def _at_rest(self) -> float | None:
        delays = [await feature.at_rest() for feature in self.adapters.features if feature.at_rest is not None]
        return min((delay for delay in delays if delay is not None), default=None)

    async def _requested(self, source: ConfigSource) -> None:
        async with self.loop.recorded(ApplyRequest(source.digest)):
            # The config is the desired one already.
            pass

    async def _desired(self) -> Desired | None:
        if self.adapters.desired is not None:
            source = await self.adapters.desired.read()
            return await asyncio.to_thread(read_source, source) if source is not None else None
        text = await config_file.read(self.desired_path)
        return await parse_desired(text) if text is not None else None

    async def _valid(self, digest: str) -> Desired:
        """Return a stored config to apply again. Raises ``InvalidInput`` if it is invalid for this version."""
        source = await self.store.get_config(digest)
        return await asyncio.to_thread(read_source, source)

    async def load(self, digest: str) -> Desired:
        """Return a stored config that was applied, without the parts that break a rule which is new in this version."""
        return await self._stored(await self.store.get_config(digest))

    async def _stored(self, source: ConfigSource) -> Desired:
        try:
            return await asyncio.to_thread(read_source, source)
        except InvalidInput as error:
            stored = await asyncio.to_thread(lambda: Desired(source, parse_stored(source.text)))
            words = (
                f"parts of the stored config {source.name} are invalid for this version and left out: {error.message}"
            )
            # Tasks load older configs as well, and some are still loading one when an update has replaced it.
            if self.report.status.current_digest in ("", source.digest):
                self.report.problem("config", InvalidInput(words, reason=Reason.STORED_CONFIG_INVALID))
            return stored

    async def _adopted(self) -> Desired | None:
        """Return the config that another program applied before the first start of this agent."""
        for feature in self.adapters.features:
            if (source := await feature.earlier_config()) is not None:
                return await self._stored(source)
        return None


async def run(
    settings: Settings,
    notifier: Notifier,
    *,
    error: InvalidInput | None = None,
    read: Callable[[], FoundSettings] = read_settings,
    motd: str = MOTD,
    under_way: str = UNDER_WAY,
) -> None:
    """Run until SIGTERM. With ``error``, ``settings`` are the readable part of invalid ones; ``read`` reads them again.

    An error that prevents a start is in the status, and the start is retried. Raises ``AgentError`` only if the status
    cannot be served: another daemon is running, or there is no bus.
    """
    settings_read = FoundSettings(settings, error)
    async with stop_signals() as stop, Bus() as bus:
        held = Held(bus, notifier, partial(watchdog, notifier), MotdFile(motd))
        try:
            while not stop.is_set():
                async with AsyncExitStack() as stack:
                    try:
                        daemon = await _build(settings_read, bus, stack, read)
                    except Exception as error:
                        # Whatever it is, it must not become a loop of restarts.
                        fault = (
                            error
                            if isinstance(error, AgentError)
                            else bug(held.report, error, "the start of the daemon")
                        )
                        # The daemon that holds the store serves the status already, and would be shadowed by this one.
                        if fault.reason == Reason.STORE_BUSY:
                            raise
                        await held.show(fault)
                    else:
                        await held.close()
                        await _live(daemon, bus, notifier, stop, MotdFile(motd), under_way)
                        return
                # The adapters are closed before the wait, so that a repaired store or bus is opened from the start.
                await held.wait(stop)
                settings_read = await asyncio.to_thread(read)
            notifier.stopping()
        finally:
            await held.close()


async def _build(
    settings_read: FoundSettings, bus: Bus, stack: AsyncExitStack, read: Callable[[], FoundSettings]
) -> Daemon:
    """Raises ``AgentError`` if the agent cannot start; ``stack`` closes what was opened."""
    adapters = await open_adapters(settings_read, bus, stack)
    report = adapters.report
    daemon = Daemon(adapters, read)
    # The status must be true before the bus serves it: a client takes the first answer as the state of the host.
    await first_status(daemon.ports, report, shared=adapters.backend is not None)
    await tidying.sweep(daemon.store, daemon.ports.files, daemon.load, daemon.adapters.desired_file, report)
    # Before an update can take what a feature holds.
    for topic, load in (work for feature in adapters.features for work in feature.at_start):
        try:
            await load()
        except AgentError as error:
            # What it holds, such as the lease of an operator, stays held.
            report.problem(topic, error)
    await daemon.policy.check()
    await daemon.check_names()
    # With an error, the settings in use are the kept ones.
    if settings_read.error is None:
        await keep(daemon.settings, daemon.store, report)
    return daemon


async def _live(daemon: Daemon, bus: Bus, notifier: Notifier, stop: asyncio.Event, motd: MotdFile, held: str) -> None:
    daemon.stop = stop
    under_way = UnderWayFile(daemon.ports.files, held)
    report = daemon.report
    # The sinks come before the bus is served, so that none misses an event that a first call causes.
    report.add(to_notify(notifier.status))
    report.add(daemon.metrics.sink)
    report.add(motd.sink)
    report.add(under_way.sink)
    for feature in daemon.adapters.features:
        for sink in feature.sinks:
            report.add(sink)
    async with serve(bus, report, lambda: daemon.api, daemon.api.reload):
        report.emit(DaemonStarted(__version__))
        # Only now, because units that are ordered after the agent may call it on the bus.
        notifier.ready()
        watched = [path for path in (daemon.desired_path, daemon.settings.policy) if path]
        watches = [config_file.watch(path, daemon.loop.look_again) for path in watched]
        if daemon.settings.policy:
            directory = drop_in_directory(daemon.settings.policy)
            watches.append(config_file.watch_directory(directory, is_drop_in, daemon.loop.look_again))
        # After the daemon is ready: its peers may start later.
        beside: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            # Some continue from the store, also after a restart: a bug in one of them would end each new process.
            ("metrics", daemon.metrics.run),
            ("the message of the day", motd.run),
            ("the file for a boot without an agent", under_way.run),
            *(work for feature in daemon.adapters.features for work in feature.beside),
        ]
        if daemon.ports.os is not None:
            beside.append(("the view of deployments", daemon.ports.os.report_staged))
            soft_reboots = SoftRebootWatch(daemon.ports.os, report)
            watches.append(config_file.watch(PREPARED, soft_reboots.changed))
            beside.append(("the watch for soft reboots", soft_reboots.run))
            staged = StagedWatch(daemon.ports, daemon.ports.os, report, lambda: daemon.loop.executor.update)
            watches += [config_file.watch_directory(path, wanted, staged.changed) for path, wanted in FILES]
            beside.append(("the watch of the staged deployment", staged.run))
        # A failure of one of these ends the daemon. The tasks beside them are started again.
        lives = [daemon.loop.run(), watchdog(notifier)]
        shown = [keep_running(name, work, random.random) for name, work in beside]
        await run_until(stop, *lives, *watches, *shown)
        notifier.stopping()
        # The loop has ended by now, so nothing overwrites the mark of an orderly shutdown.
        await daemon.loop.stopping()
        report.emit(DaemonStopped())


def main() -> int:
    """Run the process: read the settings, set up the log, and report the error that ends it."""
    notifier = Notifier()
    log.setup()
    try:
        settings_read = read_settings()
        log.setup(settings_read.settings.log.level)
        with asyncio.Runner(loop_factory=DaemonLoop) as runner:
            runner.run(run(settings_read.settings, notifier, error=settings_read.error))
    except AgentError as error:
        text = full_text(error)
        notifier.status(f"{error.reason}: {text}")
        log.get(__name__).error(f"stopping, {error.reason}: {text}", reason=error.reason)
        return error.exit_code
    finally:
        notifier.close()
        log.close()
    return 0
