# SPDX-License-Identifier: Apache-2.0
"""A really booted ostree system in a virtual machine: follows its reboots, loses its power, and is asked from outside.

It does what every `TestHost` does, synchronously and with deadlines in seconds, as the hosts of
`integration.hosts.container` do:

    with Vm(image) as vm:
        vm.boot()
        vm.run(["ostree", "admin", "status"])
        with vm.rebooting():
            vm.run(["systemctl", "reboot"])
        vm.power_cut()

After a reboot the machine boots what the first entry in /boot/loader/entries of its disk says by then: kernel,
initramfs and kernel arguments.

**Power cuts lose what was not flushed.** QEMU is killed. With it goes the guest's memory, so all of the page cache
that was never written. And of what was written to the disk, and not flushed (by fsync, syncfs, a commit of the
filesystem's journal), everything that went to a new cluster (64 KiB) of the overlay: QEMU keeps the tables that say
where clusters are in its own memory, and writes them when the guest flushes (this is so with `cache=unsafe` as well,
which only does not wait for the disk of this machine). A cluster that was flushed once is overwritten in place; a later
write to it stays even without a flush, as a real disk may choose to. So what survives is always something that a
disk with a volatile cache could have left, and everything that was flushed.
"""

from __future__ import annotations

import atexit
import contextlib
import secrets
import shlex
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from integration.hosts import overlay
from integration.hosts.container.container_host import MANAGER_PROPERTY
from integration.hosts.container.image import cache_directory
from integration.hosts.errors import CommandFailed, HostGone, HostRingError, HostTimeout
from integration.hosts.locks import claim, leftovers
from integration.hosts.testhost import COMMAND_TIMEOUT, GUEST_ENV, TestHost
from integration.hosts.vm import disk
from integration.hosts.vm.image import DiskImage
from integration.hosts.vm.qemu import End, Hardware, Kernel, Qemu

AGENT_TIMEOUT = 600.0  # seconds until the agent answers; without KVM on a machine with other work
BOOT_TIMEOUT = 900.0
STOP_TIMEOUT = 60.0
BUS_TIMEOUT = 60.0
DISK_ID = "/machine/peripheral/vda/virtio-backend"

_open: weakref.WeakSet[Vm] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Live:
    """A booted guest, frozen: its disk, and its memory and devices. Made by `live.py`."""

    directory: Path
    options: str

    @property
    def disk(self) -> Path:
        return self.directory / "disk.qcow2"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def kernel(self) -> Kernel:
        """QEMU wants the same as when the state was saved, though the guest will never look at it again."""
        return Kernel(self.directory / "vmlinuz", self.directory / "initrd", self.options)


@dataclass(frozen=True, slots=True)
class Boot:
    boot_id: str
    options: str  # the kernel arguments of the boot loader entry
    after_reboot: bool  # the guest asked for it, as opposed to boot()
    seconds: float  # from power on until the agent answered


