# SPDX-License-Identifier: Apache-2.0
"""A host in memory. Its durable state survives a kill; the ports on it are made again, as a new process would.

Each part of the state is in the module of its subject, together with the fake port on it. Boots concern all of them.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.plan.deployment import Deployment, booted, staged
from nodeagent.errors import AgentError
from nodeagent.update.ports.events import Event, ProblemSolved, StatusProblem
from tests.world.boot_loader import LOST, BootLoader
from tests.world.bootupd import Bootupd
from tests.world.deployments import Deployments, Etc, of_deployment
from tests.world.disk import Disk
from tests.world.faults import Faults
from tests.world.outages import Outage
from tests.world.power import Power
from tests.world.store import Stored
from tests.world.unit_files import file_state
from tests.world.units import Units


@dataclass
class World(Disk, Units, Deployments, BootLoader, Bootupd, Stored, Power, Faults):
    outage: Outage | None = None  # of the services of this host
    events: list[Event] = field(default_factory=list)
    tampers: dict[str, FileTreeEntry] = field(default_factory=dict)  # files that another program writes at each boot

    def __setattr__(self, name: str, value: object) -> None:
        """Reject a name that is no field: a test that injects nothing must not pass."""
        if name not in self.__dataclass_fields__:
            raise AttributeError(name)
        super().__setattr__(name, value)

    def soft_reboot(self) -> None:
        """Start the userspace again, as an operator does.

        /run stays, so a locked deployment stays staged. An unlocked one is finalized. The prepared one runs afterwards,
        otherwise the same as before.
        """
        found, prepared, of_another = staged(self.deployments), self.prepared, self.next_root
        self.prepared, self.next_root = "", False
        if found is not None and found.locked and of_another and self.unfinalized is None:
            # It is not finalized, and starts all the same.
            self._start_unmerged(found)
        elif found is not None and not found.locked and self.fault("finalize in a soft reboot"):
            if prepared and self.unfinalized is None:
                self._start_unmerged(found)
        elif found is not None and not found.locked:
            self._merge(found)
            rest = [d for d in self.deployments if d.booted]
            new = replace(found, staged=False, locked=None)
            self.deployments = [new, *rest]
            if prepared and not self.fault("lost next root"):
                assert prepared == new.id
                self._boot_into(new)
        self.soft += 1
        self._start_units()

    def _start_unmerged(self, new: Deployment) -> None:
        """The new deployment runs, with an /etc that has nothing of the host, and libostree does not work."""
        self.unfinalized = {path: node for path, node in self.disk.items() if path.startswith("/etc/")}
        for path in self.unfinalized:
            del self.disk[path]
        self.disk.update(self.shipped.get(new.digest, {}))

    def systemctl_reboot(self) -> None:
        """Reboot as another program does with ``systemctl reboot``, which is soft while something is prepared."""
        if self.prepared or self.next_root:
            self.soft_reboot()
        else:
            self.shut_down()

    def shut_down(self) -> None:
        """Finalize a staged deployment that is unlocked, then boot."""
        found = staged(self.deployments)
        self.finalize_failure = ""
        if found is None or found.locked or self.unfinalized is not None:
            pass
        elif (fault := self.fault("finalize")) is not None:
            self.finalize_failure = "" if fault.error is None else str(fault.error)
        else:
            self._merge(found)
            self.drop_staged()
            rest = [d for d in self.deployments if d.booted]
            self.deployments = [replace(found, staged=False, locked=None), *rest]
        failure = self.finalize_failure
        self.power_cut()
        self.finalize_failure = failure

    def _merge(self, new: Deployment) -> None:
        """Merge /etc for a new deployment, as libostree does: a file equal to the old default counts as unchanged."""
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
        self.etcs[new.id] = Etc(merged | usr, dict(self.passwords), links, dict(self.links))

    def drop_staged(self) -> None:
        self.deployments = [d for d in self.deployments if not d.staged]

    def _boot_into(self, chosen: Deployment) -> None:
        old = booted(self.deployments)
        assert old is not None
        assert self.starts(chosen.digest), "the bootloader refuses the kernel, and the host is at its prompt"
        if chosen.id != old.id:
            mine = {path: node for path, node in self.disk.items() if of_deployment(path)}
            links = {name: unit.file for name, unit in self.units.items()}
            self.etcs[old.id] = Etc(mine, dict(self.passwords), links, dict(self.links))
            etc = self.etcs.pop(chosen.id)
            for path in mine:
                del self.disk[path]
            self.disk.update(etc.files)
            self.passwords = dict(etc.passwords)
            self.links = dict(etc.links)
            for name, unit in self.units.items():
                unit.file = etc.enabled.get(name, "disabled")
        self.deployments = [replace(d, booted=d.id == chosen.id) for d in self.deployments]

    def power_cut(self) -> None:
        """Boot: a staged deployment is lost, and every service starts with the files on the disk."""
        self.boot += 1
        self.soft = 0
        self.prepared = ""
        if self.unfinalized is not None:
            self.disk = {path: node for path, node in self.disk.items() if not path.startswith("/etc/")}
            self.disk.update(self.unfinalized)
            self.unfinalized = None
        self.finalize_failure = ""
        if self.deployments:
            self.drop_staged()
            self._boot_into(self._load())
        self.disk.update(self.tampers)
        self._start_units()

    def _load(self) -> Deployment:
        """Return the deployment that the boot loader starts. A kernel that panics reboots at once."""
        for _ in range(LOST):
            index = self.next_entry()
            menu = self.boot_menu.get(self.boot, "")
            first = self.deployments[index if index < len(self.deployments) else 0]
            chosen = next((d for d in self.deployments if d.id == menu), first)
            if chosen.digest not in self.panics:
                return chosen
        raise AssertionError(f"the host is lost: {[d.id for d in self.deployments]}")

    def _start_units(self) -> None:
        for name, unit in self.units.items():
            if unit.brought:
                unit.file = file_state(self, name)
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


class FakeReporter:
    def __init__(self, world: World) -> None:
        self.world = world

    def emit(self, event: Event) -> None:
        self.world.events.append(replace(event))

    def bug(self, words: str, error: Exception) -> None:
        logging.getLogger(__name__).error(words, exc_info=error)

    def problem(self, topic: str, error: AgentError) -> None:
        self.emit(StatusProblem(topic, error.reason, error.message))

    def solved(self, topic: str, message: str) -> None:
        self.emit(ProblemSolved(topic, message))
