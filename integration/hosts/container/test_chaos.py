# SPDX-License-Identifier: Apache-2.0
"""Updates while the services that the agent relies on are restarted, killed and hung at random, and the agent as well.

The seed is printed. NODEAGENT_CHAOS_SEED repeats a run as far as times allow, NODEAGENT_CHAOS_UPDATES makes it longer
or shorter.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container import events
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.errors import CommandFailed, HostGone

UPDATES = int(os.environ.get("NODEAGENT_CHAOS_UPDATES", "75"))
SEED = int(os.environ.get("NODEAGENT_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
REBOOTS = 0.08  # of all updates
PATIENCE = 120.0  # seconds for one update
LONGEST_STOP = 3.0
"""Seconds for which a service is hung. The stand-ins give up where systemd takes no notification for five seconds."""

LOGIND_FOLLOWS = 0.8
"""How often logind is restarted after the bus, without which it stays off the bus until the agent restarts it."""

QUIET, RELOADED, RESTARTED = "/etc/quiet", "/etc/reloadable.conf", "/etc/restarted.conf"
UNLISTED = "/etc/unlisted.conf"  # in no policy, so its change asks for a reboot
POLICY = agent.policy(
    files={QUIET: ["None"], RELOADED: ["Reload reloadable.service"], RESTARTED: ["Restart crio.service"]}
)
BUS, LOGIND, POLKIT = "dbus.service", "systemd-logind.service", "polkit.service"
JOURNALD = "systemd-journald.service"
NO_LIMIT = "[Unit]\nStartLimitIntervalSec=0\n"
FILES = {
    agent.POLICY: POLICY,
    # Read at each start, so that a restart proves that it came after the write.
    "/etc/systemd/system/crio.service.d/50-watch.conf": f"[Service]\nEnvironment=WATCH={RESTARTED}\n",
    "/etc/systemd/system/nodeagent.service.d/50-soon.conf": "[Service]\nRestartSec=200ms\n",
    **{
        f"/etc/systemd/system/{unit}.d/50-no-limit.conf": NO_LIMIT
        for unit in (BUS, LOGIND, POLKIT, JOURNALD, "crio.service", "reloadable.service")
    },
}


@dataclass
class Chaos:
    """Disturbances of one host. Each is over when its call returns."""

    host: Host
    chance: random.Random
    done: list[str] = field(default_factory=list)

    def disturb(self) -> None:
        """One disturbance. A host that goes down, or a service that does not answer yet, is no error here."""
        kind: Callable[[], str] = self.chance.choice(
            [self._kill, self._kill, self._hang, self._hang, self._restart, self._manager, self._hang_manager]
        )
        with contextlib.suppress(CommandFailed, HostGone, ProcessLookupError):
            self.done.append(kind())
            if BUS in self.done[-1] and self.chance.random() < LOGIND_FOLLOWS:
                self.host.run(["systemctl", "restart", "--no-block", LOGIND])

    def _unit(self) -> str:
        return self.chance.choice([BUS, LOGIND, POLKIT, JOURNALD, agent.UNIT, agent.UNIT])

    def _kill(self) -> str:
        unit, name = self._unit(), self.chance.choice(["SIGKILL", "SIGKILL", "SIGTERM"])
        for pid in self._pids(unit):
            self.host.kill(pid, name)
        return f"{name} to {unit}"

    def _hang(self) -> str:
        unit, seconds = self._unit(), self.chance.uniform(0.1, LONGEST_STOP)
        pids = self._pids(unit)
        for pid in pids:
            self.host.kill(pid, "SIGSTOP")
        time.sleep(seconds)
        for pid in pids:
            self.host.kill(pid, "SIGCONT")
        return f"{unit} hung for {seconds:.1f} s"

    def _restart(self) -> str:
        unit = self._unit()
        self.host.run(["systemctl", "restart", "--no-block", unit])
        return f"{unit} restarted"

    def _manager(self) -> str:
        verb = self.chance.choice(["daemon-reexec", "daemon-reload"])
        self.host.run(["systemctl", verb])
        return verb

    def _hang_manager(self) -> str:
        leader, seconds = self.host.container.leader, self.chance.uniform(0.1, LONGEST_STOP)
        os.kill(leader, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(leader, signal.SIGCONT)
        return f"systemd hung for {seconds:.1f} s"

    def _pids(self, unit: str) -> list[int]:
        """Return the processes of the cgroup of the unit, because systemd may not answer."""
        processes = self.host.read_text(f"/sys/fs/cgroup/system.slice/{unit}/cgroup.procs").split()
        return [int(pid) for pid in processes]


class Updates:
    """Looks at the files of the host from outside: nothing in it has to answer."""

    def __init__(self, host: Host, chance: random.Random) -> None:
        self.host = host
        self.chance = chance
        self.files: dict[str, str] = {UNLISTED: "name: first\n"}
        self.ended = 0

    def choose(self, number: int) -> str:
        """The next desired config. Returns its name."""
        changed = [UNLISTED] if self.chance.random() < REBOOTS else []
        changed += self.chance.sample([f"{QUIET}/a", f"{QUIET}/b", RELOADED, RESTARTED], self.chance.randint(1, 3))
        for path in changed:
            self.files[path] = f"name: {number}\n"
        if self.chance.random() < 0.2:
            self.files.pop(f"{QUIET}/a", None)
        return f"update-{number}"

    def desire(self, name: str) -> None:
        desired = self._path(agent.DESIRED)
        new = desired.with_suffix(".new")
        new.touch(0o600)
        new.write_text(agent.machine_config(name, files=self.files))
        new.rename(desired)

    def finish(self, name: str) -> None:
        def over() -> bool:
            (record,) = self._store("SELECT json FROM record")
            history = self._store("SELECT json FROM history ORDER BY seq DESC LIMIT 1")
            assert record["phase"] != "Degraded", record
            return bool(record["phase"] == "Idle" and history and history[0]["to_name"] == name)

        def ended() -> bool:
            with contextlib.suppress(sqlite3.OperationalError):
                return over()
            return False

        self.host.wait_for(ended, f"{name} is the current config", PATIENCE, every=0.05)
        self.ended += 1

    def check(self, name: str) -> None:
        (record,) = self._store("SELECT json FROM record")
        assert (record["phase"], record["reason"]) == ("Idle", "")
        assert not record["lasting"].get("rejections")
        assert self._store("SELECT json FROM lease") == [], "the lease is free"
        history = self._store("SELECT json FROM history ORDER BY seq")
        assert len(history) == self.ended, "each update is in the history once"
        assert (history[-1]["to_name"], history[-1]["outcome"]) == (name, "done"), history[-1]
        assert {path: self._text(path) for path in self.files} == self.files
        assert self._path(f"{QUIET}/a").exists() == (f"{QUIET}/a" in self.files)
        assert list(self._path("/etc").rglob(".nodeagent-*")) == [], "no temporary is left"
        noted = events.parse(self._path(events.EVENTS).read_text())
        for unit, path in (("reloadable.service", RELOADED), ("crio.service", RESTARTED)):
            if path in self.files:
                last = next(event for event in reversed(noted) if event.unit == unit and event.event != "stop")
                assert last.digest == events.digest(self.files[path].encode()), f"{unit} runs with old content"

    def _text(self, path: str) -> str:
        text: str = self._path(path).read_text()
        return text

    def _path(self, path: str) -> Any:
        return self.host.root / path.lstrip("/")

    def _store(self, query: str) -> list[Any]:
        path = self._path(agent.STORE)
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as store:
            return [json.loads(row[0]) for row in store.execute(query)]


@contextlib.contextmanager
def described(chaos: Chaos, name: str) -> Iterator[None]:
    del chaos.done[:]
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed {SEED}, on the way to {name}: {'; '.join(chaos.done)}")
        raise


@pytest.mark.finding(
    "services: away for a while, services: results that were lost",
    "Updates end well among random restarts, kills and hangs of bus, systemd, logind, polkit, journald and agent.",
)
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_updates_among_services_that_come_and_go(make_node: HostMaker, say: Callable[[str], None]) -> None:
    say(f"chaos with NODEAGENT_CHAOS_SEED={SEED} NODEAGENT_CHAOS_UPDATES={UPDATES}")
    chance = random.Random(SEED)
    host = make_node(files=FILES, settings={"actions": {"timeout": 20, "settle": 0.2}, "verify": {"timeout": 40}})
    host.run(["systemctl", "start", POLKIT])
    updates, chaos = Updates(host, chance), Chaos(host, chance)
    updates.desire("first")
    updates.finish("first")
    reboots = 0
    for number in range(1, UPDATES + 1):
        before = updates.files.get(UNLISTED)
        name = updates.choose(number)
        reboots += updates.files[UNLISTED] != before
        with described(chaos, name):
            updates.desire(name)
            for _ in range(chance.randint(1, 3)):
                time.sleep(chance.uniform(0, 0.6))
                chaos.disturb()
            updates.finish(name)
            updates.check(name)
    agent.wait_daemon(host, 60)
    assert host.reboots == reboots + 1, "the first config rebooted it as well"
    said = host.run(["journalctl", "--unit", agent.UNIT, "--output=cat", "--no-pager", "--quiet"]).stdout
    assert "Traceback" not in said
    assert "InternalError" not in said
