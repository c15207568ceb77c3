# SPDX-License-Identifier: Apache-2.0
"""One systemd-nspawn container that boots a directory and follows its reboots.

A thread starts nspawn, hears from it over the sd_notify protocol which process leads the guest and when its boot is
complete, and starts it again when it ends with the status that means "rebooted". Everything else that ends it (power
off, a crash, kill()) leaves it off until the next start().
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.hosts.container import cgroup
from integration.hosts.errors import HostGone, HostRingError, HostTimeout

REBOOTED = 133  # exit status of nspawn --keep-unit after a reboot of the guest (EXIT_FORCE_RESTART in systemd)
OPTIONS = ("--register=no", "--keep-unit", "--notify-ready=yes", "--console=pipe")
NAMESPACE = "--network-namespace-path="  # in place of a private network, which ends with each boot
STOP_TIMEOUT = 60.0
BOOT_ID = "proc/sys/kernel/random/boot_id"
LAUNCH = Path(__file__).with_name("launch.py")


@dataclass(frozen=True, slots=True)
class Boot:
    """One run of the guest's systemd."""

    boot_id: str  # as in /proc/sys/kernel/random/boot_id: with dashes
    leader: int  # pid of the guest's PID 1 as seen from outside
    after_reboot: bool  # the guest asked for it, as opposed to start()


class Container:
    """Off until start(). Safe to ask from any thread; only one may call start() and kill()."""

    def __init__(self, name: str, root: Path, state: Path, extra: Sequence[str] = ()) -> None:
        """`state` is a directory for the console log and the notification socket; `extra` goes to nspawn as it is."""
        self.name = name
        self.console = state / "console.log"
        self.cgroup = cgroup.path_of(name)
        self._root = root
        self._notify = state / "notify"
        self._extra = list(extra)
        self._changed = threading.Condition()
        self._boots: list[Boot] = []
        self._leader: int | None = None
        self._ready = False
        self._killed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: str = "never started"
        self._thread: threading.Thread | None = None

    @property
    def boots(self) -> list[Boot]:
        with self._changed:
            return list(self._boots)

    @property
    def leader(self) -> int:
        """Pid of the guest's PID 1. Raises HostGone while there is none."""
        with self._changed:
            if self._leader is None:
                raise HostGone(f"host {self.name} is off or between two boots ({self._ended})")
            return self._leader

    @property
    def running(self) -> bool:
        """Return whether it is on, which includes the moment between two boots."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        if self.running:
            raise HostRingError(f"host {self.name} is already on")
        self._killed = False
        self.cgroup.mkdir(exist_ok=True)
        self._thread = threading.Thread(target=self._run, name=f"nspawn-{self.name}", daemon=True)
        self._thread.start()

    def wait_ready(self, boots: int, timeout: float) -> Boot:
        """Wait until the `boots`-th boot since the beginning (or a later one) is complete."""

        def ready_or_off() -> bool:
            return (len(self._boots) >= boots and self._ready) or not self.running

        with self._changed:
            # The thread's end is no notification of its own, so look now and then as well.
            deadline = time.monotonic() + timeout
            while not ready_or_off() and time.monotonic() < deadline:
                self._changed.wait(0.2)
            if len(self._boots) >= boots and self._ready:
                return self._boots[-1]
            if not self.running:
                raise HostGone(f"host {self.name} is off ({self._ended}) while boot {boots} was awaited")
            raise HostTimeout(f"host {self.name}: boot {boots} was not complete after {timeout:g} s")

    def kill(self) -> None:
        """Take the power away: nothing in the guest runs another instruction. Returns when all of it is gone."""
        with self._changed:
            self._killed = True
            process, leader = self._process, self._leader
        if process is not None and process.poll() is None:
            # nspawn cleans up behind a leader that died; it is killed itself only where it has none.
            target = leader if leader is not None else process.pid
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, signal.SIGKILL)
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT)
            if self._thread.is_alive():
                raise HostRingError(f"host {self.name} is still there {STOP_TIMEOUT:g} s after it was killed")

    def wait_off(self, timeout: float) -> None:
        """Wait until the guest powered itself off."""
        if self._thread is not None:
            self._thread.join(timeout)
        if self.running:
            raise HostTimeout(f"host {self.name} is still on after {timeout:g} s")

    def _run(self) -> None:
        try:
            after_reboot = False
            while not self._killed:
                status = self._run_once(after_reboot)
                with self._changed:
                    self._leader, self._ready, self._process = None, False, None
                    self._ended = f"nspawn ended with status {status}, see {self.console}"
                    self._changed.notify_all()
                if status != REBOOTED:
                    break
                after_reboot = True
        finally:
            cgroup.remove(self.cgroup)

    def _run_once(self, after_reboot: bool) -> int:
        self._notify.unlink(missing_ok=True)
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify,
            self.console.open("ab") as console,
            selectors.DefaultSelector() as selector,
        ):
            notify.bind(str(self._notify))
            with self._changed:
                if self._killed:
                    return -signal.SIGKILL
                process = self._spawn(console.fileno())
                self._process = process
            ended = os.pidfd_open(process.pid)
            try:
                selector.register(notify, selectors.EVENT_READ)
                selector.register(ended, selectors.EVENT_READ)
                while True:
                    for key, _ in selector.select():
                        if key.fileobj is notify:
                            self._heard(notify.recv(4096).decode(errors="replace"), after_reboot)
                        else:
                            return process.wait()
            finally:
                os.close(ended)

    def _spawn(self, console: int) -> subprocess.Popen[bytes]:
        scope: list[str] = []
        given = any(option.startswith(NAMESPACE) for option in self._extra)
        network = [] if given else ["--private-network"]
        if Path("/run/systemd/system").is_dir():
            # Where systemd rules the machine, a cgroup of our own making would be in its way: ask it for one.
            scope = ["systemd-run", "--scope", "--quiet", "--collect", "--property=Delegate=yes"]
        return subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(LAUNCH), str(self.cgroup), str(os.getpid())),
                *scope,
                *self._command(["systemd-nspawn", f"--machine={self.name}", *OPTIONS, *network, *self._extra]),
            ],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            # Without the first, nspawn picks the v1 hierarchy of a machine that has one, and a guest of today hangs.
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "NOTIFY_SOCKET": str(self._notify)},
        )

    def _command(self, nspawn: list[str]) -> list[str]:
        """The command line that boots the guest, from one of nspawn that lacks the root and what to run there."""
        return [*nspawn, f"--directory={self._root}", "--boot"]

    def _heard(self, message: str, after_reboot: bool) -> None:
        fields = dict(line.split("=", 1) for line in message.splitlines() if "=" in line)
        with self._changed:
            if "X_NSPAWN_LEADER_PID" in fields:
                leader = int(fields["X_NSPAWN_LEADER_PID"])
                # A power cut may come before we get to look; then nspawn ends and there was no boot.
                with contextlib.suppress(OSError):
                    boot_id = Path(f"/proc/{leader}/root/{BOOT_ID}").read_text().strip()
                    self._leader = leader
                    self._boots.append(Boot(boot_id, leader, after_reboot))
            if fields.get("READY") == "1" and self._leader is not None:
                self._ready = True
            self._changed.notify_all()
