# SPDX-License-Identifier: Apache-2.0
"""A test host: boots an image, follows its reboots, and is asked and changed from outside.

Everything is synchronous and has a deadline in seconds. A failed wait says what was awaited and shows the end of the
host's journal. A host is a context manager; leaving it kills the container and removes its directory, in that order.

    with Host(image) as host:
        host.boot()
        host.run(["systemctl", "reload", "crio.service"])
        with host.rebooting():
            host.run(["systemctl", "reboot"])
        host.power_cut()
"""

from __future__ import annotations

import atexit
import contextlib
import secrets
import shlex
import subprocess
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from integration.hosts import overlay, process
from integration.hosts.container import cgroup
from integration.hosts.container import image as image_cache
from integration.hosts.container.image import Image, cache_directory
from integration.hosts.container.nspawn import Boot, Container
from integration.hosts.errors import CommandFailed, HostGone, HostTimeout
from integration.hosts.locks import claim, leftovers
from integration.hosts.testhost import COMMAND_TIMEOUT, GUEST_ENV, TestHost

BOOT_TIMEOUT = 90.0
# What logind asks of systemd for one, which no inhibitor stops.
SOFT_REBOOT = ("systemctl", "start", "--no-block", "--job-mode=replace-irreversibly", "soft-reboot.target")
MANAGER_PROPERTY = (
    *("busctl", "get-property", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"),
    "org.freedesktop.systemd1.Manager",
)

_open_hosts: weakref.WeakSet[Host] = weakref.WeakSet()


class Host(TestHost):
    """Off until boot(); boot again after power_off() or a shutdown from inside."""

    def __init__(
        self,
        image: Image,
        *,
        disk: str | None = None,
        read_only: Mapping[str, Path] | None = None,
        devices: Mapping[str, Path] | None = None,
    ) -> None:
        """`disk` limits what the host may write to that size in memory (such as "64m"), for tests with a full disk.

        `read_only` binds directories of this machine into the host, `devices` its device nodes.
        """
        self.name = f"na-{secrets.token_hex(4)}"
        self.directory = hosts_directory() / self.name
        self._lock = claim(self.directory)
        binds = [f"--bind-ro={source}:{target}" for target, source in (read_only or {}).items()]
        binds += [f"--bind={source}:{target}" for target, source in (devices or {}).items()]
        self.container = self._install(image, disk, binds)
        _open_hosts.add(self)

    def _install(self, image: Image, disk: str | None, binds: Sequence[str]) -> Container:
        """Make the files of the host, as `self.root`, and the container that boots them."""
        self.root = self.directory / "root"
        store = self.directory / "disk"
        if disk is not None:
            overlay.mount_tmpfs(store, disk)
        overlay.mount(image.paths, store / "upper", self.root)
        (self.root / "etc/machine-id").write_text(uuid.uuid4().hex + "\n")
        # Newer than /usr of every layer, or each boot starts with the work that follows an OS update.
        for stamp in ("etc/.updated", "var/.updated"):
            (self.root / stamp).write_text("")
        return Container(self.name, self.root, self.directory, binds)

    def _enter_files(self) -> list[str]:
        """Return the command prefix that runs a program on the files of the host while it is off."""
        return ["chroot", str(self.root)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the host and remove what it wrote. Does nothing the second time."""
        if self._lock.closed:
            return
        self.container.kill()
        overlay.unmount_below(self.directory)
        overlay.remove_tree(self.directory)
        self._lock.close()
        _open_hosts.discard(self)

    # On and off

    def boot(self, timeout: float = BOOT_TIMEOUT) -> Boot:
        """Power on and wait until the boot is complete (systemd says `running` or `degraded`)."""
        awaited = len(self.container.boots) + 1
        self.container.start()
        return self._wait_boot(awaited, timeout)

    @contextlib.contextmanager
    def rebooting(self, timeout: float = BOOT_TIMEOUT) -> Iterator[None]:
        """Around an action that makes the host reboot: ends when the next boot is complete."""
        awaited = len(self.container.boots) + 1
        yield
        self._wait_boot(awaited, timeout)

    def soft_reboot(self, timeout: float = BOOT_TIMEOUT) -> None:
        """Start the userspace again, as an admin does, and wait until it is up. The kernel stays: this is no boot."""
        before = self.soft_reboots
        self.run(SOFT_REBOOT)
        self.wait_for(lambda: self.soft_reboots > before, "the userspace starts again", timeout)
        states = ("running", "degraded")
        up = ["systemctl", "is-system-running"]
        self.wait_for(lambda: self.run(up, check=False, timeout=3).stdout.strip() in states, "it has started", timeout)

    @property
    def soft_reboots(self) -> int:
        """Return the number of soft reboots in this boot, as systemd counts."""
        # A command that meets the bus while it goes down may wait for as long as it is let.
        return int(self.run([*MANAGER_PROPERTY, "SoftRebootsCount"], timeout=3).stdout.split()[1])

    def power_cut(self, timeout: float = BOOT_TIMEOUT) -> Boot:
        """Kill everything in the host in one instant, then boot it again.

        What was written is kept even where it was not synced: only the VM can lose that.
        """
        self.power_off()
        return self.boot(timeout)

    def power_off(self) -> None:
        """Kill everything in the host in one instant and leave it off."""
        self.container.kill()

    @property
    def boots(self) -> list[Boot]:
        """All boots of this host so far, the present one last."""
        return self.container.boots

    @property
    def reboots(self) -> int:
        """Return the number of reboots; power cuts do not count."""
        return sum(boot.after_reboot for boot in self.boots)

    @property
    def boot_id(self) -> str:
        return self.boots[-1].boot_id

    def keep_logs(self, directory: Path) -> Path:
        """Copy the console and the journal (as text and as the export format) to `directory`, on or off."""
        directory.mkdir(parents=True, exist_ok=True)
        if self.container.console.exists():
            (directory / "console.log").write_bytes(self.container.console.read_bytes())
        for name, form in (("journal.txt", "short-precise"), ("journal.export", "export")):
            with contextlib.suppress(CommandFailed, HostGone):
                argv = ["journalctl", "--quiet", "--no-pager", f"--output={form}"]
                (directory / name).write_bytes(self.execute(argv, check=False).stdout)
        return directory

    def _wait_boot(self, awaited: int, timeout: float) -> Boot:
        try:
            return self.container.wait_ready(awaited, timeout)
        except (HostGone, HostTimeout) as error:
            raise type(error)(f"{error}{self.evidence()}") from None

    def evidence(self) -> str:
        boots = ", ".join(boot.boot_id[:8] for boot in self.boots)
        return f"\n--- host {self.name}, boots: {boots or 'none'}; end of its journal:\n{self.journal_tail()}"

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
        if self.container.running:
            # The kernel has one wall clock and one set of modules: a command in the guest must not reach ours.
            less = ["setpriv", "--bounding-set=-sys_time,-sys_module,-sys_rawio", "--"]
            enter = [*less, "nsenter", f"--target={self.container.leader}", "-m", "-p", "-u", "-i", "-n", "-C", "--"]
        else:
            enter = self._enter_files()
        become = ["runuser", f"--user={user}", "--"] if user is not None else []
        try:
            return process.run(
                [*enter, *become, *argv],
                stdin=stdin,
                check=check,
                timeout=timeout,
                env={**GUEST_ENV, **(env or {})},
                shown=argv,
            )
        except CommandFailed as error:
            if "nsenter" in enter and not self.container.running:
                raise HostGone(f"host {self.name} went off during: {shlex.join(argv)}") from error
            raise


def hosts_directory() -> Path:
    return cache_directory() / "hosts"


def sweep() -> None:
    """Remove what killed test runs left behind: mounts, files, and a container that does not want to shut down."""
    for directory in leftovers(hosts_directory(), "na-*"):
        cgroup.remove(cgroup.path_of(directory.name))
        overlay.unmount_below(directory)
        overlay.remove_tree(directory)
    image_cache.sweep()


@atexit.register
def _close_all() -> None:
    for host in list(_open_hosts):
        host.close()
