# SPDX-License-Identifier: Apache-2.0
"""The daemon killed at every point of an update on a real host, at random times, and with the power cut.

guest/usr/libexec/killpoint.py starts the daemon in these tests; the daemon itself knows nothing of them. One host goes
from config to config and back, so that both directions are proven. The stand-in units note what they found at a start
or reload: that is how a test knows that an action ran, and that it ran after the write.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container import events
from integration.hosts.container.configs import ANCHOR, CERTIFICATE, KILLABLE, KILLPOINTS
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec, UnitSpec
from integration.hosts.snapshot import Snapshot, difference

PLACE = KILLPOINTS.lstrip("/")
DROPIN = "/etc/systemd/system/nodeagent.service.d/50-at-once.conf"
AT_ONCE = "[Service]\nRestartSec=10ms\n"
# The services are restarted far more often than on any real host.
NO_LIMIT = {
    f"/etc/systemd/system/{unit}.service.d/50-no-limit.conf": "[Unit]\nStartLimitIntervalSec=0\n"
    for unit in ("crio", "reloadable", "coreos-update-ca-trust", "extra")
}

SETTINGS = {"actions": {"timeout": 10, "settle": 0.1}}
POLICY = agent.policy(
    files={"/etc/reloadable.conf": ["Reload reloadable.service"], "/etc/quiet": ["None"]},
    units={"extra.service": ["DaemonReload", "Restart extra.service"]},
)
EXTRA = """\
[Service]
Type=notify
NotifyAccess=all
Environment=WATCH=/etc/quiet/{letter}
ExecStart=/usr/libexec/stand-in %n run
[Install]
WantedBy=multi-user.target
"""
STORE_CALLS = {
    *("save", "remember", "keep_originals", "add_made_dirs", "promote", "forget_originals"),
    *("take_lease", "drop_lease"),
}
# What a test writes itself; the copy that chpasswd keeps; and the files with its pid that make up its lock, which stay
# when it is killed along with the daemon and which shadow-utils know for stale.
IGNORED = re.compile(rf"{agent.DESIRED}|/etc/shadow-|/etc/\.pwd\.lock|/etc/(passwd|shadow)\.(lock|\d+)")
PARTS = 3  # tests of their own, to run side by side
RUNS = 50
RANDOM_PARTS = 5  # so that workers can share them
CUTS = 5
SEED = 20240229


@dataclass(frozen=True)
class Point:
    """A point at which the daemon can be killed, with the number and the name that killpoint.py gives it."""

    number: int
    name: str


@dataclass(frozen=True)
class Config:
    """One of two that differ in everything that an update can change."""

    letter: str

    @property
    def files(self) -> dict[str, str]:
        return {
            f"/etc/quiet/{self.letter}": f"only in {self.letter}",  # so the other one is removed
            "/etc/reloadable.conf": f"reloadable {self.letter}",
            ANCHOR: f"# bundle {self.letter}\n{CERTIFICATE}",
        }

    @property
    def text(self) -> str:
        key = {"a": "A", "b": "B"}[self.letter] * 43
        mode = {"a": 0o644, "b": 0o600}[self.letter]
        return agent.machine_config(
            self.letter,
            files={path: FileSpec(text, mode) for path, text in self.files.items()},
            units={"extra.service": UnitSpec(EXTRA.format(letter=self.letter), enabled=self.letter == "b")},
            keys=[f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{key} core"],
            password_hash=agent.password_hash(self.letter),
        )

    def digests(self) -> dict[str, str]:
        """Return the expected digest of each unit at its last action."""
        files = {path: text.encode() for path, text in self.files.items()}
        return {
            "coreos-update-ca-trust.service": events.digest(files[ANCHOR]),
            "reloadable.service": events.digest(files["/etc/reloadable.conf"]),
            "extra.service": events.digest(files[f"/etc/quiet/{self.letter}"]),
        }


A, B = Config("a"), Config("b")


class Updates:
    """Goes from config to config on one host, and proves after each that nothing shows of what was done to it.

    It looks from outside at the host's disk: a command in the host takes as long as a step of the update.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.place = host.root / PLACE
        self.entries = 0  # of the history
        self.kills = 0  # after a time
        self.known: dict[str, Snapshot] = {}
        self.points: dict[str, list[Point]] = {}
        self.seconds = 0.0
        self.go(A)
        for config in (B, A):
            started = time.monotonic()
            self.go(config)
            self.seconds = time.monotonic() - started
            self.known[config.letter] = self.snapshot()
            if self.place.exists():
                lines = [line.split(" ", 1) for line in (self.place / "points").read_text().splitlines()]
                self.points[config.letter] = [Point(int(number), name) for number, name in lines]

    def snapshot(self) -> Snapshot:
        entries = self.host.snapshot("/etc", "/var/home/core")
        return {path: entry for path, entry in entries.items() if not IGNORED.fullmatch(path)}

    def events(self) -> list[events.UnitEvent]:
        return events.parse((self.host.root / events.EVENTS.lstrip("/")).read_text())

    def store(self, query: str) -> list[Any]:
        """Read as by another process of the host. Raises sqlite3.OperationalError after a write was cut short."""
        path = self.host.root / agent.STORE.lstrip("/")
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as store:
            return [json.loads(row[0]) for row in store.execute(query)]

    def start(self, config: Config) -> None:
        desired = self.host.root / agent.DESIRED.lstrip("/")
        new = desired.with_suffix(".new")
        new.touch(0o600)
        new.write_text(config.text)
        new.rename(desired)
        self.entries += 1

    def finish(self, config: Config) -> None:
        def over() -> bool:
            try:
                (record,) = self.store("SELECT json FROM record")
                history = self.store("SELECT json FROM history ORDER BY seq DESC LIMIT 1")
            except sqlite3.OperationalError:
                return False
            assert record["phase"] != "Degraded", record
            return bool(record["phase"] == "Idle" and history and history[0]["to_name"] == config.letter)

        self.host.wait_for(over, f"{config.letter} is the current config", agent.DONE_TIMEOUT, every=0.04)

    def go(self, config: Config) -> None:
        self.start(config)
        self.finish(config)

    def disturbed(self, config: Config, how: Callable[[], None], what: str, *, same_boot: bool = True) -> None:
        """One update to `config` with `how` done to it, which may wait; and all that has to be so afterwards."""
        before, boot_id = len(self.events()), self.host.boot_id
        try:
            self.start(config)
            how()
            self.finish(config)
            self.check(config, before, rebooted=not same_boot)
            if same_boot:
                assert self.host.boot_id == boot_id, "a needless reboot"
        except Exception as error:
            error.add_note(f"on the way to {config.letter}: {what}")
            raise

    def kill_at(self, config: Config, point: Point | None) -> None:
        """One update, in which the daemon is killed at that point, if any."""
        if point is not None:
            (self.place / "at").write_text(f"kill {point.number}")
        self.disturbed(config, lambda: None, f"killed at {point}")
        assert not (self.place / "at").exists(), f"{point} was not reached"

    def kill_after(self, config: Config, seconds: float) -> None:
        def kill() -> None:
            time.sleep(seconds)
            self.host.kill(agent.UNIT)

        what = f"killed after {seconds:.3f} s of {self.seconds:.3f} s"
        self.disturbed(config, kill, what)
        self.kills += 1
        # A late kill leaves the update nothing to do, so that it is over before systemd has started the daemon again.
        self.host.wait_for(lambda: self.restarts() == self.kills, f"systemd restarts the daemon {what}")

    def restarts(self) -> int:
        return int(self.host.unit(agent.UNIT, "NRestarts")["NRestarts"])

    def cut_at(self, config: Config, point: Point) -> None:
        """One update, in which the host loses its power at that point."""
        reached = self.place / "reached"
        (self.place / "at").write_text(f"stop {point.number}")

        def cut() -> None:
            self.host.wait_for(reached.exists, f"{point} is reached")
            self.host.power_off()
            reached.unlink()
            self.host.boot()

        self.disturbed(config, cut, f"the power was cut at {point}", same_boot=False)

    def check(self, config: Config, before: int, *, rebooted: bool) -> None:
        host = self.host
        changed = difference(self.known[config.letter], self.snapshot())
        assert not changed, f"the host is not as after an undisturbed update: {changed}"
        noted = self.events()[before:]
        for unit, digest in config.digests().items():
            if rebooted and unit == "extra.service" and config is A:
                continue  # disabled there, so nothing starts it at boot
            seen = [event.digest for event in noted if event.unit == unit and event.event != "stop"]
            assert seen, f"{unit}: the action did not run"
            assert seen[-1] == digest, f"{unit} runs with old content"
        assert any(event.unit == "crio.service" and event.event == "start" for event in noted)
        assert f"core:{agent.password_hash(config.letter)}:" in (host.root / "etc/shadow").read_text()
        assert host.unit("extra.service", "NeedDaemonReload")["NeedDaemonReload"] == "no"
        (record,) = self.store("SELECT json FROM record")
        assert (record["phase"], record["update_id"]) == ("Idle", "")
        assert self.store("SELECT json FROM lease") == []
        assert self.store("SELECT '\"' || key || '\"' FROM snapshots") == []
        history = self.store("SELECT json FROM history ORDER BY seq")
        assert len(history) == self.entries, "each update is in the history once"
        assert (history[-1]["outcome"], history[-1]["to_name"]) == ("done", config.letter)