class Vm(TestHost):
    """Off until boot(); boot again after power_off() or a shutdown from inside."""

    least_pause = 2.0  # without KVM a question keeps the guest busy for a good part of a second

    def __init__(
        self,
        image: DiskImage,
        *,
        media: DiskImage | None = None,
        accel: str = "tcg",
        memory: int = 1024,
        cpus: int = 1,
        live: Live | None = None,
    ) -> None:
        """`media` is a second disk, read-only and never throttled; `memory` is in MiB.

        With `live`, which was made from the same image on the same hardware, the first boot() goes on from there.
        """
        self.name = f"vm-{secrets.token_hex(4)}"
        self.directory = machines_directory() / self.name
        self._lock = claim(self.directory)
        self.disk = self.directory / "disk.qcow2"
        if live is None:
            disk.overlay(self.disk, image.path, "raw")
        else:
            disk.overlay(self.disk, live.disk, "qcow2")
        self._live = live
        self.hardware = Hardware(accel, self.disk, media.path if media is not None else None, memory, cpus)
        self._changed = threading.Condition()
        self._boots: list[Boot] = []
        self._qemu: Qemu | None = None
        self._ready = False
        self._ended = "never started"
        self._failure: Exception | None = None
        self._killed = False
        self._thread: threading.Thread | None = None
        _open.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the power away and remove what it wrote. Does nothing the second time."""
        if self._lock.closed:
            return
        self.power_off()
        overlay.remove_tree(self.directory)
        self._lock.close()
        _open.discard(self)

    # On and off

    def boot(self, timeout: float = BOOT_TIMEOUT, *, complete: bool = True) -> Boot:
        """Power on, and wait until the boot is complete (`running` or `degraded`), or only until the agent answers."""
        awaited = len(self.boots) + 1
        self.start()
        return self.wait_boot(awaited, timeout, complete=complete)

    def start(self) -> None:
        """Power on and return."""
        if self.running:
            raise HostRingError(f"{self.name} is already on")
        self._killed, self._failure = False, None
        self._thread = threading.Thread(target=self._follow, name=self.name, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def rebooting(self, timeout: float = BOOT_TIMEOUT, *, complete: bool = True) -> Iterator[None]:
        """Around an action that makes the guest reboot: ends when the next boot is complete."""
        awaited = len(self.boots) + 1
        yield
        self.wait_boot(awaited, timeout, complete=complete)

    def power_cut(self, timeout: float = BOOT_TIMEOUT, *, complete: bool = True) -> Boot:
        """Lose the power, with what was not flushed (see above), and boot again."""
        self.power_off()
        return self.boot(timeout, complete=complete)

    def power_off(self) -> None:
        """Lose the power and stay off."""
        with self._changed:
            self._killed = True
            if self._qemu is not None:
                self._qemu.kill()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT)
            if self._thread.is_alive():
                raise HostRingError(f"{self.name} is still there {STOP_TIMEOUT:g} s after it was killed")

    def wait_off(self, timeout: float) -> None:
        """Wait until the guest powered itself off."""
        if self._thread is not None:
            self._thread.join(timeout)
        if self.running:
            raise HostTimeout(f"{self.name} is still on after {timeout:g} s{self.evidence()}")

    def wait_boot(self, awaited: int, timeout: float, *, complete: bool = True) -> Boot:
        """Wait for the boot with this number (the first is 1), or a later one."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while len(self._boots) < awaited and self.running and time.monotonic() < deadline:
                self._changed.wait(0.2)
        if len(self.boots) < awaited:
            if not self.running:
                raise HostGone(
                    f"{self.name} is off ({self._why_off()}) while boot {awaited} was awaited{self._console()}"
                )
            raise HostTimeout(f"{self.name}: boot {awaited} did not come in {timeout:g} s{self._console()}")
        if complete:
            # Ends when nothing is left to start; a status other than 0 is a unit that failed.
            self.run(["systemctl", "is-system-running", "--wait"], check=False, timeout=deadline - time.monotonic())
        return self.boots[-1]

    def freeze(self, directory: Path) -> None:
        """Stop for good and leave in `directory` what a Live needs."""
        qemu = self._powered()
        self.run(["sync"])
        options = self.boots[-1].options
        qemu.save(directory / "state")
        self.wait_off(STOP_TIMEOUT)
        self.disk.replace(directory / "disk.qcow2")
        for name in ("vmlinuz", "initrd"):
            (self.directory / "kernel" / name).replace(directory / name)
        (directory / "options").write_text(options)

    @property
    def running(self) -> bool:
        """Return whether it is on, which includes the moment between two boots."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def boots(self) -> list[Boot]:
        """All boots in which the agent answered, the present one last."""
        with self._changed:
            return list(self._boots)

    @property
    def reboots(self) -> int:
        """Return the number of reboots; power cuts do not count."""
        return sum(boot.after_reboot for boot in self.boots)

    @property
    def boot_id(self) -> str:
        return self.boots[-1].boot_id

    @property
    def soft_reboots(self) -> int:
        """Return the number of soft reboots in this boot, as systemd counts. Raises HostGone during one."""
        # A command that meets the bus while it goes down may wait for as long as it is let.
        try:
            answer = self.run([*MANAGER_PROPERTY, "SoftRebootsCount"], timeout=BUS_TIMEOUT)
        except HostTimeout as error:
            # On a busy machine the guest's agent is away for longer than the deadline.
            raise HostGone(str(error)) from None
        return int(answer.stdout.split()[1])

    @contextlib.contextmanager
    def soft_rebooting(self, timeout: float = BOOT_TIMEOUT) -> Iterator[None]:
        """Around an action that makes the userspace start again: ends when that is complete. This is no boot."""
        before = self.soft_reboots
        yield
        self.wait_for(lambda: self.soft_reboots > before, "the userspace starts again", timeout)
        up = ["systemctl", "is-system-running"]
        running = ("running", "degraded")
        self.wait_for(lambda: self.run(up, check=False).stdout.strip() in running, "it has started", timeout)

    # Hardware

    @property
    def pid(self) -> int:
        """Return the pid of QEMU. Raises HostGone while the machine is off."""
        return self._powered().pid

    def qmp(self, command: str, **arguments: Any) -> Any:
        """A command to QEMU itself. Raises HostGone while the machine is off."""
        return self._powered().qmp.execute(command, **arguments)

    def throttle(self, *, iops: int, bytes_per_second: int, piece: int = 32768) -> None:
        """Slow the system disk (all partitions, reads and writes together) until unthrottle() or the next boot.

        A request counts once for every `piece` bytes begun. Flushes are never slowed by QEMU.
        """
        limits = {"iops": iops, "bps": bytes_per_second, "iops_size": piece}
        self.qmp("block_set_io_throttle", id=DISK_ID, iops_rd=0, iops_wr=0, bps_rd=0, bps_wr=0, **limits)

    def unthrottle(self) -> None:
        self.qmp("block_set_io_throttle", id=DISK_ID, iops=0, iops_rd=0, iops_wr=0, bps=0, bps_rd=0, bps_wr=0)

    # Ask

    def execute(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        *,
        check: bool = True,
        timeout: float = COMMAND_TIMEOUT,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        become = ["runuser", f"--user={user}", "--"] if user is not None else []
        channel = self._powered().channel
        try:
            answer = channel.run([*become, *argv], stdin, {**GUEST_ENV, **(env or {})}, timeout)
        except (HostGone, HostTimeout) as error:
            raise type(error)(f"{self.name}: {error} during: {shlex.join(argv)}") from None
        said = (answer.stderr.strip() or answer.stdout.strip()).decode(errors="replace")[-2000:]
        status = answer.head["status"]
        if status is None:
            because = answer.head.get("error", f"still running after {timeout:g} s")
            raise CommandFailed(f"{shlex.join(argv)}: {because}{': ' + said if said else ''}")
        if check and status != 0:
            raise CommandFailed(f"{shlex.join(argv)}: exit status {status}{': ' + said if said else ''}")
        return subprocess.CompletedProcess(list(argv), status, answer.stdout, answer.stderr)

    def evidence(self) -> str:
        boots = ", ".join(boot.boot_id[:8] for boot in self.boots)
        return (
            f"\n--- {self.name}, boots: {boots or 'none'}; end of its journal:\n{self.journal_tail()}{self._console()}"
        )

    def keep_logs(self, directory: Path) -> Path:
        """Copy the serial consoles of all boots, what QEMU said, and the journal if the guest is on."""
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("console.log", "serial.log", "qemu.log"):
            with contextlib.suppress(FileNotFoundError):
                (directory / name).write_bytes((self.directory / name).read_bytes())
        for name, form in (("journal.txt", "short-precise"), ("journal.export", "export")):
            with contextlib.suppress(CommandFailed, HostGone, HostTimeout):
                argv = ["journalctl", "--quiet", "--no-pager", f"--output={form}"]
                (directory / name).write_bytes(self.execute(argv, check=False).stdout)
        return directory

    def _powered(self) -> Qemu:
        with self._changed:
            if self._qemu is None or not self._ready:
                raise HostGone(f"{self.name} is off or between two boots ({self._why_off()})")
            return self._qemu

    def _why_off(self) -> str:
        return str(self._failure) if self._failure is not None else self._ended

    def _console(self) -> str:
        texts = [self.directory / name for name in ("console.log", "serial.log")]
        lines = [line for path in texts if path.exists() for line in path.read_text(errors="replace").splitlines()]
        return "\n--- end of its console:\n" + "\n".join(lines[-20:])

    # The thread: QEMU dies with the thread that started it, so one thread starts all of them

    def _follow(self) -> None:
        after_reboot = False
        try:
            while not self._killed:
                self._ended = (end := self._run_once(after_reboot)).value
                if not self._goes_on(end):
                    return
                after_reboot = True
        except Exception as error:  # raised in the thread that waits; this one has no caller
            self._failure = error
        finally:
            with self._changed:
                self._changed.notify_all()

    def _next_kernel(self) -> Kernel:
        """Return what a boot loader would start now."""
        return disk.boot_entry(self.disk, self.directory / "kernel")

    def _goes_on(self, end: End) -> bool:
        """Return whether the machine boots again after this end of QEMU."""
        return end is End.REBOOT

    def _run_once(self, after_reboot: bool) -> End:
        live, self._live = self._live, None
        kernel = live.kernel if live is not None else self._next_kernel()
        started = time.monotonic()
        with self._changed:
            if self._killed:
                return End.POWER_CUT
            state = live.state if live is not None else None
            qemu = self._qemu = Qemu(self.directory, self.hardware, kernel, state=state)
        greeter = threading.Thread(target=self._greet, args=(qemu, kernel, after_reboot, started), daemon=True)
        greeter.start()
        try:
            return qemu.wait()
        finally:
            with self._changed:
                self._qemu, self._ready = None, False
            greeter.join()

    def _greet(self, qemu: Qemu, kernel: Kernel, after_reboot: bool, started: float) -> None:
        with contextlib.suppress(HostGone, HostTimeout):  # the waiting call has a deadline
            hello = qemu.channel.greet(time.time(), AGENT_TIMEOUT)  # noqa: TID251 - the guest's clock is set to it
            with self._changed:
                if self._qemu is qemu:
                    self._boots.append(Boot(hello["boot"], kernel.options, after_reboot, time.monotonic() - started))
                    self._ready = True
                self._changed.notify_all()


def machines_directory() -> Path:
    return cache_directory() / "machines"


def sweep() -> None:
    """Remove what killed test runs left behind."""
    for directory in leftovers(machines_directory(), "vm-*"):
        overlay.remove_tree(directory)


@atexit.register
def _close_all() -> None:
    for vm in list(_open):
        vm.close()
