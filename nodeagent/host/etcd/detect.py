# SPDX-License-Identifier: Apache-2.0
"""Detect a member of etcd on this host, and its options.

One sign is enough: the manifest of a static pod, a process (``processes``), an enabled unit, or a data directory. A
member that does not run is found by the other signs. The best source of the options is a process that can be inspected.
The daemon can rarely inspect one: without CAP_SYS_PTRACE it cannot read the environment and the file system of most
processes. The manifest is second, then the command line, which every user can read, with the files of the unit; the
unit on its own is last. Labels of the Node are no sign.

An update changes the files of a unit before it restarts the unit. Until then the process has the options of the
previous files, and the other members are found with those only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from nodeagent.core.config.text import plain_yaml
from nodeagent.core.plan.change import ETCD_UNIT
from nodeagent.core.plan.sides import Sides
from nodeagent.core.validate.static_pod import MAX_BYTES, is_visible
from nodeagent.domains.kubelet.unit import UNIT_DIRS, read_unit, unit_paths
from nodeagent.host.etcd.options import PATHS, Options, from_argv, from_config, from_environment, from_pod, select_known
from nodeagent.host.etcd.processes import Process, below, processes
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.proc import start_of
from nodeagent.host.view import host_directory, read_files

MANIFESTS: Final = ("etc/kubernetes/manifests", "var/lib/rancher/rke2/agent/pod-manifests")

# Each with a file ``config`` for etcd beside ``member``.
EMBEDDED: Final = ("var/lib/rancher/k3s/server/db/etcd", "var/lib/rancher/rke2/server/db/etcd")
DATA: Final = ("var/lib/etcd", *EMBEDDED)

# The EnvironmentFile= of the units of Debian and Fedora. The environment of a process may not be readable.
ENVIRONMENT: Final = ("etc/default/etcd", "etc/etcd/etcd.conf")

# A unit that is only installed, or started by hand once, does not bring a member back after a reboot.
ENABLED: Final = ("etc/systemd/system/*.wants", "etc/systemd/system/*.requires")


# Processes of which the options are remembered. More than one or two of them is no real host.
REMEMBERED: Final = 16

# In memory only: a daemon that starts after the files have changed does not know the previous options.
_at_start: dict[tuple[str, int, int], Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class DetectedMember:
    """``signs`` are for messages. ``options`` come from the best of them."""

    signs: tuple[str, ...]
    options: Options


def detect(root: Path = Path("/")) -> DetectedMember | None:
    """Return the member on this host, None if there is none. Blocks for files."""
    unit = unit_options(root)
    running = [(f"process {process.pid}", *_flags(root, process, unit)) for process in processes(root)]
    others, units = [*_pods(root), *_data(root)], [*_units(root, unit)]
    # One sign is enough, because a member that is missed would be stopped without a check.
    if not running and not others and not units:
        return None
    # The order of the sources, see above: the first one that has any option counts.
    best = [flags for _, flags, whole in running if whole]
    best += [flags for _, flags in others]
    best += [flags for _, flags, whole in running if not whole]
    best += [flags for _, flags in units]
    signs = (*(sign for sign, _, _ in running), *(sign for sign, _ in (*others, *units)))
    return DetectedMember(signs, Options(next((flags for flags in best if flags), {})))


def _flags(root: Path, process: Process, unit: UnitOptions) -> tuple[Mapping[str, str], bool]:
    """Return the flags, and whether the process could be inspected.

    The paths of an inspected process are those of its container. Those of another are assumed to be paths of the host.
    """
    directory = root / f"proc/{process.pid}"
    flags = from_argv(process.argv)
    try:
        with below(root):
            variables = psutil.Process(process.pid).environ().items()
        (directory / "root").stat()
    except (psutil.Error, OSError):
        flags = {**_environment(root, unit), **flags}
        config = _config(root, flags)
        # A config file that cannot be read now may be one that an update has removed.
        missing = bool(flags.get("config-file")) and not config
        sources = None if missing else (*ENVIRONMENT, *unit.sources, flags.get("config-file", ""))
        return _at(root, options_at_start(root, process.pid, {**flags, **config}, sources)), False
    flags = {**from_environment(variables), **flags}
    flags |= _config(directory / "root", flags)
    inside = {name: f"{directory}/root{value}" for name, value in flags.items() if name in PATHS and value[:1] == "/"}
    return {**flags, **inside}, True


def _config(root: Path, flags: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of --config-file, with which etcd ignores all others."""
    path = flags.get("config-file", "")
    return from_config(_document(root / path.lstrip("/"))) if path.startswith("/") else {}