@pytest.fixture
def killpoint_node(make_node: HostMaker) -> Host:
    return make_node(settings=SETTINGS, files={agent.POLICY: POLICY, **KILLABLE, **NO_LIMIT})


def steps(points: Sequence[Point]) -> list[Point]:
    """Before and after every step, and each phase; after one and before the next is the same if nothing is between."""
    effects = [
        (last, point) for last, point in itertools.pairwise(points) if point.name.startswith(("step-", "phase "))
    ]
    return [p for last, p in effects if not (p.name.startswith("step-started") and last.name.startswith("step-done"))]


def notes(points: Sequence[Point]) -> list[Point]:
    """Before every write of the store, which is where something was done and not yet noted."""
    return [point for point in points if point.name.startswith("before ") and point.name.split()[1] in STORE_CALLS]


@pytest.mark.long
def test_the_plan_is_worth_it(killpoint_node: Host) -> None:
    """The updates have at least eight steps of every kind, in both directions: the other tests kill at these."""
    updates = Updates(killpoint_node)
    for letter, other in (("b", "a"), ("a", "b")):
        names = [point.name for point in updates.points[letter]]
        done = [name.removeprefix("step-done ") for name in names if name.startswith("step-done")]
        for step in (
            *(f"write {path}" for path in Config(letter).files),
            f"remove /etc/quiet/{other}",
            "write /etc/systemd/system/extra.service",
            "enable extra.service" if letter == "b" else "disable extra.service",
            "write /home/core/.ssh/authorized_keys.d/ignition",
            "set password of core",
            "daemon-reload",
            "reload reloadable.service",
            *(f"restart {unit}" for unit in ("crio.service", "coreos-update-ca-trust.service", "extra.service")),
        ):
            assert step in done
            assert names.index(f"step-started {step}") < names.index(f"step-done {step}")
    assert {point.name.split()[1] for point in notes(updates.points["a"])} == STORE_CALLS


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_before_and_after_every_step(killpoint_node: Host, part: int) -> None:
    updates = Updates(killpoint_node)
    # Steps and phases on the way to B; on the way back what is noted in the store.
    there, back = steps(updates.points["b"])[part::PARTS], notes(updates.points["a"])[part::PARTS]
    assert len(there) >= len(back) >= 4
    for one, other in itertools.zip_longest(there, back):
        updates.kill_at(B, one)
        updates.kill_at(A, other)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(RANDOM_PARTS))
def test_killed_at_random_times(make_node: HostMaker, part: int) -> None:
    updates = Updates(make_node(settings=SETTINGS, files={agent.POLICY: POLICY, DROPIN: AT_ONCE, **NO_LIMIT}))
    chance = random.Random(SEED + part)
    for run in range(RUNS // RANDOM_PARTS):
        updates.kill_after((B, A)[run % 2], chance.uniform(0, updates.seconds))
    assert updates.restarts() == RUNS // RANDOM_PARTS


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_power_is_cut(killpoint_node: Host) -> None:
    updates = Updates(killpoint_node)
    for there, back in zip(sample(updates.points["b"], 0), sample(updates.points["a"], 1), strict=True):
        updates.cut_at(B, there)
        updates.cut_at(A, back)
    assert killpoint_node.reboots == 0, "power cuts are no reason to reboot"


def sample(points: Sequence[Point], offset: int) -> list[Point]:
    """CUTS points, evenly over the whole update; others with another `offset`."""
    stride = len(points) / CUTS
    return [points[int((index + 0.25 + offset / 2) * stride)] for index in range(CUTS)]
