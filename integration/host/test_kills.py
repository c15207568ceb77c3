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
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from integration.host import agent, events
from integration.host.agent import FileSpec, UnitSpec
from integration.host.certificate import CERTIFICATE
from integration.host.conftest import HostMaker
from integration.host.machine import Host
from integration.host.snapshot import Snapshot, difference

PLACE = "/run/killpoint"
DROPIN = "/etc/systemd/system/nodeagent.service.d/50-killpoint.conf"
STARTED_BY_US = """\
[Service]
ExecStart=
ExecStart=/usr/lib/nodeagent/bin/python3 -BIS /usr/libexec/killpoint.py
"""
AT_ONCE = "[Service]\nRestartSec=10ms\n"
# The services are restarted far more often than on any real host.
NO_LIMIT = {
    f"/etc/systemd/system/{unit}.service.d/50-no-limit.conf": "[Unit]\nStartLimitIntervalSec=0\n"
    for unit in ("crio", "reloadable", "coreos-update-ca-trust", "extra")
}

CA_BUNDLE = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"
POLICY_JSON = "/etc/containers/policy.json"
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
SEED = 20240229
RUNS = 50


@dataclass(frozen=True)
class Config:
    """One of two that differ in everything that an update can change."""

    letter: str

    @property
    def files(self) -> dict[str, str]:
        return {
            f"/etc/quiet/{self.letter}": f"only in {self.letter}",  # so the other one is removed
            "/etc/quiet/both": self.letter,
            "/etc/reloadable.conf": f"reloadable {self.letter}",
            POLICY_JSON: '{"default": [{"type": "insecureAcceptAnything"}]}' + "\n" * (self.letter == "b"),
            CA_BUNDLE: f"# bundle {self.letter}\n{CERTIFICATE}",
        }

    @property
    def text(self) -> str:
        key = {"a": "A", "b": "B"}[self.letter] * 43
        mode = {"a": 0o644, "b": 0o600}[self.letter]
        return agent.machine_config(
            self.letter,
            files={path: FileSpec(text, mode if "quiet" in path else 0o644) for path, text in self.files.items()},
            units={"extra.service": UnitSpec(EXTRA.format(letter=self.letter), enabled=self.letter == "b")},
            keys=[f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{key} core"],
            password_hash=f"$6$salt${self.letter}",
        )

    def digests(self, host: Host) -> dict[str, str]:
        """What each unit has to have seen when it was acted on last."""
        registries = host.read("/etc/containers/registries.conf")
        files = {path: text.encode() for path, text in self.files.items()}
        return {
            "crio.service": events.digest(registries, files[POLICY_JSON]),
            "coreos-update-ca-trust.service": events.digest(files[CA_BUNDLE]),
            "reloadable.service": events.digest(files["/etc/reloadable.conf"]),
            "extra.service": events.digest(files[f"/etc/quiet/{self.letter}"]),
        }


A, B = Config("a"), Config("b")


class Updates:
    """Goes from config to config on one host, and proves after each that nothing shows of what was done to it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.known: dict[str, Snapshot] = {}
        self.points: dict[str, list[tuple[int, str]]] = {}
        self.seconds = 0.0
        agent.apply(host, A.text)
        agent.wait_done(host, "a")
        for config in (B, A):
            started = time.monotonic()
            self.go(config)
            self.seconds = time.monotonic() - started
            self.known[config.letter] = self.snapshot()
            if host.exists(f"{PLACE}/points"):
                self.points[config.letter] = self.listed()

    def listed(self) -> list[tuple[int, str]]:
        lines = [line.split(" ", 1) for line in self.host.read_text(f"{PLACE}/points").splitlines()]
        return [(int(number), name) for number, name in lines]

    def snapshot(self) -> Snapshot:
        entries = self.host.snapshot("/etc", "/var/home/core")
        # Copies by chpasswd of what it replaced, the one before last after a kill; and what the test itself writes.
        for path in ("/etc/shadow-", "/etc/.pwd.lock", agent.DESIRED):
            entries.pop(path, None)
        return entries

    def store(self, query: str) -> list[Any]:
        """Read from outside, as another process of the host could."""
        path = self.host.root / agent.STORE.lstrip("/")
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as store:
            return [json.loads(row[0]) for row in store.execute(query)]

    def start(self, config: Config) -> None:
        agent.write_desired(self.host, config.text)

    def finish(self, config: Config) -> None:
        agent.wait_done(self.host, config.letter)

    def go(self, config: Config) -> None:
        self.start(config)
        self.finish(config)

    def kill_at(self, config: Config, number: int) -> None:
        """One update, in which the daemon is killed at that point."""
        self.host.write(f"{PLACE}/at", f"{number} kill")
        self.go(config)
        assert not self.host.exists(f"{PLACE}/at"), "the point was not reached"

    def cut_at(self, config: Config, number: int) -> None:
        """One update, in which the host loses its power at that point."""
        self.host.write(f"{PLACE}/at", f"{number} stop")
        self.start(config)
        self.host.wait_for(lambda: self.host.exists(f"{PLACE}/reached"), "the point is reached")
        self.host.power_cut()
        self.finish(config)

    def check(self, config: Config, entries: int, *, events_before: int, same_boot: str = "") -> None:
        """All that has to be so after an update, whatever happened in the middle of it."""
        host = self.host
        changed = difference(self.known[config.letter], self.snapshot())
        assert not changed, f"the host is not as after an undisturbed update: {changed}"
        noted = host.events()[events_before:]
        for unit, digest in config.digests(host).items():
            seen = [event.digest for event in noted if event.unit == unit and event.event != "stop"]
            assert seen, f"{unit}: the action did not run"
            assert seen[-1] == digest, f"{unit} runs with old content"
        assert f"core:$6$salt${config.letter}:" in host.read_text("/etc/shadow")
        assert host.unit("extra.service", "NeedDaemonReload")["NeedDaemonReload"] == "no"
        (record,) = self.store("SELECT json FROM record")
        assert (record["phase"], record["update_id"]) == ("Idle", "")
        assert agent.status(host)["lease"] is None
        history = self.store("SELECT json FROM history ORDER BY seq")
        assert len(history) == entries, "each update is in the history once"
        assert (history[-1]["outcome"], history[-1]["to_name"]) == ("done", config.letter)
        assert self.store("SELECT '\"' || key || '\"' FROM snapshots") == []
        if same_boot:
            assert host.boot_id == same_boot, "a needless reboot"
            assert history[-1]["reboots"] == 0


@pytest.fixture
def killpoint_node(make_node: HostMaker) -> Host:
    return make_node(settings=SETTINGS, files={agent.POLICY: POLICY, DROPIN: STARTED_BY_US + AT_ONCE, **NO_LIMIT})


def steps(points: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(number, name) for number, name in points if name.startswith(("step-", "phase ", "update-"))]


def calls(points: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(number, name) for number, name in points if name.startswith(("before ", "after "))]


def test_the_plan_is_worth_it(killpoint_node: Host) -> None:
    """At least eight steps, of every kind, in both directions: what the other tests kill at."""
    updates = Updates(killpoint_node)
    for letter, other in (("b", "a"), ("a", "b")):
        names = [name for _, name in updates.points[letter]]
        done = [name.removeprefix("step-done ") for name in names if name.startswith("step-done")]
        assert len(done) >= 8
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


def test_killed_before_and_after_every_step(killpoint_node: Host) -> None:
    updates = Updates(killpoint_node)
    host, boot_id = killpoint_node, killpoint_node.boot_id
    entries = 3
    # Every step and phase on the way to B; on the way back every call, which includes "done, but not yet noted".
    for there, back in itertools.zip_longest(steps(updates.points["b"]), calls(updates.points["a"])):
        for config, point in ((B, there), (A, back)):
            entries += 1
            before = len(host.events())
            try:
                if point is None:
                    updates.go(config)
                else:
                    updates.kill_at(config, point[0])
                updates.check(config, entries, events_before=before, same_boot=boot_id)
            except Exception as error:
                error.add_note(f"on the way to {config.letter}, killed at {point}")
                raise


def test_killed_at_random_times(make_node: HostMaker) -> None:
    host = make_node(settings=SETTINGS, files={agent.POLICY: POLICY, DROPIN: AT_ONCE, **NO_LIMIT})
    updates = Updates(host)
    chance = random.Random(SEED)
    restarts = 0
    for run in range(RUNS):
        config = (B, A)[run % 2]
        before, delay = len(host.events()), chance.uniform(0, updates.seconds)
        try:
            updates.start(config)
            time.sleep(delay)
            host.kill(agent.UNIT)
            updates.finish(config)
            updates.check(config, 4 + run, events_before=before, same_boot=host.boots[0].boot_id)
        except Exception as error:
            error.add_note(f"run {run} to {config.letter}, killed after {delay:.3f} s of {updates.seconds:.3f} s")
            raise
        restarts += 1
    assert int(host.unit(agent.UNIT, "NRestarts")["NRestarts"]) == restarts


def test_the_power_is_cut(killpoint_node: Host) -> None:
    updates = Updates(killpoint_node)
    host = killpoint_node
    entries = 3
    kinds = [name for _, name in updates.points["b"]]
    points = {config.letter: sample(updates.points[config.letter], 8, seed) for seed, config in enumerate((B, A))}
    assert kinds
    for config, number, name in itertools.chain.from_iterable(
        ((B, *there), (A, *back)) for there, back in zip(points["b"], points["a"], strict=True)
    ):
        entries += 1
        before = len(host.events())
        try:
            updates.cut_at(config, number)
            updates.check(config, entries, events_before=before)
        except Exception as error:
            error.add_note(f"on the way to {config.letter}, the power was cut at {number} {name}")
            raise
    assert host.reboots == 0, "power cuts are no reason to reboot"


def sample(points: Sequence[tuple[int, str]], count: int, offset: int) -> list[tuple[int, str]]:
    """Evenly over the whole update; with another `offset` others."""
    stride = len(points) / count
    return [points[int((index + 0.25 + offset / 2) * stride)] for index in range(count)]