def _pods(root: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the pods of all visible files, as the kubelet reads them: the suffix does not matter."""
    for directory in manifest_directories(root):
        with suppress(OSError):
            for path in sorted((root / directory).iterdir()):
                flags = from_pod(_document(path)) if is_visible(path.name) else None
                if flags is not None:
                    yield f"static pod {_shown(root, path)}", _at(root, {**flags, **_config(root, flags)})


def manifest_directories(root: Path) -> Sequence[str]:
    """Return the directories in which the kubelet of this host may read manifests, relative to ``root``."""
    return tuple(dict.fromkeys((host_directory(root).strip("/"), *MANIFESTS)))


def _data(root: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    for directory in DATA:
        with suppress(OSError):
            if (root / directory / "member").is_dir():
                config = from_config(_document(root / directory / "config")) if directory in EMBEDDED else {}
                yield f"data directory /{directory}", _at(root, config)


def _units(root: Path, unit: UnitOptions) -> Iterator[tuple[str, Mapping[str, str]]]:
    if any((wants / ETCD_UNIT).is_symlink() for place in ENABLED for wants in root.glob(place)):
        flags = {**_environment(root, unit), **unit.flags}
        yield f"unit {ETCD_UNIT}", _at(root, {**flags, **_config(root, flags)})


def _environment(root: Path, unit: UnitOptions) -> Mapping[str, str]:
    options: dict[str, str] = {}
    for path in ENVIRONMENT:
        with suppress(OSError, UnicodeDecodeError):
            lines = [line.strip() for line in read_regular(root / path, MAX_BYTES).decode().splitlines()]
            pairs = [line.partition("=") for line in lines if not line.startswith("#")]
            options |= from_environment((name.strip(), value.strip().strip("\"'")) for name, _, value in pairs)
    return {**options, **unit.environment}


def _at(root: Path, flags: Mapping[str, str]) -> dict[str, str]:
    return {name: str(root / value.lstrip("/")) if name in PATHS and value else value for name, value in flags.items()}


def _document(path: Path) -> Mapping[str, Any]:
    """Return {} for an unreadable document: the kubelet would not run it."""
    try:
        document = plain_yaml.loads(read_regular(path, MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, Mapping) else {}


def _shown(root: Path, path: Path) -> str:
    return f"/{path.relative_to(root)}"


@dataclass(frozen=True, slots=True)
class UnitOptions:
    """``environment`` is that of the unit, ``flags`` those of its command; ``sources`` are the files that they are
    from. Values with a specifier of systemd are left out, because it is not expanded."""

    environment: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()


def unit_options(root: Path) -> UnitOptions:
    """Return the options of the unit as its files are now. Blocks: it reads files."""
    files = read_files(_reads, root=root)
    unit = read_unit(files, ETCD_UNIT, "etcd")
    return UnitOptions(
        from_environment(_expanded(unit.environment)),
        select_known(_expanded(unit.flags)),
        (*unit_paths(files, ETCD_UNIT), *unit.environment_files),
    )


def _reads(sides: Sides) -> Collection[str]:
    paths = {path for directory in UNIT_DIRS for path in (f"{directory}/{ETCD_UNIT}", f"{directory}/{ETCD_UNIT}.d/")}
    files = read_unit(sides.before, ETCD_UNIT, "etcd").environment_files
    return paths | {path for path in files if path.startswith("/")}


def _expanded(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in values.items() if "%" not in value)


def options_at_start(
    root: Path, pid: int, flags: Mapping[str, str], sources: Collection[str] | None
) -> Mapping[str, str]:
    """Return the options with which process ``pid`` started: ``flags``, or the flags of its first detection.

    They are remembered only if none of ``sources``, the files that they are from, is newer than the process; None if a
    file is missing.
    """
    started = start_of(pid, root / "proc")
    if started is None:
        return flags
    ticks, moment = started
    key = (str(root), pid, ticks)
    unchanged = sources is not None and all(_modified(root / path.lstrip("/")) <= moment for path in sources if path)
    if unchanged and key not in _at_start:
        while len(_at_start) >= REMEMBERED:
            _at_start.pop(next(iter(_at_start)), None)
        _at_start[key] = flags
    return _at_start.get(key, flags)


def _modified(path: Path) -> float:
    """Return the time of modification of a file, 0 for a missing file, which a unit may lack."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
