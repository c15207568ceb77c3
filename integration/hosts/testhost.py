# SPDX-License-Identifier: Apache-2.0
"""Operations of a test on a host of any kind: all of them are commands that run in it.

Everything is synchronous and has a deadline in seconds. A failed wait says what was awaited and shows the end of the
host's journal.
"""

from __future__ import annotations

import abc
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from integration.hosts import snapshot
from integration.hosts.container import events
from integration.hosts.errors import CommandFailed, HostGone, HostTimeout
from tests.support.schemas import assert_fitting

T = TypeVar("T")

COMMAND_TIMEOUT = 90.0  # seconds, as all waits here on a machine that others keep busy
JOURNAL_TAIL = 40  # lines in an error
GUEST_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8", "HOME": "/root"}


class TestHost(abc.ABC):
    """A host that a test runs commands in. Each kind of host has its own way to get a command into it."""

    # The name is that of a host for tests. pytest collects no tests from it.
    __test__ = False

    least_pause = 0.0
    """Seconds between two questions of a wait, at least: where they are dear they must not be what keeps it busy."""

    @abc.abstractmethod
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
        """Run a command in the host; see run(), which is the same for text."""

    @abc.abstractmethod
    def evidence(self) -> str:
        """Return the text of a failed wait: the host, its boots, the end of its journal."""

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
        done = self.execute(argv, stdin.encode(), check=check, timeout=timeout, user=user, env=env)
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        if argv[0] == "nodeagent" and "--json" in argv and "logs" not in argv:
            assert_fitting(out)
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def read(self, path: str) -> bytes:
        """Content of a file of the host, links followed as the host sees them. Raises CommandFailed without it."""
        return self.execute(["cat", "--", path]).stdout

    def read_text(self, path: str) -> str:
        return self.read(path).decode()

    def exists(self, path: str) -> bool:
        return self.run(["test", "-e", path, "-o", "-L", path], check=False).returncode == 0

    def write(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str = "root") -> None:
        """Put a file in place by rename, with its parents, so that a watcher never sees half of it."""
        data = content.encode() if isinstance(content, str) else content
        # Not install(1) from /dev/stdin: a host that is off has no /dev.
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1.new" && chmod "$2" "$1.new" && chown "$3" "$1.new"'
        self.execute(["sh", "-c", f'{script} && mv -T "$1.new" "$1"', "write", path, f"{mode:o}", owner], data)

    def snapshot(self, *paths: str) -> dict[str, snapshot.Entry]:
        """Every entry at and below `paths`, for snapshot.difference()."""
        names = [path.lstrip("/") for path in paths]
        argv = ["tar", "--create", "--directory=/", "--numeric-owner", "--hard-dereference", "--", *names]
        return snapshot.from_tar(self.execute(argv).stdout)

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
        lines = self.execute(argv, check=False).stdout.splitlines()
        return [{field: _field_text(value) for field, value in json.loads(line).items()} for line in lines]

    def journal_tail(self, lines: int = JOURNAL_TAIL) -> str:
        """Return the last lines of the journal as text, or why there are none. Never raises."""
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
        """Return the notes of the stand-ins of all boots, in order; of one `unit`, of one boot id."""
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

    def wait_for(self, predicate: Callable[[], T | None], what: str, timeout: float = 90.0, every: float = 0.1) -> T:
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
            time.sleep(max(every, self.least_pause))
        because = f" ({last})" if last is not None else ""
        raise HostTimeout(f"{what}: not so after {timeout:g} s{because}{self.evidence()}")


def _field_text(value: object) -> str:
    """journalctl prints a field that is not UTF-8 as a list of bytes, and one that occurs twice as a list of those."""
    match value:
        case list() if value and all(isinstance(item, int) for item in value):
            return bytes(value).decode(errors="replace")
        case list():
            return "\n".join(_field_text(item) for item in value)
        case _:
            return str(value)
