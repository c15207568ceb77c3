# SPDX-License-Identifier: Apache-2.0
"""The units of the host in memory, and its systemd."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from nodeagent.core.config.file_tree import DEV_NULL, FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import template_of
from nodeagent.core.plan.change import KeyChange
from nodeagent.core.plan.enablement.links import belongs
from nodeagent.core.plan.unit_abilities import UnitAbilities, with_texts
from nodeagent.core.plan.unit_relations import Relations
from nodeagent.errors import AgentError
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import UnitState
from tests.world.unit_files import all_links, file_state, is_enabled

if TYPE_CHECKING:
    from tests.world.world import World


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
    end: str = ""  # how its program failed
    # The result of the health check of its service.
    health: str = ""
    ill_until_start: bool = False
    # The error of a reload with this content in a file; None: it logs nothing.
    rejects: str | None = ""
    rejects_content: bytes = b"2"
    # Units that systemd restarts along with this one, and other relations.
    takes_along: tuple[str, ...] = ()
    alias_of: str = ""
    can_start: bool = True
    can_stop: bool = True
    can_reload: bool = True
    can_enable: bool = True
    stops: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    wanted_by: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    bus_name: str = ""
    sub: str = ""  # other than what follows from the active state
    starts_again_after: float | None = None  # Restart= starts it so many seconds after it has failed
    up_at: float | None = None
    masked: bool = False  # by a config
    brought: bool = False  # its file came with a config, and nothing is left of it without that


def note_unit(world: World, path: str, node: FileTreeEntry) -> None:
    """Make a unit of a file that a config brings."""
    directory, _, name = path.rpartition("/")
    if directory == UNIT_DIR and isinstance(node, RegularFile):
        world.units.setdefault(name, FakeUnit(active="inactive", file="disabled", brought=True))


@dataclass
class Units:
    units: dict[str, FakeUnit] = field(default_factory=dict)
    bus_losses: int = 0
    # Values of the kernel that were compared after a restart, and those that it does not take.
    units_checked: list[dict[str, str]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    # The links below /etc/systemd/system without those of FakeUnit.file, and [Install] of units of the OS.
    links: dict[str, str] = field(default_factory=dict)
    unit_texts: dict[str, bytes] = field(default_factory=dict)
    # Unit files that only one image has: its digest to name and text.
    units_of_os: dict[str, dict[str, bytes]] = field(default_factory=dict)
    start_jobs: dict[str, tuple[str, ...]] = field(default_factory=dict)  # units that are starting, what waits for them
    booting_until: float = 0.0  # on the clock of the loop: units are started until then


class JobFailed(AgentError):
    default_reason = Reason.JOB_FAILED


class FakeUnits:
    def __init__(self, world: World) -> None:
        self.world = world

    def _on_disk(self, name: str) -> bool:
        return any(f"/etc/systemd/system/{each}" in self.world.disk for each in (name, template_of(name)) if each)

    def _unit(self, name: str) -> FakeUnit:
        if name not in self.world.units:
            # Each target exists, but those with a typing error.
            if name.endswith(".target") and not name.startswith("mutli"):
                return FakeUnit(active="inactive", file="static")
            if self._on_disk(name):
                self.world.units[name] = FakeUnit(active="inactive", file="disabled", brought=True)
            else:
                return FakeUnit(load="not-found", active="inactive", file="")
        unit = self.world.units[name]
        if self.world.disk.get(f"/etc/systemd/system/{name}") == SymbolicLink(DEV_NULL):
            unit.load, unit.masked = "masked", True
        elif unit.masked:
            unit.load, unit.masked = "loaded", False
        if unit.brought and unit.load != "masked":
            there = self._on_disk(name)
            unit.load = "loaded" if there else "not-found"
            unit.file = file_state(self.world, name) if there else ""
        return unit

    async def state(self, unit: str) -> UnitState:
        self.world.meet("unit state")
        assert "/" not in unit, "systemd rejects it"
        u = self._unit(unit)
        file = "enabled" if u.load != "not-found" and is_enabled(self.world, unit) else u.file
        now = asyncio.get_running_loop().time()
        if u.died_at is not None and now >= u.died_at:
            u.active, u.died_at = "failed", None
            self._restart_later(u)
        if u.up_at is not None and now >= u.up_at:
            u.active, u.sub, u.up_at, u.restarts = "active", "", None, u.restarts + 1
        return UnitState(
            unit,
            u.load,
            u.active,
            u.sub or ("running" if u.active == "active" else "dead"),
            u.type,
            u.result,
            str(u.invocation) if u.invocation else "",
            u.restarts,
            "masked" if u.load == "masked" else file,
            condition=u.condition if u.active == "inactive" else "",
            triggered_by=u.triggered_by,
            bus_name=u.bus_name,
            end=u.end if u.active == "failed" else "",
        )

    async def abilities(self, unit: str) -> UnitAbilities:
        u = self._unit(unit)
        return UnitAbilities(u.alias_of or unit, u.can_start, u.can_stop, u.can_reload, u.can_enable)

    def _restart_later(self, u: FakeUnit) -> None:
        if u.starts_again_after is not None:
            u.active, u.sub = "activating", "auto-restart"
            u.up_at = asyncio.get_running_loop().time() + u.starts_again_after
            u.dies_after = u.died_at = None

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
        dropins = [node for path, node in self.world.disk.items() if f"/{unit}.d/" in path]
        texts = [node.content.decode() for node in dropins if isinstance(node, RegularFile)]
        if not with_texts(await self.abilities(unit), texts).can_reload:
            raise JobFailed(f"{unit} cannot be reloaded", reason=Reason.JOB_INVALID)
        u.read = dict(self.world.disk)
        self.world.done.append(f"{self.world.boot}:reload {unit}")
        self.world.tick()

    async def restart(self, unit: str, deadline: float, *, since: str | None = None) -> str:
        self.world.tick()
        u = self._unit(unit)
        if u.load == "not-found":
            raise JobFailed(f"{unit} not found", reason=Reason.UNIT_NOT_FOUND)
        if since is not None and u.active == "active" and str(u.invocation) != since:
            return ""  # it took place, and its answer was lost
        self.world.done.append(f"{self.world.boot}:restart {unit}")
        if u.hang:
            await asyncio.sleep(deadline)
            raise JobFailed(f"{unit} is late", reason=Reason.JOB_TIMEOUT)
        if u.fail_restarts or self.world.boot < u.bad_until_boot:
            u.fail_restarts = max(0, u.fail_restarts - 1)
            u.active = "failed"
            self._restart_later(u)
            raise JobFailed(f"{unit}: job failed")
        if unit.endswith(".socket") and any(self._unit(each).active == "active" for each in u.triggers):
            raise JobFailed(f"{unit}: Socket service already active, refusing.")
        if u.condition:
            u.active = "inactive"
            self.world.tick()
            return u.condition
        u.active, u.read, u.invocation, u.restarts = "active", dict(self.world.disk), u.invocation + 1, 0
        for along in u.takes_along:
            other = self._unit(along)
            other.read, other.invocation = dict(self.world.disk), other.invocation + 1
            if other.dies_after is not None:
                other.died_at = asyncio.get_running_loop().time() + other.dies_after
        for down in (*u.stops, *u.conflicts):
            self._unit(down).active = "inactive"
        if u.exits:
            u.active = "inactive"
        if u.dies_after is not None:
            u.died_at = asyncio.get_running_loop().time() + u.dies_after
        self.world.tick()
        return ""

    async def relations(self, unit: str) -> Relations:
        u = self._unit(unit)
        # A link in a directory of a unit: that unit starts this one.
        links = [path.partition("/")[0] for path, to in all_links(self.world).items() if belongs(path, to, unit)]
        wanted_by = (
            *u.wanted_by,
            *(name.rpartition(".")[0] for name in links if name.endswith((".wants", ".requires"))),
        )
        lists = (u.takes_along, u.stops, u.conflicts, u.triggers, u.needs, wanted_by, u.after)
        return Relations(*map(frozenset, lists))

    async def start_jobs(self) -> dict[str, tuple[str, ...]]:
        return dict(self.world.start_jobs)

    async def instances(self, template: str) -> list[str]:
        prefix, _, kind = template.partition("@")
        return [name for name in self.world.units if name.startswith(f"{prefix}@") and name.endswith(kind)]

    async def start(self, unit: str, deadline: float) -> None:
        self.world.tick()
        u = self._unit(unit)
        if u.load == "not-found" or u.fail_restarts:
            u.fail_restarts = max(0, u.fail_restarts - 1)
            raise JobFailed(f"{unit}: job failed")
        if u.active != "active":
            u.active, u.read, u.invocation = "active", dict(self.world.disk), u.invocation + 1
            self.world.done.append(f"{self.world.boot}:start {unit}")
        self.world.tick()

    async def stop(self, unit: str, deadline: float) -> None:
        self.world.tick()
        self.world.meet("stop unit")
        u = self._unit(unit)
        u.active = "inactive"
        instances = await self.instances(unit) if "@." in unit else []
        for other in (*u.takes_along, *u.stops, *instances):
            self._unit(other).active = "inactive"
        self.world.done.append(f"{self.world.boot}:stop {unit}")
        self.world.tick()

    async def reset_failed(self, unit: str) -> None:
        self.world.tick()
        u = self._unit(unit)
        u.active = "inactive" if u.active == "failed" else u.active
        self.world.tick()

    async def files(self) -> set[str]:
        brought = {path.rpartition("/")[2] for path in self.world.disk if path.startswith("/etc/systemd/system/")}
        return brought | {name for name, unit in self.world.units.items() if unit.load != "not-found"}


class FakeHealth:
    """Checks the health of web.service only."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def check(self, unit: str) -> str | None:
        if unit != "web.service":
            return None
        return self.world.units[unit].health if unit in self.world.units else ""

    async def values_problem(self, values: Mapping[str, str]) -> str:
        self.world.units_checked.append(dict(values))
        return next((f"{path} is not {value}" for path, value in values.items() if value in self.world.refused), "")

    async def kept_back(self, keys: Sequence[KeyChange]) -> Mapping[str, Decimal]:
        return {}

    async def lasting(self, unit: str) -> bool:
        return unit in self.world.units and self.world.units[unit].ill_until_start

    async def reload_problem(self, unit: str, since: str, keys: Sequence[KeyChange] = ()) -> str | None:
        found = self.world.units.get(unit, FakeUnit())
        contents = [node.content for node in found.read.values() if isinstance(node, RegularFile)]
        return found.rejects if found.rejects_content in contents else ""
