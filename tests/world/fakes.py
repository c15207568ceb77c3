"""A host in memory: hand-written ports with a fuse that blows at the n-th call.

What is durable on a real host (disk, store) lives in ``World`` and survives a kill; everything else is built anew, as
a new process would.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from nodeagent.core.boot import identity
from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.image import ContainerImage, OstreeCommit
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.plan.deployment import Deployment, OsTarget, StageProgress, booted, staged, unmet
from nodeagent.core.update.apply_request import ApplyRequest
from nodeagent.core.update.events import Event
from nodeagent.core.update.ports import Confirm, HistoryEntry, Holder, Inhibitor, Snapshot, Swept, UnitState
from nodeagent.core.update.record import Record, record_from_dict, record_to_dict, salvaged
from nodeagent.core.update.survey import Survey
from nodeagent.errors import AgentError, Refused, ServiceUnavailable, Terminal


class Killed(BaseException):
    """kill -9. Not an Exception, so that no handler of ours can catch it, just as with the real one."""


@dataclass
class FakeUnit:
    load: str = "loaded"
    active: str = "active"
    type: str = "simple"
    file: str = "enabled"
    restarts: int = 0
    invocation: int = 1
    read: dict[str, FileTreeEntry] = field(default_factory=dict)  # the files as this run of it saw them
    fail_restarts: int = 0  # how many more restarts fail
    hang: bool = False
    dies_after: float | None = None  # seconds after a restart
    bad_until_boot: int = 0  # fails in every boot before this one
    died_at: float | None = None
    condition: str = ""  # a start condition that is not met
    triggered_by: tuple[str, ...] = ()
    exits: bool = False  # with status 0, as soon as it was started
    result: str = "success"
    brought: bool = False  # its file came with a config, and nothing is left of it without that


class Outage:
    """Decides which calls to services of the host get no answer. ``took_effect``: only the answer was lost."""

    def __init__(self, fault: Callable[[str], Awaitable[AgentError]], *, took_effect: bool = False) -> None:
        self.fault = fault
        self.took_effect = took_effect
        self.calls: list[str] = []

    def hits(self, service: str, call: str) -> bool:
        raise NotImplementedError

    async def around(self, service: str, call: str, work: Callable[[], Awaitable[Any]], **_options: Any) -> Any:
        self.calls.append(call)
        if not self.hits(service, call):
            return await work()
        if self.took_effect:
            await work()
        raise await self.fault(service)


class LocalService:
    """A port behind which is a service of this host, with the outage of the world around each call."""

    def __init__(self, port: Any, world: World, service: str) -> None:
        self._port = port
        self._world = world
        self._service = service

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if self._world.outage is None or not inspect.iscoroutinefunction(method):
            return method

        async def call(*arguments: Any, **options: Any) -> Any:
            described = " ".join([self._service, name, *(str(a) for a in arguments if isinstance(a, str))])
            outage = self._world.outage
            assert outage is not None
            return await outage.around(self._service, described, lambda: method(*arguments, **options), **options)

        return call


@dataclass
class Etc:
    """What belongs to one deployment and no other: its /etc, with the password file and the links of units in it."""

    files: dict[str, FileTreeEntry] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    enabled: dict[str, str] = field(default_factory=dict)


def of_deployment(path: str) -> bool:
    return path.startswith(("/etc/", "/usr/"))


@dataclass
class World:
    disk: dict[str, FileTreeEntry] = field(default_factory=dict)
    dirs: set[str] = field(default_factory=lambda: {"/", "/etc"})
    contested: dict[str, str] = field(default_factory=dict)  # directory to who else than root can write there
    path_faults: dict[str, AgentError] = field(default_factory=dict)  # what every access to a path ends with
    survey: Survey = field(default_factory=Survey)
    units: dict[str, FakeUnit] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=lambda: {"core": "!"})
    boot: int = 1
    grub_asks: bool = False  # GRUB has superusers, and old entries a list of users
    next_root: bool = False  # somebody prepared a soft reboot
    next_root_stays: bool = False  # and it cannot be cleared
    soft: int = 0  # reboots of the userspace alone, in this boot
    now: float = 0.0

    record: dict[str, object] = field(default_factory=lambda: record_to_dict(Record()))
    request: ApplyRequest | None = None
    configs: dict[str, ConfigSource] = field(default_factory=dict)
    current: str = ""
    previous: str = ""
    snapshots: dict[str, list[Snapshot]] = field(default_factory=dict)
    originals: dict[str, Snapshot] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    history: list[HistoryEntry] = field(default_factory=list)
    holder: Holder | None = None

    deployments: list[Deployment] = field(default_factory=list)  # boot order; empty: not an image-based host
    etcs: dict[str, Etc] = field(default_factory=dict)  # of the deployments that are not booted, by id
    shipped: dict[str, dict[str, FileTreeEntry]] = field(default_factory=dict)  # image digest to its own /etc
    serial: int = 0
    stage_seconds: float = 0.0
    stage_errors: list[AgentError] = field(default_factory=list)  # one for each of the next stagings
    guard_error: AgentError | None = None
    os_errors_after_boot: int = 0
    os_errors: int = 0  # so many questions about deployments are lost
    finalization_fails: str = ""
    finalize_failure: str = ""
    boot_menu: dict[int, str] = field(default_factory=dict)  # a person chooses this deployment at that boot
    tampers: dict[str, FileTreeEntry] = field(default_factory=dict)  # what somebody writes to the disk at each boot
    forget_staged: int = 0  # so many finalizations do not happen, and nobody knows why
    power_fails: int = 0  # so many reboots that we ask for end with a power cut instead
    wrong_kernel_arguments: bool = False
    staged_with_lease: list[str] = field(default_factory=list)  # who held the lease while something was staged
    credentials: list[bytes | None] = field(default_factory=list)

    desired: bytes | None = None
    full: bool = False
    outage: Outage | None = None  # of the services of this host
    bus_losses: int = 0
    bus_faults: int = 0  # so many questions about a unit are lost with the bus
    booting_until: float = 0.0  # on the clock of the loop: units are started until then
    unwell: str = ""  # what the health check of web.service says
    blockers: list[Inhibitor] = field(default_factory=list)
    logged_in: bool = False  # users who are warned of a shutdown
    warned: int = 0
    reboot_ignored: bool = False
    done: list[str] = field(default_factory=list)  # unit actions and reboots that really happened, with the boot
    events: list[Event] = field(default_factory=list)
    fuse: int = -1  # the port call at which we die; -1: never
    calls: int = 0
    killed_before: str = ""  # the phase that the record must not come to
    rebooting: asyncio.Event | None = None

    def tick(self) -> None:
        """Stands before and after every effect, so the fuse can blow on either side of it."""
        self.calls += 1
        if self.calls == self.fuse:
            raise Killed

    def soft_reboot(self) -> None:
        """By somebody else. /run stays, so a locked deployment stays staged; an unlocked one is finalized, and what
        runs is the same one as before."""
        found = staged(self.deployments)
        if found is not None and not found.locked:
            self._merge(found)
            rest = [d for d in self.deployments if d.booted]
            self.deployments = [replace(found, staged=False, locked=None), *rest]
        self.soft += 1
        self._start_units()

    def shut_down(self) -> None:
        """An orderly one: what is staged and unlocked is finalized, then the host boots."""
        found = staged(self.deployments)
        self.finalize_failure = ""
        if found is None or found.locked:
            pass
        elif self.forget_staged:
            self.forget_staged -= 1
        elif self.finalization_fails:
            self.finalize_failure, self.finalization_fails = self.finalization_fails, ""
        else:
            self._merge(found)
            self._drop_staged()
            rest = [d for d in self.deployments if d.booted]
            self.deployments = [replace(found, staged=False, locked=None), *rest]
        failure = self.finalize_failure
        self.power_cut()
        self.finalize_failure = failure

    def _merge(self, new: Deployment) -> None:
        """What is not as the old image ships it goes along; a file equal to the old default counts as unchanged."""
        old = booted(self.deployments)
        assert old is not None
        was, ships = self.shipped.get(old.digest, {}), self.shipped.get(new.digest, {})
        here = {path: node for path, node in self.disk.items() if path.startswith("/etc/")}
        merged = {path: node for path, node in here.items() if was.get(path) != node}
        merged |= {
            path: node for path, node in ships.items() if path not in merged and (path in here or path not in was)
        }
        usr = {f"/usr{path}": node for path, node in ships.items()}
        links = {name: unit.file for name, unit in self.units.items()}
        self.etcs[new.id] = Etc(merged | usr, dict(self.passwords), links)

    def _drop_staged(self) -> None:
        self.deployments = [d for d in self.deployments if not d.staged]

    def _boot_into(self, chosen: Deployment) -> None:
        old = booted(self.deployments)
        assert old is not None
        if chosen.id != old.id:
            mine = {path: node for path, node in self.disk.items() if of_deployment(path)}
            links = {name: unit.file for name, unit in self.units.items()}
            self.etcs[old.id] = Etc(mine, dict(self.passwords), links)
            etc = self.etcs.pop(chosen.id)
            for path in mine:
                del self.disk[path]
            self.disk.update(etc.files)
            self.passwords = dict(etc.passwords)
            for name, unit in self.units.items():
                unit.file = etc.enabled.get(name, "disabled")
        self.deployments = [replace(d, booted=d.id == chosen.id) for d in self.deployments]

    def power_cut(self) -> None:
        """A new boot: every service starts with what is on the disk. What was staged was in memory."""
        self.boot += 1
        self.soft = 0
        self.finalize_failure = ""
        if self.deployments:
            self._drop_staged()
            menu = self.boot_menu.get(self.boot, "")
            self._boot_into(next((d for d in self.deployments if d.id == menu), self.deployments[0]))
        self.disk.update(self.tampers)
        self.os_errors = self.os_errors_after_boot
        self._start_units()

    def _start_units(self) -> None:
        for unit in self.units.values():
            if unit.load == "loaded" and unit.file == "enabled":
                unit.read = dict(self.disk)
                unit.invocation += 1
                unit.restarts = 0
                unit.died_at = None
                unit.active = "failed" if self.boot < unit.bad_until_boot else "active"
                if unit.condition:
                    unit.active = "inactive"
            elif unit.file != "enabled":
                unit.active = "inactive"


class FakeClock:
    def __init__(self, world: World) -> None:
        self.world = world

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> str:
        return f"2026-01-01T00:00:{self.world.boot:02d}.000Z"


class FakeFiles:
    def __init__(self, world: World) -> None:
        self.world = world

    async def capture(self, path: str) -> FileTreeEntry | None:
        self.world.tick()
        self._fault(path)
        return self.world.disk.get(path)

    async def missing_dirs(self, paths: Sequence[str]) -> Sequence[str]:
        out: list[str] = []
        for path in paths:
            parts = path.split("/")[1:-1]
            for depth in range(1, len(parts) + 1):
                directory = "/" + "/".join(parts[:depth])
                if directory not in self.world.dirs and directory not in out:
                    out.append(directory)
        return out

    async def install(self, path: str, node: FileTreeEntry) -> Sequence[str]:
        self.world.tick()
        self._fault(path)
        if self.world.full:
            raise Terminal(f"{path}: no space left", reason="NoSpace")
        made = await self.missing_dirs([path])
        self.world.dirs.update(made)
        self.world.disk[path] = node
        self.world.tick()
        return made

    async def remove(self, path: str, made_dirs: Sequence[str]) -> None:
        self.world.tick()
        self._fault(path)
        self.world.disk.pop(path, None)
        for directory in sorted(made_dirs, key=len, reverse=True):
            if path.startswith(f"{directory}/") and not any(p.startswith(f"{directory}/") for p in self.world.disk):
                self.world.dirs.discard(directory)
        self.world.tick()

    def _fault(self, path: str) -> None:
        if path in self.world.path_faults:
            raise self.world.path_faults[path]

    async def survey(self, writes: Sequence[str], removes: Sequence[str]) -> Survey:
        return self.world.survey

    async def contested(self, path: str) -> str:
        return next((who for place, who in self.world.contested.items() if path.startswith(f"{place}/")), "")

    async def sweep(self, paths: Sequence[str]) -> Swept:
        return Swept()

    async def differs(self, path: str, node: FileTreeEntry | None) -> str:
        self._fault(path)
        return "" if self.world.disk.get(path) == node else "differs"


class JobFailed(AgentError):
    default_reason = "JobFailed"


class FakeUnits:
    def __init__(self, world: World) -> None:
        self.world = world

    def _unit(self, name: str) -> FakeUnit:
        if name not in self.world.units:
            if f"/etc/systemd/system/{name}" in self.world.disk:
                self.world.units[name] = FakeUnit(active="inactive", file="disabled", brought=True)
            else:
                return FakeUnit(load="not-found", active="inactive", file="")
        unit = self.world.units[name]
        if unit.brought:
            there = f"/etc/systemd/system/{name}" in self.world.disk
            unit.load = "loaded" if there else "not-found"
            unit.file = (unit.file or "disabled") if there else ""
        return unit

    async def state(self, unit: str) -> UnitState:
        if self.world.bus_faults:
            self.world.bus_faults -= 1
            raise ServiceUnavailable("connection to the bus was lost", reason="BusConnectionLost")
        u = self._unit(unit)
        now = asyncio.get_running_loop().time()
        if u.died_at is not None and now >= u.died_at:
            u.active, u.died_at = "failed", None
        return UnitState(
            unit,
            u.load,
            u.active,
            "running" if u.active == "active" else "dead",
            u.type,
            u.result,
            str(u.invocation),
            u.restarts,
            u.file,
            condition=u.condition if u.active == "inactive" else "",
            triggered_by=u.triggered_by,
        )

    def outages(self) -> int:
        return self.world.bus_losses

    async def boot_finished(self) -> bool:
        return asyncio.get_running_loop().time() >= self.world.booting_until

    async def daemon_reload(self, deadline: float) -> None:
        self.world.tick()
        self.world.done.append(f"{self.world.boot}:daemon-reload")
        self.world.tick()

    async def reload(self, unit: str, deadline: float) -> None:
        self.world.tick()
        u = self._unit(unit)
        u.read = dict(self.world.disk)
        self.world.done.append(f"{self.world.boot}:reload {unit}")
        self.world.tick()

    async def restart(self, unit: str, deadline: float, *, since: str | None = None) -> str:
        self.world.tick()
        u = self._unit(unit)
        if u.load == "not-found":
            raise JobFailed(f"{unit} not found", reason="UnitNotFound")
        if since is not None and u.active == "active" and str(u.invocation) != since:
            return ""  # it took place, and its answer was lost
        self.world.done.append(f"{self.world.boot}:restart {unit}")
        if u.hang:
            await asyncio.sleep(deadline)
            raise JobFailed(f"{unit} is late", reason="JobTimeout")
        if u.fail_restarts or self.world.boot < u.bad_until_boot:
            u.fail_restarts = max(0, u.fail_restarts - 1)
            u.active = "failed"
            raise JobFailed(f"{unit}: job failed")
        if u.condition:
            u.active = "inactive"
            self.world.tick()
            return u.condition
        u.active, u.read, u.invocation, u.restarts = "active", dict(self.world.disk), u.invocation + 1, 0
        if u.exits:
            u.active = "inactive"
        if u.dies_after is not None:
            u.died_at = asyncio.get_running_loop().time() + u.dies_after
        self.world.tick()
        return ""

    async def stop(self, unit: str, deadline: float) -> None:
        self.world.tick()
        self._unit(unit).active = "inactive"
        self.world.done.append(f"{self.world.boot}:stop {unit}")
        self.world.tick()

    async def files(self) -> set[str]:
        brought = {path.rpartition("/")[2] for path in self.world.disk if path.startswith("/etc/systemd/system/")}
        return brought | {name for name, unit in self.world.units.items() if unit.load != "not-found"}

    async def enable(self, unit: str) -> None:
        self.world.tick()
        u = self._unit(unit)
        u.file = "enabled"
        self.world.tick()

    async def disable(self, unit: str) -> None:
        self.world.tick()
        u = self._unit(unit)
        if u.file == "enabled":
            u.file = "disabled"
        self.world.tick()

    async def preset(self, unit: str) -> None:
        await self.enable(unit)


class FakeHealth:
    """Knows how to look at web.service only."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def check(self, unit: str) -> str | None:
        return self.world.unwell if unit == "web.service" else None


