"""Is there a member of etcd on this host, and how is it reached?

Signs, any of which is enough: the manifest of a static pod, a process, an enabled unit, a data directory. A process
that has a network of its own is somebody's workload, which is what disruption budgets are for, and not the host's
member. Where there is more than one sign the process knows best how it was started; a member that is down is known by
the rest. Labels of the Node are no sign (``core.etcd.role_hint``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nodeagent.host.etcd.options import PATHS, Options, from_argv, from_config, from_environment, from_pod

__all__ = ["Found", "detect"]

MANIFESTS: Final = ("etc/kubernetes/manifests", "var/lib/rancher/rke2/agent/pod-manifests")
EMBEDDED: Final = ("var/lib/rancher/k3s/server/db/etcd", "var/lib/rancher/rke2/server/db/etcd")
"""Each with a file ``config`` for etcd beside ``member``."""
DATA: Final = ("var/lib/etcd", *EMBEDDED)
UNIT: Final = "etcd.service"
ENABLED: Final = ("etc/systemd/system/*.wants", "etc/systemd/system/*.requires")


@dataclass(frozen=True, slots=True)
class Found:
    """``signs`` in words. ``options`` as the best of them has it."""

    signs: tuple[str, ...]
    options: Options


def detect(root: Path = Path("/")) -> Found | None:
    """None if there is no member. Blocks: it reads files. What may not be read is no sign, so ask as root."""
    signs: list[str] = []
    best: list[Mapping[str, str]] = []
    for sign, flags in (*_processes(root), *_pods(root), *_data(root), *_units(root)):
        signs.append(sign)
        best.append(flags)
    if not signs:
        return None
    return Found(tuple(signs), Options(next((flags for flags in best if flags), {})))


def _processes(root: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    ours = _link(root / "proc/1/ns/net")
    for process in sorted(root.glob("proc/[0-9]*"), key=lambda path: int(path.name) if path.name.isdigit() else 0):
        with suppress(OSError):  # it ended meanwhile, or is not ours to look at
            if (process / "comm").read_text().strip() != "etcd" or _link(process / "ns/net") != ours:
                continue
            argv = _strings(process / "cmdline")
            variables = [(name, value) for name, _, value in (v.partition("=") for v in _strings(process / "environ"))]
            flags = {**from_environment(variables), **from_argv(argv)}
            # As the process sees them, whatever container it is in.
            inside = {
                name: f"{process}/root{value}" for name, value in flags.items() if name in PATHS and value[:1] == "/"
            }
            yield f"process {process.name}", {**flags, **inside}


def _pods(root: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    for directory in MANIFESTS:
        for path in sorted((root / directory).glob("*")):
            if path.name.startswith(".") or path.suffix not in (".yaml", ".yml", ".json"):
                continue
            flags = from_pod(_document(path))
            if flags is not None:
                yield f"static pod {_shown(root, path)}", _at(root, flags)


def _data(root: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    for directory in DATA:
        with suppress(OSError):
            if (root / directory / "member").is_dir():
                config = from_config(_document(root / directory / "config")) if directory in EMBEDDED else {}
                yield f"data directory /{directory}", _at(root, config)


def _units(root: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    if any((wants / UNIT).is_symlink() for place in ENABLED for wants in root.glob(place)):
        yield f"unit {UNIT}", {}


def _at(root: Path, flags: Mapping[str, str]) -> dict[str, str]:
    return {name: str(root / value.lstrip("/")) if name in PATHS and value else value for name, value in flags.items()}


def _document(path: Path) -> Mapping[str, Any]:
    """{} for what cannot be read: the kubelet would not run it either."""
    from yaml import YAMLError, safe_load

    try:
        found = safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, YAMLError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _strings(path: Path) -> list[str]:
    return [part.decode(errors="replace") for part in path.read_bytes().split(b"\0") if part]


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _shown(root: Path, path: Path) -> str:
    return f"/{path.relative_to(root)}"
