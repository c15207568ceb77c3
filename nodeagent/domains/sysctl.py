# SPDX-License-Identifier: Apache-2.0
"""Settings of the kernel in sysctl.d: a changed value needs no reboot where a restart of systemd-sysctl is the same.

That service writes all settings of all files. So a restart is requested only if the kernel has all other values of the
files already: a program that has set one for itself, such as a network plugin, must not lose it. It is requested only
for a key that a file sets before and after the update, because a revert restarts the service with the previous files,
which does not take away a key that they lack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from nodeagent.core.config.text.plain_json import loads
from nodeagent.core.plan.change import HIDDEN, Change, ChangeKind, KeyChange, shortened
from nodeagent.core.plan.domain import ByContent, Domain, UnitFailure
from nodeagent.core.plan.layers import by_name
from nodeagent.core.plan.policy import DRAIN, REBOOT, Verdict, restart
from nodeagent.core.plan.sides import Sides
from nodeagent.domains import missing_settings as missing
from nodeagent.domains.missing_settings import PROC, SWAP, dotted, first_separator
from nodeagent.errors import Problem

UNIT: Final = "systemd-sysctl.service"
RESTART: Final = (restart(UNIT),)
STRONGEST: Final = (DRAIN, REBOOT)
DIRECTORY: Final = "/etc/sysctl.d"
# The strongest last: its file replaces those of the same name.
DIRECTORIES: Final = ("/usr/lib/sysctl.d", "/usr/local/lib/sysctl.d", "/run/sysctl.d", DIRECTORY)
SUFFIX: Final = ".conf"
MODULES: Final = "/etc/modules-load.d/"
BLANK: Final = " \t\r"
RULE: Final = f"Restart {UNIT}, if only values change that take effect at once; otherwise Drain and Reboot"

# Settings that the kernel reads whenever it needs them, and that change no other setting. Left out are those that a
# socket, a device or an interface takes when it is made, such as net.core.somaxconn and net.ipv4.conf.default.
AT_ONCE: Final = frozenset(
    {
        *(f"vm/{name}" for name in ("swappiness", "vfs_cache_pressure", "max_map_count", "overcommit_memory")),
        *(f"vm/{name}" for name in ("panic_on_oom", "oom_kill_allocating_task")),
        *(f"vm/{name}" for name in ("dirty_expire_centisecs", "dirty_writeback_centisecs", "page-cluster")),
        *(f"vm/{name}" for name in ("min_free_kbytes", "watermark_scale_factor", "stat_interval")),
        *(f"fs/{name}" for name in ("file-max", "aio-max-nr", "pipe-user-pages-hard", "pipe-user-pages-soft")),
        *(f"fs/{name}" for name in ("protected_fifos", "protected_hardlinks", "protected_regular")),
        *(f"fs/{name}" for name in ("protected_symlinks", "epoll/max_user_watches")),
        *(f"fs/inotify/{name}" for name in ("max_user_instances", "max_user_watches")),
        *(f"net/core/{name}" for name in ("netdev_budget", "netdev_budget_usecs", "netdev_max_backlog")),
        *(f"net/ipv4/{name}" for name in ("icmp_ratelimit", "ip_local_port_range")),
        *(f"net/ipv4/{name}" for name in ("tcp_fin_timeout", "tcp_max_orphans", "tcp_max_tw_buckets")),
        *(f"net/ipv4/{name}" for name in ("tcp_orphan_retries", "tcp_syncookies", "tcp_tw_reuse")),
        *(f"net/ipv{version}/neigh/default/gc_thresh{number}" for version in (4, 6) for number in (1, 2, 3)),
        "net/netfilter/nf_conntrack_max",
    }
)
# The kernel does something whenever they are written, also with the same value. Others of this kind cannot be read.
AT_WRITE: Final = ("vm/drop_caches",)
USER: Final = re.compile(r"user/max_[a-z_]+")
# Other forms of a number read back differently.
PLAIN: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
# Parts of names whose values are not shown: net.ipv4.tcp_fastopen_key, stable_secret of an interface.
SECRET: Final = ("secret", "key")
# Names and patterns that are compared with the kernel. A host with more has the strongest actions.
MAX_NAMES: Final = 200
MAX_GLOBS: Final = 10


@dataclass(frozen=True, slots=True)
class FileSettings:
    """One file. ``values``: name to value, None for a name that no pattern sets. ``invalid``: numbers of lines.
    ``optional`` are names that may be missing, by a dash before them."""

    values: Mapping[str, str | None] = field(default_factory=dict)
    invalid: tuple[int, ...] = ()
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """All files: ``values`` as of one file, the strongest wins. ``files`` by path, of those that count."""

    files: Mapping[str, FileSettings]
    values: Mapping[str, str | None]


def parse(content: bytes) -> FileSettings:
    """Read one file as systemd-sysctl does, which skips a line that is no assignment and fails after all others.

    Names are those below ``/proc/sys``, with slashes. Raises nothing.
    """
    values: dict[str, str | None] = {}
    invalid: list[int] = []
    optional: set[str] = set()
    for number, line in enumerate(content.decode(errors="replace").split("\n"), 1):
        text = line.strip(BLANK)
        if not text or text[0] in "#;":
            continue
        left, equals, right = text.partition("=")
        # The dash means that a failure is ignored; without a value, that no pattern sets the name.
        name = _name(left.strip(BLANK).removeprefix("-").strip(BLANK))
        if not name or not (equals or text.startswith("-")) or not all(map(_is_text, text)):
            invalid.append(number)
            continue
        # The last assignment counts, also for the order.
        values.pop(name, None)
        values[name] = right.strip(BLANK) if equals else None
        if text.startswith("-"):
            optional.add(name)
    return FileSettings(values, tuple(invalid), frozenset(optional))


def _name(text: str) -> str:
    """Return a name with slashes; "" for an empty name and for a name that leads out of the directory."""
    # The first separator decides: a slash keeps the dots of a name, a dot exchanges both.
    path = text.translate(SWAP) if first_separator(text) == "." else text
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "" if ".." in parts else "/".join(parts)


def _is_text(letter: str) -> bool:
    return letter == "\t" or letter.isprintable()


def is_glob(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def read_all(files: Mapping[str, bytes]) -> KernelSettings:
    """Return the settings of the files that systemd-sysctl reads of these, path to content."""
    read = {path: parse(files[path]) for path in by_name(files, DIRECTORIES, SUFFIX)}
    values: dict[str, str | None] = {}
    for settings in read.values():
        values |= settings.values
    return KernelSettings(read, values)


class SysctlDomain(Domain):
    def reads(self, sides: Sides) -> Collection[str]:
        if not _changed(sides):
            return ()
        names = {name for side in (sides.before, sides.after) for name in read_all(side).values}
        globs = sorted(filter(is_glob, names))
        exact = sorted(names.difference(globs))
        files = [f"{PROC}/{name}" for name in (*exact[:MAX_NAMES], *globs[:MAX_GLOBS])]
        return (
            *(f"{directory}/" for directory in DIRECTORIES),
            *files,
            *missing.reads(sides.host, _named(sides)),
        )

    def changes(self, sides: Sides) -> Sequence[KeyChange]:
        if not (changed := _changed(sides)):
            return ()
        before, after = read_all(sides.before), read_all(sides.after)
        differing = sorted(
            name
            for name in before.values.keys() | after.values.keys()
            if before.values.get(name, "") != after.values.get(name, "")
        )
        obstacle = _invalid(before, after) or _others(after, differing, sides.host.files)
        key_changes: list[KeyChange] = []
        for name in differing:
            path = _document(name, changed, before, after)
            problem = _doubt(name, path, before, after, sides.host.files) or obstacle
            was, now = (_shown(name, settings.values.get(name)) for settings in (before, after))
            key_changes.append(KeyChange(path, dotted(name), was, now, STRONGEST if problem else RESTART, problem))
        for path in changed:
            if any(key.document == path for key in key_changes):
                continue
            # The order counts: some keys reset others.
            old, new = (_written(path, settings) for settings in (before, after))
            if old != new or None in new:
                # A file that is not known here, such as a link to /dev/null, may be the one that counts.
                obstacle = "its keys are set elsewhere or in another order, or a line is no setting"
                key_changes.append(KeyChange(path, "(all)", "", "", STRONGEST, obstacle))
        return key_changes

    def actions(self, change: Change, sides: Sides) -> Verdict:
        if change.kind is ChangeKind.ADDED and _is_read(change.key) and change.key not in _changed(sides):
            return Verdict(STRONGEST, "the host has the file already, and maybe not its values")
        return super().actions(change, sides)

    def warnings(self, sides: Sides) -> Iterator[Problem]:
        for path in _changed(sides):
            for number in parse(sides.after.get(path, b"")).invalid:
                yield Problem(path, f"line {number} is no setting: {UNIT} fails because of it, after all others")
        brings = any(path.startswith(MODULES) for path in sides.new.files)
        for name, path in _named(sides).items():
            if message := missing.doubt(sides.host, name, brings=brings):
                yield Problem(path, message)

    def curable(self, failure: UnitFailure) -> bool:
        """A value that the kernel refuses is refused at a boot as well."""
        return failure.unit != UNIT

    def live_values(self, unit: str, keys: Sequence[KeyChange], *, reverted: bool) -> Mapping[str, str]:
        """Return the files of the kernel that have a value after a restart of ``unit`` for ``keys``, and that value;
        with ``reverted``, after a restart with the previous files."""
        if unit != UNIT:
            return {}
        ours = [key for key in keys if key.document.startswith(f"{DIRECTORY}/") and key.actions == RESTART]
        # Only names of AT_ONCE have that action, so no dot is a part of a name.
        return {
            f"{PROC}/{key.key.replace('.', '/')}": str(loads(key.before if reverted else key.after)) for key in ours
        }


def _changed(sides: Sides) -> list[str]:
    paths = {path for config in (sides.old, sides.new) for path in config.files if _is_read(path)}
    return sorted(path for path in paths if sides.before.get(path) != sides.after.get(path))


def _named(sides: Sides) -> dict[str, str]:
    """Return the names that the changed files set on the new side without a dash, and those files."""
    path_of: dict[str, str] = {}
    for path in _changed(sides):
        read = parse(sides.after.get(path, b""))
        path_of |= {name: path for name in read.values if not is_glob(name) and name not in read.optional}
    return dict(list(path_of.items())[:MAX_NAMES])


def _written(path: str, settings: KernelSettings) -> Sequence[tuple[str, str | None] | None]:
    """Return the settings of a file, in order, and None for each line that is no setting."""
    if path not in settings.files:
        return ()
    file = settings.files[path]
    return (*file.values.items(), *(None for _ in file.invalid))


def _is_read(path: str) -> bool:
    directory, _, name = path.rpartition("/")
    return directory == DIRECTORY and name.endswith(SUFFIX)


def _document(name: str, changed: Sequence[str], before: KernelSettings, after: KernelSettings) -> str:
    files = (before.files, after.files)
    having = [path for path in changed if any(path in settings and name in settings[path].values for settings in files)]
    return (having or changed)[-1]


def _doubt(name: str, path: str, before: KernelSettings, after: KernelSettings, host: Mapping[str, bytes]) -> str:
    """Return why a restart is not enough for a key, "" if it is."""
    was, now = before.values.get(name), after.values.get(name)
    if now is None or is_glob(name):
        return "is removed or set by a pattern" if is_glob(name) else "keeps its value until a reboot"
    if was is None:
        return "is added, so that a revert could not take it away"
    if name not in AT_ONCE and not USER.fullmatch(name):
        return "is not known to take effect at once"
    if not all(PLAIN.fullmatch(word) for value in (was, now) for word in (value.split() or [""])):
        return "is no plain number"
    if any(_shown(name, value) != json.dumps(value) for value in (was, now)):
        return "has values that a plan does not show"
    if path not in after.files or after.files[path].values.get(name) != now:
        return "is set by another file"
    live = host.get(f"{PROC}/{name}")
    return "" if live is not None and _words(live) == was.split() else "has another value in the kernel"


def _invalid(before: KernelSettings, after: KernelSettings) -> str:
    """Return the obstacle of a line that is no setting: the service fails with it, so a restart would."""
    invalid = [path for settings in (before, after) for path, parsed in settings.files.items() if parsed.invalid]
    return f"{invalid[0]} has a line that is no setting" if invalid else ""


def _others(after: KernelSettings, differing: Collection[str], host: Mapping[str, bytes]) -> str:
    """Return why a restart would change more than ``differing``, "" if it would not."""
    for name, value in after.values.items():
        if name in AT_WRITE:
            return f"a restart would do {dotted(name)} again"
        if value is None or name in differing:
            continue
        if not is_glob(name):
            if _words(host.get(f"{PROC}/{name}", b"\0")) != value.split():
                return f"a restart would also set {dotted(name)}, which has another value in the kernel"
            continue
        # The view has a pattern only with all of its matches.
        if (matches := host.get(f"{PROC}/{name}")) is None:
            return f"a restart would also set what {dotted(name)} matches"
        for path in matches.decode(errors="replace").split("\n"):
            single = path.removeprefix(f"{PROC}/")
            if path and single not in after.values and _words(host.get(path, b"\0")) != value.split():
                return f"a restart would also set {dotted(single)}, which has another value in the kernel"
    return ""


def _words(content: bytes) -> list[str]:
    return content.decode(errors="replace").split()


def _shown(name: str, value: str | None) -> str:
    if value is None:
        return ""
    if any(word in name for word in SECRET):
        return HIDDEN
    return json.dumps(shortened(value))


DOMAIN: Final = SysctlDomain(
    name="settings of the kernel",
    opt_in={DIRECTORY: ByContent(RULE)},
    # A key in one file may be set by another one.
    joined=(),
)