class FakeUsers:
    def __init__(self, world: World) -> None:
        self.world = world

    async def password_hash(self, user: str) -> str | None:
        return self.world.passwords.get(user)

    async def set_password_hash(self, user: str, value: str) -> None:
        self.world.tick()
        self.world.passwords[user] = value
        self.world.tick()

    async def lock(self, user: str) -> None:
        self.world.tick()
        self.world.passwords[user] = "!" + self.world.passwords[user].lstrip("!")
        self.world.tick()


class FakePower:
    def __init__(self, world: World) -> None:
        self.world = world
        self._boot = identity(f"boot-{world.boot}", world.soft)  # a process sees one boot

    def boot_id(self) -> str:
        return self._boot

    async def blockers(self) -> Sequence[Inhibitor]:
        return list(self.world.blockers)

    @asynccontextmanager
    async def inhibit(self, why: str) -> AsyncIterator[None]:
        yield

    async def reboot(
        self, why: str, *, warn: float, force: bool, confirm: Confirm | None = None, direct: bool = False
    ) -> None:
        self.world.tick()
        if direct:
            self.world.done.append(f"{self.world.boot}:reboot.target")
        if self.world.blockers and not force:
            raise AssertionError("rebooted over an inhibitor")
        await self._warn(warn, confirm)
        if self.world.reboot_ignored:
            return
        if self.world.power_fails:
            self.world.power_fails -= 1
            self.world.power_cut()
            raise Killed
        self.world.done.append(f"{self.world.boot}:reboot")
        self.world.shut_down()
        assert self.world.rebooting is not None
        self.world.rebooting.set()

    async def _warn(self, warn: float, confirm: Confirm | None) -> None:
        if self.world.logged_in:
            self.world.warned += 1
            await asyncio.sleep(warn)
        if confirm is not None:
            await confirm()

    async def power_off(
        self, why: str, *, warn: float, force: bool, confirm: Confirm | None = None, direct: bool = False
    ) -> None:
        self.world.tick()
        if self.world.blockers and not force:
            raise AssertionError("powered off over an inhibitor")
        await self._warn(warn, confirm)
        if self.world.reboot_ignored:
            return
        self.world.done.append(f"{self.world.boot}:power-off")
        self.world.shut_down()
        assert self.world.rebooting is not None
        self.world.rebooting.set()
        await asyncio.Event().wait()  # the host goes down under us


