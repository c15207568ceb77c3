# SPDX-License-Identifier: Apache-2.0
"""Other faults of a host: full and read-only disks, services that are gone, a damaged store, bad input.

The same each time: a reason that scripts can match, the old state whole, and the agent goes on when it can.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import KILLABLE, KILLPOINTS
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.errors import CommandFailed
from integration.hosts.snapshot import difference

SMALL = "/etc/small"
RELOADABLE = "/etc/reloadable.conf"
POLICY = agent.policy(
    files={
        SMALL: ["None"],
        "/etc/quiet": ["None"],
        RELOADABLE: ["Restart reloadable.service"],
        "/etc/first.conf": ["Restart crio.service"],
    },
)
QUICK = {"actions": {"timeout": 10, "settle": 0.5}, "reboot": {"inhibitor_wait": 2}}
# Makes a restart last long enough to disturb the host during it.
SLOW_START = "[Service]\nExecStartPre=sleep 2\n"
SLOW = {"/etc/systemd/system/reloadable.service.d/10-slow.conf": SLOW_START}


@pytest.fixture
def node(make_node: HostMaker) -> Host:
    return make_node(settings=QUICK, files={agent.POLICY: POLICY})


@pytest.fixture
def slow_node(make_node: HostMaker) -> Host:
    """reloadable.service takes two seconds to restart."""
    return make_node(settings=QUICK, files={agent.POLICY: POLICY, **SLOW})


def reloadable(name: str) -> str:
    return agent.machine_config(name, files={RELOADABLE: name})


def restarting(host: Host) -> None:
    """Wait until the slow restart of reloadable.service is under way."""
    host.wait_for(
        lambda: host.unit("reloadable.service", "ActiveState")["ActiveState"] == "activating", "the restart goes on"
    )


def assert_done_without_reboot(host: Host, name: str, *, starts: int) -> None:
    agent.wait_done(host, name)
    assert agent.outcomes(host)[-1] == (name, "done")
    assert host.reboots == 0
    assert agent.unit_events(host, "reloadable.service").count("reloadable.service start") == starts
    assert host.read_text(RELOADABLE) == name


# Disks

# What can be known before is refused before the lease, so these faults come between the plan and the first write.
FIRST_WRITE = "step-started write /etc/first.conf"


@pytest.fixture
def killable_node(make_node: HostMaker) -> Host:
    return make_node(settings=QUICK, files={agent.POLICY: POLICY, **KILLABLE})


def assert_fails_late(host: Host, config: str, break_it: Callable[[Host], None], reason: str) -> None:
    """Start the update to `bad`, break the host right before the first write, and check that all is taken back."""
    host.write(f"{KILLPOINTS}/at", f"stop {FIRST_WRITE}")
    agent.write_desired(host, config)
    host.wait_for(lambda: host.exists(f"{KILLPOINTS}/reached"), f"{FIRST_WRITE} is reached")
    break_it(host)
    before, noted = host.snapshot("/etc"), len(host.events())
    host.kill(agent.UNIT)
    entry = agent.wait_outcome(host, "bad")
    assert (entry["outcome"], entry["reason"], entry["reboots"]) == ("reverted", reason, 0)
    changed = [line for line in difference(before, host.snapshot("/etc")) if agent.DESIRED not in line]
    assert changed == [], "the old state is whole"
    assert agent.unit_events(host, since=noted) == [], "nothing was restarted for files that never came"
    assert agent.status(host)["reason"] == "Reverted"
    with pytest.raises(CommandFailed, match="PathBlocked"):
        agent.apply(host, config)


def full_disk(host: Host) -> None:
    host.run(["cp", "-a", SMALL, "/root/kept"])
    host.mount_tmpfs(SMALL, "64k")
    host.run(["cp", "-a", "/root/kept/.", SMALL])
    host.fill_disk(f"{SMALL}/ballast")


@pytest.mark.long
def test_no_space_where_a_file_should_go(killable_node: Host) -> None:
    host = killable_node
    agent.apply(host, _small("good", "old"))
    agent.wait_done(host, "good")
    assert_fails_late(host, _small("bad", "x" * 100_000), full_disk, "NoSpace")
    host.run(["umount", SMALL])
    agent.apply(host, _small("fits", "new"))
    agent.wait_done(host, "fits")


def _small(name: str, text: str) -> str:
    return agent.machine_config(name, files={"/etc/first.conf": text[:3], f"{SMALL}/file": text})


def read_only_disk(host: Host) -> None:
    """All of a filesystem, as after a disk error: a mount alone would be read-only for others than the agent."""
    host.run(["cp", "-a", "/etc/quiet/file", "/root/file"])
    host.mount_tmpfs("/etc/quiet", "64k")
    host.run(["cp", "-a", "/root/file", "/etc/quiet/file"])
    host.run(["mount", "-o", "remount,ro", "/etc/quiet"])


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        pytest.param(read_only_disk, "ReadOnly", marks=pytest.mark.long),
        (lambda host: host.set_immutable("/etc/quiet/file"), "Immutable"),
        pytest.param(lambda host: host.set_immutable("/etc/quiet"), "Immutable", marks=pytest.mark.long),
    ],
    ids=["a read-only directory", "an immutable file", "an immutable directory"],
)
def test_a_file_that_cannot_be_written(killable_node: Host, break_it: Callable[[Host], None], reason: str) -> None:
    host = killable_node
    agent.apply(host, agent.machine_config("good", files={"/etc/first.conf": "old", "/etc/quiet/file": "old"}))
    agent.wait_done(host, "good")
    bad = agent.machine_config("bad", files={"/etc/first.conf": "new", "/etc/quiet/file": "new"})
    assert_fails_late(host, bad, break_it, reason)


def small_state(host: Host) -> None:
    """Give the agent a filesystem of its own for its state, which a test can fill."""
    host.run(["systemctl", "stop", agent.UNIT])
    host.run(["cp", "-a", "/var/lib/nodeagent", "/root/state"])
    host.mount_tmpfs("/var/lib/nodeagent", "1m")
    host.run(["cp", "-a", "/root/state/.", "/var/lib/nodeagent"])
    host.run(["chmod", "700", "/var/lib/nodeagent"])
    host.write(f"/etc/systemd/system/{agent.UNIT}.d/10-soon.conf", "[Service]\nRestartSec=200ms\n")
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "start", agent.UNIT])
    agent.wait_daemon(host)


def is_logged(host: Host, reason: str) -> bool:
    return any(entry.get("NODEAGENT_REASON") == reason for entry in host.journal(agent.UNIT))


@pytest.mark.long
def test_a_full_state_directory(node: Host) -> None:
    agent.apply(node, reloadable("one"))
    agent.wait_done(node, "one")
    small_state(node)
    node.fill_disk("/var/lib/nodeagent/ballast")
    noted = len(node.events())
    agent.write_desired(node, reloadable("two"))
    node.wait_for(lambda: is_logged(node, "NoSpace"), "the journal names the reason")
    assert node.read_text(RELOADABLE) == "one", "what cannot be remembered is not begun"
    assert agent.unit_events(node, since=noted) == []
    node.run(["rm", "/var/lib/nodeagent/ballast"])
    agent.write_desired(node, reloadable("two"))  # the next attempt would be in half a minute
    assert agent.wait_outcome(node, "two")["outcome"] == "done"
    assert node.reboots == 0


@pytest.mark.finding(
    "store: writes that fail",
    "A store that fails while an update is under way is reported and tried again; the daemon stays up.",
)
@pytest.mark.long
@pytest.mark.slow
def test_the_state_directory_fills_in_the_middle(slow_node: Host) -> None:
    """An action that cannot be recorded must not be repeated."""
    host = slow_node
    agent.apply(host, reloadable("one"))
    agent.wait_done(host, "one")
    small_state(host)
    noted = len(host.events())
    agent.write_desired(host, reloadable("two"))
    restarting(host)
    host.fill_disk("/var/lib/nodeagent/ballast")
    host.wait_for(lambda: agent.status(host)["reason"] == "NoSpace", "the status names the reason")
    time.sleep(8)  # in which it tries again twice
    assert host.unit(agent.UNIT, "NRestarts")["NRestarts"] == "0"
    assert agent.unit_events(host, since=noted).count("reloadable.service start") == 1
    failed = agent.status(host)
    assert (failed["phase"], failed["reason"]) == ("Degraded", "NoSpace")
    host.run(["rm", "/var/lib/nodeagent/ballast"])
    agent.wait_done(host, "two", after=failed["since"])
    assert agent.outcomes(host)[-1] == ("two", "done")
    assert agent.unit_events(host, since=noted).count("reloadable.service start") <= 2
    assert host.reboots == 0


# Services that the agent talks to


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ["systemctl", "kill", "--signal=SIGKILL", "dbus.service"],
        ["systemctl", "restart", "dbus.service"],
        ["systemctl", "daemon-reexec"],
        ["systemctl", "daemon-reload"],
    ],
    ids=["the bus is killed", "the bus is restarted", "systemd re-executes", "systemd reloads"],
)
def test_lost_in_the_middle_of_an_action(slow_node: Host, command: list[str]) -> None:
    host = slow_node
    agent.apply(host, reloadable("one"))
    restarting(host)
    host.run(command)
    assert_done_without_reboot(host, "one", starts=2)
    agent.apply(host, reloadable("two"))
    assert_done_without_reboot(host, "two", starts=3)


@pytest.mark.long
@pytest.mark.parametrize(
    "units",
    [
        ["systemd-journald.socket", "systemd-journald-dev-log.socket", "systemd-journald.service"],
        ["systemd-logind.service"],
        ["polkit.service"],
    ],
    ids=["journald", "logind", "polkit"],
)
def test_a_service_that_is_gone(node: Host, units: list[str]) -> None:
    node.run(["systemctl", "mask", "--runtime", *units])
    node.run(["systemctl", "stop", *units])
    agent.apply(node, reloadable("one"))
    assert_done_without_reboot(node, "one", starts=2)
    node.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(node)
    node.run(["systemctl", "unmask", "--runtime", *units])
    node.run(["systemctl", "start", *units])
    agent.apply(node, reloadable("two"))
    assert_done_without_reboot(node, "two", starts=3)


@pytest.mark.long
def test_a_fallback_reboot_without_logind(node: Host) -> None:
    """The way down has to work on a bad day, too."""
    node.run(["systemctl", "mask", "--runtime", "--now", "systemd-logind.service"])
    policy = agent.policy(files={"/etc/flaky": ["Restart flaky.service"]})
    node.write(agent.POLICY, policy)
    with node.rebooting():
        agent.apply(node, agent.machine_config("new", files={"/etc/flaky/mode": "fail until-reboot"}))
    agent.wait_done(node, "new")
    assert agent.outcomes(node)[-1] == ("new", "done-after-fallback")
    assert node.reboots == 1


# The store


def corrupt_record(path: Path) -> None:
    data = path.read_bytes()
    assert b'"phase"' in data
    path.write_bytes(data.replace(b'"phase"', b'"phaze"'))


def garbage(path: Path) -> None:
    path.write_bytes(b"this is not a store\n" * 500)


def newer(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[60:64] = (99).to_bytes(4, "big")  # user_version, https://www.sqlite.org/fileformat.html, 1.3
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(corrupt_record, "StoreCorrupt", marks=pytest.mark.long),
        pytest.param(garbage, "StoreCorrupt", marks=pytest.mark.long),
        pytest.param(empty, "StoreCorrupt", marks=pytest.mark.long),
        (newer, "StoreTooNew"),
    ],
    ids=["a corrupt record", "garbage", "an empty file", "of a newer version"],
)
def test_a_store_that_cannot_be_read(node: Host, damage: Callable[[Path], None], reason: str) -> None:
    agent.apply(node, reloadable("one"))
    agent.wait_done(node, "one")
    node.run(["systemctl", "stop", agent.UNIT])
    path = node.root / agent.STORE.lstrip("/")
    damage(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    node.run(["systemctl", "start", agent.UNIT], check=False)
    node.run(["systemctl", "reset-failed", agent.UNIT], check=False)
    agent.write_desired(node, reloadable("two"))
    node.wait_for(lambda: is_logged(node, reason), "the journal names the reason")
    asked = node.run(["nodeagent", "status"], check=False)
    assert asked.returncode != 0
    assert reason in asked.stdout + asked.stderr
    assert "Traceback" not in asked.stderr + "".join(entry["MESSAGE"] for entry in node.journal(agent.UNIT))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, "no silent reset"
    assert node.read_text(RELOADABLE) == "one"
    # Moving it away starts afresh: what matches is no change, and nothing is rebooted.
    node.run(["mv", agent.STORE, "/root/damaged"])
    node.run(["systemctl", "restart", agent.UNIT])
    agent.wait_done(node, "two")
    assert node.reboots == 0


@pytest.mark.long
def test_the_state_directory_disappears(node: Host) -> None:
    agent.apply(node, reloadable("one"))
    agent.wait_done(node, "one")
    noted = len(node.events())
    node.run(["systemctl", "stop", agent.UNIT])
    node.run(["rm", "-r", "/var/lib/nodeagent"])
    node.run(["systemctl", "start", agent.UNIT])
    agent.wait_done(node, "one")
    assert agent.unit_events(node, since=noted) == [], "what already is as desired is no change"
    assert node.run(["stat", "--format=%a", "/var/lib/nodeagent"]).stdout.strip() == "700"
    agent.apply(node, reloadable("two"))
    agent.wait_done(node, "two")
    assert node.reboots == 0


@pytest.mark.long
def test_two_daemons_at_once(node: Host) -> None:
    agent.apply(node, reloadable("one"))
    agent.wait_done(node, "one")
    second = node.run(["nodeagent", "daemon"], check=False, timeout=20)
    assert second.returncode != 0
    assert "StoreBusy" in second.stderr
    agent.apply(node, reloadable("two"))
    agent.wait_done(node, "two")
    assert node.unit(agent.UNIT, "NRestarts")["NRestarts"] == "0"


# The desired config


def put(content: bytes, mode: int = 0o600) -> Callable[[Host], None]:
    return lambda host: host.write(agent.DESIRED, content, mode=mode)


def put_by(*argv: str) -> Callable[[Host], None]:
    def act(host: Host) -> None:
        host.run(["rm", "-f", agent.DESIRED])
        host.run(argv)

    return act


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(put(b"\0\xff garbage {{{"), "InvalidInput", marks=pytest.mark.long),
        (put(b"kind: MachineConfig\nspec: [\n"), "InvalidInput"),
        pytest.param(put(reloadable("two").encode()[:-40]), "InvalidInput", marks=pytest.mark.long),
        (put(reloadable("two").encode(), mode=0o666), "UnsafeConfig"),
        (put_by("ln", "-s", "/etc/hostname", agent.DESIRED), "UnsafeConfig"),
        pytest.param(put_by("mkfifo", agent.DESIRED), "UnsafeConfig", marks=pytest.mark.long),
        pytest.param(put_by("mkdir", agent.DESIRED), "UnsafeConfig", marks=pytest.mark.long),
        pytest.param(put_by("truncate", "--size=100M", agent.DESIRED), "TooLarge", marks=pytest.mark.long),
    ],
    ids=["binary", "broken YAML", "truncated", "world-writable", "a link", "a FIFO", "a directory", "100 MB"],
)
def test_a_desired_config_that_is_none(node: Host, spoil: Callable[[Host], None], reason: str) -> None:
    agent.apply(node, reloadable("one"))
    agent.wait_done(node, "one")
    noted = len(node.events())
    spoil(node)
    node.run(["systemctl", "reload", agent.UNIT])  # a directory that appears is no write to the file
    now = agent.wait_phase(node, "Degraded")
    assert (now["reason"], now["current"]) == (reason, "one")
    assert node.unit(agent.UNIT, "NRestarts")["NRestarts"] == "0"
    assert node.read_text(RELOADABLE) == "one"
    node.run(["rm", "-rf", agent.DESIRED])
    agent.write_desired(node, reloadable("one"))
    agent.wait_phase(node, "Idle")
    assert agent.unit_events(node, since=noted) == []
    agent.write_desired(node, reloadable("two"))
    agent.wait_done(node, "two")


def test_the_desired_config_is_removed_in_the_middle(slow_node: Host) -> None:
    host = slow_node
    agent.apply(host, reloadable("one"))
    restarting(host)
    host.run(["rm", agent.DESIRED])
    assert_done_without_reboot(host, "one", starts=2)


# Accounts


def test_chpasswd_is_killed(node: Host) -> None:
    def password(name: str) -> str:
        return agent.machine_config(name, files={RELOADABLE: name}, password_hash=agent.password_hash(name))

    agent.apply(node, password("one"))
    agent.wait_done(node, "one")
    node.write("/root/killed", "#!/bin/sh\nkill -9 $$\n", mode=0o755)
    node.run(["mount", "--bind", "/root/killed", "/usr/sbin/chpasswd"])
    shadow = node.read("/etc/shadow")
    agent.apply(node, password("two"))
    entry = agent.wait_outcome(node, "two")
    assert (entry["outcome"], entry["reason"], entry["reboots"]) == ("reverted", "PasswordNotSet", 0)
    assert node.read("/etc/shadow") == shadow
    assert node.read_text(RELOADABLE) == "one"
    assert agent.occurrences(node, [agent.password_hash("two")]) == [], "no hash in the journal"
    node.run(["umount", "/usr/sbin/chpasswd"])
    failed = agent.status(node)["since"]
    agent.apply(node, password("two"))
    agent.wait_done(node, "two", after=failed)
    assert f"core:{agent.password_hash('two')}:" in node.read_text("/etc/shadow")
