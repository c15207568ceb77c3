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
import fcntl
import json
import secrets
import shlex
import subprocess
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from integration.host import cgroup, events, overlay, process, snapshot
from integration.host.container import Boot, Container
from integration.host.errors import CommandFailed, HostGone, HostTimeout
from integration.host.image import Image, cache_directory

T = TypeVar("T")

BOOT_TIMEOUT = 30.0
COMMAND_TIMEOUT = 30.0
JOURNAL_TAIL = 40  # lines in an error
GUEST_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8", "HOME": "/root"}

_open_hosts: weakref.WeakSet[Host] = weakref.WeakSet()


class Host:
    """Off until boot(); boot again after power_off() or a shutdown from inside."""

    def __init__(self, image: Image, *, disk: str | None = None, read_only: Mapping[str, Path] | None = None) -> None:
        """`disk` limits what the host may write to that size in memory (such as "64m"), for tests with a full disk.

        `read_only` binds directories of this machine into the host.
        """
        self.name = f"na-{secrets.token_hex(4)}"
        self.directory = hosts_directory() / self.name
        self.directory.mkdir(parents=True)
        self._lock = (self.directory / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        binds = [f"--bind-ro={source}:{target}" for target, source in (read_only or {}).items()]
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
        """What runs a command on the files of the host while it is off."""
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
        """Around what makes the host reboot by itself: ends when the next boot is complete."""
        awaited = len(self.container.boots) + 1
        yield
        self._wait_boot(awaited, timeout)

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
        """How often the host rebooted by itself; power cuts do not count."""
        return sum(boot.after_reboot for boot in self.boots)

    @property
    def boot_id(self) -> str:
        return self.boots[-1].boot_id

    # Ask and change

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str = "",
        check: bool = True,
        timeout: float = COMMAND_TIMEOUT,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the host, as root or as `user`. While the host is off it runs on its files only (chroot).

        Raises CommandFailed for a status other than 0 (unless `check` is false) and at the deadline, HostGone between
        two boots.
        """
        done = self._execute(argv, stdin.encode(), check=check, timeout=timeout, user=user, env=env)
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def read(self, path: str) -> bytes:
        """Content of a file of the host, links followed as the host sees them. Raises CommandFailed without it."""
        return self._execute(["cat", "--", path], b"").stdout

    def read_text(self, path: str) -> str:
        return self.read(path).decode()

    def exists(self, path: str) -> bool:
        return self.run(["test", "-e", path, "-o", "-L", path], check=False).returncode == 0

    def write(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str = "root") -> None:
        """Put a file in place by rename, with its parents, so that whoever watches it never sees half of it."""
        data = content.encode() if isinstance(content, str) else content
        # Not install(1) from /dev/stdin: a host that is off has no /dev.
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1.new" && chmod "$2" "$1.new" && chown "$3" "$1.new"'
        self._execute(["sh", "-c", f'{script} && mv -T "$1.new" "$1"', "write", path, f"{mode:o}", owner], data)

    def snapshot(self, *paths: str) -> dict[str, snapshot.Entry]:
        """Every entry at and below `paths`, for snapshot.difference()."""
        names = [path.lstrip("/") for path in paths]
        argv = ["tar", "--create", "--directory=/", "--numeric-owner", "--hard-dereference", "--", *names]
        return snapshot.from_tar(self._execute(argv, b"").stdout)

    def journal(
        self, unit: str | None = None, *, boot: str | None = None, match: Mapping[str, str] | None = None
    ) -> list[dict[str, str]]:
        """Entries of all boots, the oldest first: of a `unit`, of one boot id, with all fields of `match`."""
        argv = ["journalctl", "--output=json", "--all", "--quiet", "--no-pager"]
        if unit is not None:
            argv.append(f"--unit={unit}")
        if boot is not None:
            argv.append(f"--boot={boot.replace('-', '')}")
        argv += [f"{field}={value}" for field, value in (match or {}).items()]
        # Status 1 only says that nothing matched.
        lines = self._execute(argv, b"", check=False).stdout.splitlines()
        return [{field: _field_text(value) for field, value in json.loads(line).items()} for line in lines]

    def journal_tail(self, lines: int = JOURNAL_TAIL) -> str:
        """The last lines of the journal as a person reads them, or why there are none. Never raises."""
        argv = ["journalctl", "--quiet", "--no-pager", "--output=short-monotonic", f"--lines={lines}"]
        try:
            return self.run(argv, check=False, timeout=10).stdout
        except (HostGone, CommandFailed) as error:
            return f"(no journal: {error})"

    # Units

    def unit(self, unit: str, *properties: str) -> dict[str, str]:
        """Properties of a unit by name, as `systemctl show` prints them."""
        argv = ["systemctl", "show", unit, *(f"--property={name}" for name in properties)]
        return dict(line.split("=", 1) for line in self.run(argv).stdout.splitlines() if "=" in line)

    def is_active(self, unit: str) -> bool:
        return self.unit(unit, "ActiveState")["ActiveState"] == "active"

    def kill(self, target: str | int, signal: str = "SIGKILL") -> None:
        """Send a signal to the main process of a unit, or to a pid as the host counts them."""
        if isinstance(target, int):
            self.run(["kill", f"-{signal.removeprefix('SIG')}", str(target)])
        else:
            self.run(["systemctl", "kill", f"--signal={signal}", "--kill-whom=main", target])

    def events(self, unit: str | None = None, *, boot: str | None = None) -> list[events.UnitEvent]:
        """What the stand-ins noted in all boots, in order; of one `unit`, of one boot id."""
        if not self.exists(events.EVENTS):
            return []
        found = events.parse(self.read_text(events.EVENTS))
        return [event for event in found if unit in (None, event.unit) and boot in (None, event.boot_id)]

    def log_in(self, user: str) -> None:
        """Open a login session for `user` that stays until the next boot; logind knows it like one on a terminal."""
        self.run(
            [
                *("systemd-run", f"--unit=login-{user}", f"--uid={user}", "--property=PAMName=login"),
                *("--property=Environment=XDG_SESSION_TYPE=tty XDG_SESSION_CLASS=user", "sleep", "infinity"),
            ]
        )
        self.wait_for(lambda: user in self.run(["loginctl", "list-sessions", "--no-legend"]).stdout, f"{user} logs in")

    # Bad disks

    def mount_tmpfs(self, path: str, size: str) -> None:
        """Cover `path` with an empty, small filesystem (size as in mount(8)) until the next boot."""
        self.run(["mkdir", "-p", path])
        self.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", path])

    def fill_disk(self, path: str) -> None:
        """Write the new file `path` until its filesystem has no byte left; remove it to have room again."""
        for block in ("1M", "4k", "1"):
            self.run(["dd", "if=/dev/zero", f"of={path}", f"bs={block}", "oflag=append", "conv=notrunc"], check=False)

    def make_read_only(self, path: str) -> None:
        """Make a directory read-only (EROFS) until the next boot or until it is unmounted."""
        self.run(["mount", "--bind", path, path])
        self.run(["mount", "-o", "remount,bind,ro", path])

    def set_immutable(self, path: str, *, on: bool = True) -> None:
        """Set or clear the attribute that makes even root get EPERM."""
        self.run(["chattr", "+i" if on else "-i", path])

    # Waiting

    def wait_for(self, predicate: Callable[[], T | None], what: str, timeout: float = 30.0, every: float = 0.05) -> T:
        """Ask `predicate` until it says something true and return that. Failed commands and reboots count as no."""
        deadline = time.monotonic() + timeout
        last: Exception | None = None
        while time.monotonic() < deadline:
            try:
                if answer := predicate():
                    return answer
                last = None
            except (CommandFailed, HostGone) as error:
                last = error
            time.sleep(every)
        because = f" ({last})" if last is not None else ""
        raise HostTimeout(f"{what}: not so after {timeout:g} s{because}{self._evidence()}")

    def keep_logs(self, directory: Path) -> Path:
        """Copy the console and the journal (as text and as the export format) to `directory`, on or off."""
        directory.mkdir(parents=True, exist_ok=True)
        if self.container.console.exists():
            (directory / "console.log").write_bytes(self.container.console.read_bytes())
        for name, form in (("journal.txt", "short-precise"), ("journal.export", "export")):
            with contextlib.suppress(CommandFailed, HostGone):
                argv = ["journalctl", "--quiet", "--no-pager", f"--output={form}"]
                (directory / name).write_bytes(self._execute(argv, b"", check=False).stdout)
        return directory

    def _wait_boot(self, awaited: int, timeout: float) -> Boot:
        try:
            return self.container.wait_ready(awaited, timeout)
        except (HostGone, HostTimeout) as error:
            raise type(error)(f"{error}{self._evidence()}") from None

    def _evidence(self) -> str:
        boots = ", ".join(boot.boot_id[:8] for boot in self.boots)
        return f"\n--- host {self.name}, boots: {boots or 'none'}; end of its journal:\n{self.journal_tail()}"

    def _execute(
        self,
        argv: Sequence[str],
        stdin: bytes,
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
    for directory in hosts_directory().glob("na-*"):
        with contextlib.suppress(FileNotFoundError), (directory / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # in use by a parallel run
            cgroup.remove(cgroup.path_of(directory.name))
            overlay.unmount_below(directory)
            overlay.remove_tree(directory)


@atexit.register
def _close_all() -> None:
    for host in list(_open_hosts):
        host.close()


def _field_text(value: object) -> str:
    """journalctl prints a field that is not UTF-8 as a list of bytes, and one that occurs twice as a list of those."""
    match value:
        case list() if value and all(isinstance(item, int) for item in value):
            return bytes(value).decode(errors="replace")
        case list():
            return "\n".join(_field_text(item) for item in value)
        case _:
            return str(value)