class FakeDeployments:
    """rpm-ostree and the boot loader, as far as a client of ours can tell."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def list(self) -> Sequence[Deployment]:
        if self.world.os_errors:
            self.world.os_errors -= 1
            raise ServiceUnavailable("rpm-ostreed does not answer", reason="BusTimeout")
        return list(self.world.deployments)

    async def guard(self, target: OsTarget) -> None:
        if self.world.guard_error is not None:
            raise self.world.guard_error

    async def stage(
        self, target: OsTarget, *, credentials: bytes | None, replace: str, tell: Callable[[StageProgress], None]
    ) -> Deployment:
        world = self.world
        world.tick()
        world.credentials.append(credentials)
        if (there := staged(world.deployments)) is not None:
            if not unmet(target, there) and there.locked:
                return there
            if there.id != replace:
                raise Refused(f"{there.id} is staged, and not by us", reason="StagedByOther")
        if world.stage_errors:
            raise world.stage_errors.pop(0)
        for part in range(20):
            if world.holder is not None:
                world.staged_with_lease.append(world.holder.name)
            tell(StageProgress("Importing layers", part, 20))
            await asyncio.sleep(world.stage_seconds / 20)
        new = self._make(target)
        world._drop_staged()
        world.deployments.insert(0, new)
        world.tick()
        return new

    def _make(self, target: OsTarget) -> Deployment:
        world = self.world
        base = booted(world.deployments)
        assert base is not None
        world.serial += 1
        digest, checksum = base.digest, base.checksum
        match target.image:
            case ContainerImage():
                digest = checksum = target.image.digest
            case OstreeCommit():
                checksum = target.image.checksum
            case None:
                pass
        kept = [k for k in base.kernel_arguments if k not in target.without_kernel_arguments]
        added = [] if world.wrong_kernel_arguments else [k for k in target.kernel_arguments if k not in kept]
        return Deployment(
            f"os-{checksum[-4:]}.{world.serial}",
            checksum,
            "os",
            digest=digest,
            packages=(base.packages - target.without_packages) | target.packages,
            removed=(base.removed - target.without_removed) | target.removed,
            kernel_arguments=(*kept, *added),
            staged=True,
            locked=True,
        )

    async def unlock(self, deployment: str) -> None:
        self.world.tick()
        there = staged(self.world.deployments)
        if there is None or there.id != deployment:
            raise Refused(f"{deployment} is not staged any more", reason="StagedLost")
        self.world.deployments[0] = replace(there, locked=False)
        self.world.tick()

    async def discard(self) -> None:
        self.world.tick()
        at = next(i for i, d in enumerate(self.world.deployments) if d.booted)
        del self.world.deployments[:at]
        self.world.tick()

    async def rollback(self) -> str:
        self.world.tick()
        order = self.world.deployments
        if order[0].staged:
            raise Refused(f"cannot roll back while {order[0].id} is staged", reason="StagedByOther")
        if order[0].booted:
            if len(order) < 2:
                raise Terminal("there is no other deployment", reason="NoRollback")
            order[0], order[1] = order[1], order[0]
            if self.world.grub_asks:  # for a password, before it boots an old entry: so it gets a new one
                self.world.serial += 1
                made = replace(order[0], id=f"{order[0].id.partition('.')[0]}.{self.world.serial}")
                self.world.etcs[made.id] = self.world.etcs.pop(order[0].id)
                order[0] = made
        self.world.tick()
        return order[0].id

    async def unmerged_soft_reboot(self) -> str:
        found = staged(self.world.deployments)
        return found.id if self.world.next_root and found is not None and found.locked else ""

    async def reset_soft_reboot(self) -> None:
        self.world.tick()
        if self.world.next_root_stays:
            raise Refused("it cannot be cleared", reason="LockedSoftReboot")
        self.world.next_root = False
        self.world.tick()

    async def finalize_failure(self) -> str:
        return self.world.finalize_failure


class FakeStore:
    def __init__(self, world: World) -> None:
        self.world = world

    async def load(self) -> Record:
        return record_from_dict(self.world.record)

    async def save(self, record: Record) -> None:
        self.world.tick()
        if record.phase == self.world.killed_before:
            raise Killed
        self.world.record = record_to_dict(record)
        self.world.tick()

    async def request(self) -> ApplyRequest | None:
        return self.world.request

    async def keep_request(self, request: ApplyRequest) -> None:
        self.world.tick()
        self.world.request = request
        self.world.tick()

    async def drop_request(self, digest: str) -> None:
        self.world.tick()
        if self.world.request is not None and self.world.request.digest == digest:
            self.world.request = None
        self.world.tick()

    async def begin(self, record: Record) -> None:
        self.world.tick()
        if record.phase == self.world.killed_before:
            raise Killed
        self.world.record = record_to_dict(record)
        if self.world.request is not None and self.world.request.digest == record.to_digest:
            self.world.request = None
        self.world.tick()

    async def set_record_aside(self, reason: str, message: str) -> Record:
        self.world.record = record_to_dict(
            replace(salvaged(self.world.record, "unknown"), reason=reason, message=message)
        )
        return record_from_dict(self.world.record)

    async def put_config(self, source: ConfigSource) -> None:
        self.world.configs[source.digest] = source

    async def get_config(self, digest: str) -> ConfigSource:
        return self.world.configs[digest]

    async def current(self) -> str:
        return self.world.current

    async def previous(self) -> str:
        return self.world.previous

    async def remember(self, update_id: str, snapshots: Sequence[Snapshot]) -> None:
        self.world.tick()
        self.world.snapshots.setdefault(update_id, list(snapshots))
        self.world.tick()

    async def remembered(self, update_id: str) -> Sequence[Snapshot]:
        return list(self.world.snapshots.get(update_id, []))

    async def keep_originals(self, snapshots: Sequence[Snapshot]) -> None:
        self.world.tick()
        for snapshot in snapshots:
            self.world.originals.setdefault(snapshot.key, snapshot)

    async def original(self, key: str) -> Snapshot | None:
        return self.world.originals.get(key)

    async def forget_originals(self, keys: Sequence[str]) -> None:
        self.world.tick()
        for key in keys:
            self.world.originals.pop(key, None)

    async def made_dirs(self) -> Sequence[str]:
        return list(self.world.made)

    async def add_made_dirs(self, paths: Sequence[str]) -> None:
        self.world.tick()
        self.world.made += [path for path in paths if path not in self.world.made]

    async def promote(self, record: Record, current: str, entry: HistoryEntry) -> None:
        self.world.tick()
        if current != self.world.current:
            self.world.previous = self.world.current
        self.world.current = current
        self._close(record, entry)
        self.world.tick()

    async def close_update(self, record: Record, entry: HistoryEntry) -> None:
        self.world.tick()
        self._close(record, entry)
        self.world.tick()

    def _close(self, record: Record, entry: HistoryEntry) -> None:
        self.world.record = record_to_dict(record)
        self.world.history.append(entry)
        self.world.snapshots.pop(record.update_id, None)

    async def history(self, limit: int) -> Sequence[HistoryEntry]:
        return self.world.history[-limit:]


class FakeLease:
    backend = "local"

    def __init__(self, world: World) -> None:
        self.world = world

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        self.world.tick()
        held = self.world.holder
        if held is not None and (held.name, held.operation) != (holder, operation):
            raise Refused(f"{held.name} holds the lease: {held.reason}", reason="LeaseHeld")
        self.world.holder = Holder(holder, operation, reason, "now")
        self.world.tick()

    async def check(self, operation: str, *, need: float = 0.0, offline: bool = False) -> None:
        if self.world.holder is None or self.world.holder.operation != operation:
            raise Refused("the lease is not ours any more", reason="LeaseLost")

    async def extend(self, operation: str, seconds: float | None) -> None:
        await self.check(operation)
        self.world.tick()
        assert self.world.holder is not None
        self.world.holder = replace(self.world.holder, expires="" if seconds is None else f"in {seconds:g} s")

    async def before_reboot(self, operation: str, cover: float) -> None:
        self.world.tick()
        await self.check(operation)
        self.world.tick()

    async def release(self, operation: str) -> None:
        self.world.tick()
        if self.world.holder is not None and self.world.holder.operation == operation:
            self.world.holder = None
        self.world.tick()

    async def holder(self) -> Holder | None:
        return self.world.holder


class FakeReporter:
    def __init__(self, world: World) -> None:
        self.world = world

    def emit(self, event: Event) -> None:
        self.world.events.append(replace(event))
