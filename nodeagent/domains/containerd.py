# SPDX-License-Identifier: Apache-2.0
"""containerd: its configuration by key, with imports, and proofs that its plugins work.

containerd takes no configuration while it runs: a change is a restart, which containers outlive. It starts with a
plugin that fails, and the kubelet then finds no runtime; so its plugins are looked at, not only its unit. Sources:
``cmd/containerd/server/config`` of containerd/containerd.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

from nodeagent.core.plan.change import Action, Change, KeyChange
from nodeagent.core.plan.domain import NODE, ByContent, Domain, Health, PluginHealth, UnitFailure
from nodeagent.core.plan.layers import Key, Layers, is_leftover, key_changes, merged, parse_toml, toml_problems
from nodeagent.core.plan.policy import DRAIN, NONE, REBOOT, Verdict, restart
from nodeagent.core.plan.program import TREE, ProgramCheck, rejection
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.errors import Problem

UNIT: Final = "containerd.service"
DIRECTORY: Final = "/etc/containerd"
MAIN: Final = f"{DIRECTORY}/config.toml"
CERTS: Final = f"{DIRECTORY}/certs.d"

RESTART: Final = (restart(UNIT),)
# Containers that run stay in their cgroups and in their snapshots.
STRONGEST: Final = (DRAIN, REBOOT)

# Tables and keys that a restart is enough for. Plugins of other names request the strongest actions.
RESTARTED: Final = (
    *("version", "imports", "oom_score", "disabled_plugins", "required_plugins", "debug", "metrics", "timeouts"),
    *("stream_processors", "proxy_plugins", "cgroup"),
)
PLUGINS: Final = (
    *("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"),
    *("io.containerd.gc.v1.scheduler", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart"),
    *("io.containerd.internal.v1.tracing", "io.containerd.metadata.v1.bolt", "io.containerd.monitor.v1.cgroups"),
    *("io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp", "io.containerd.transfer.v1.local"),
    "io.containerd.service.v1.diff-service",
)
# Last names of keys below these plugins that decide about cgroups and storage of containers.
PLACED: Final = ("SystemdCgroup", "snapshotter", "runtime_type", "root_path", "BinaryName")

# Plugins of the CRI: containerd 1 has the first, containerd 2 all of them.
CRI: Final = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime")

# Imports that are followed. containerd has no limit, but reads each file once.
MAX_FILES: Final = 100

_SECTIONS: Final = ("plugins", "stream_processors", "proxy_plugins", "timeouts")


def actions_of(key: Key) -> tuple[tuple[Action, ...], str]:
    """Return the actions for a key. A key that is in no list requests the strongest."""
    if key[0] == "plugins":
        restart_suffices = len(key) > 1 and key[1] in PLUGINS and key[-1] not in PLACED
        return (RESTART, "") if restart_suffices else (STRONGEST, "")
    return (RESTART, "") if key[0] in RESTARTED else (STRONGEST, "")


def _whole(key: Key) -> bool:
    # An imported file replaces a plugin's table of the files before it, with all of its keys.
    return len(key) == 2 and key[0] in _SECTIONS


def _layers(files: Mapping[str, bytes]) -> Layers:
    """Return the files in the order of containerd: each is followed by its imports, after those of earlier files."""
    layers: dict[str, Mapping[str, Any] | None] = {}
    pending = [MAIN]
    while pending and len(layers) < MAX_FILES:
        path = pending.pop(0)
        if path in layers or path not in files:
            continue
        layers[path] = parse_toml(files[path])[0]
        for pattern in _imports(path, layers[path]):
            pending += sorted(name for name in files if _matches(pattern, name)) if "*" in pattern else [pattern]
    return layers


def _imports(path: str, data: Mapping[str, Any] | None) -> list[str]:
    # A relative import starts at the directory of the file that has it.
    return [posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) for name in _written(data)]


def _written(data: Mapping[str, Any] | None) -> list[str]:
    imports = (data or {}).get("imports")
    return [name for name in imports if isinstance(name, str)] if isinstance(imports, list) else []


def _matches(pattern: str, path: str) -> bool:
    """As filepath.Glob of Go: a star does not match a slash."""
    wanted, names = pattern.split("/"), path.split("/")
    return len(wanted) == len(names) and all(map(fnmatchcase, names, wanted))


def _document(layers: Layers) -> dict[Key, str]:
    # containerd appends the lists of imported files, and takes empty values for values that are not set.
    return merged(layers, whole=_whole, append=True)


class ContainerdDomain(Domain):
    """containerd's own document of config.toml and its imports."""

    def reads(self, sides: Sides) -> Collection[str]:
        layers = (*_layers(sides.before).items(), *_layers(sides.after).items())
        patterns = [pattern for layer in layers for pattern in _imports(*layer)]
        # A directory stands for a pattern of names in it.
        return (
            MAIN,
            *(f"{name.rpartition('/')[0]}/" if "*" in name else name for name in patterns if "*/" not in name),
        )

    def changes(self, sides: Sides) -> Sequence[KeyChange]:
        before, after = _layers(sides.before), _layers(sides.after)
        changed = [path for path in {**before, **after} if sides.before.get(path) != sides.after.get(path)]
        if not changed:
            return ()
        if None in (*before.values(), *after.values()):
            return [KeyChange(path, "(all)", "", "", STRONGEST, "a file is no TOML on one side") for path in changed]
        return key_changes(before, after, changed, (_document(before), _document(after)), actions_of)

    def actions(self, change: Change, sides: Sides) -> Verdict:
        if change.key.startswith(f"{CERTS}/"):
            return Verdict((NONE,), "containerd reads it at each pull")
        # Another program may read such a file, so nothing is known about the effect of a change.
        if change.key not in {**_layers(sides.before), **_layers(sides.after)}:
            return Verdict(STRONGEST, f"{MAIN} does not import it")
        return super().actions(change, sides)

    def programs(self, sides: Sides) -> Sequence[ProgramCheck]:
        return [_check(sides.after, _check(sides.before, None))] if self.changes(sides) else ()

    def warnings(self, sides: Sides) -> Iterator[Problem]:
        layers = _layers(sides.after)
        named = {pattern for layer in layers.items() for pattern in _imports(*layer)}
        for path in sorted(layers.keys() - named - {MAIN}):
            if is_leftover(path):
                yield Problem(path, "is read by containerd, because a pattern of its imports matches the name")

    def verify(self, unit: str, host: HostView) -> Sequence[Health]:
        if unit != UNIT:
            return ()
        document = _document(_layers(host.files))
        disabled = document.get(("disabled_plugins",), "")
        # Files of version 1 disable a plugin by its short name, as the one that Docker ships does with cri.
        wanted = tuple(name for name in CRI if f'"{name}"' not in disabled)
        return (PluginHealth(UNIT, wanted),) if '"cri"' not in disabled and wanted else ()

    def curable(self, failure: UnitFailure) -> bool:
        # It reads the same files after a boot, and the kubelet finds no runtime then either.
        return failure.unit not in (UNIT, NODE) or not any(
            key.document.startswith(f"{DIRECTORY}/") for key in failure.keys
        )


def _check(files: Mapping[str, bytes], control: ProgramCheck | None) -> ProgramCheck:
    tree = {path: _with_own_imports(path, data or {}, files[path]) for path, data in _layers(files).items()}
    arguments = (f"--config={TREE}{MAIN}", "config", "dump")
    # The file of --config must exist, even where only the defaults are in use.
    judge = partial(rejection, "containerd", MAIN)
    return ProgramCheck("containerd", arguments, {MAIN: b"", **tree}, judge, control=control)


def _with_own_imports(path: str, data: Mapping[str, Any], content: bytes) -> bytes:
    """Return the file with relative imports: a copy with absolute ones would import the files of the host."""
    changed, names = content, _written(data)
    relative = {name: posixpath.relpath(name, posixpath.dirname(path)) for name in names if name.startswith("/")}
    for name, short in relative.items():
        for quote in "\"'":
            changed = changed.replace(f"{quote}{name}{quote}".encode(), f"{quote}{short}{quote}".encode())
    # A name with escapes, or one that is the value of another key as well, is left as it is.
    wanted = {**data, "imports": [relative.get(name, name) for name in names]}
    return changed if relative and parse_toml(changed)[0] == wanted else content


DOMAIN: Final = ContainerdDomain(
    name="containerd",
    files={
        MAIN: ByContent(f"by key: Restart {UNIT}, or Drain and Reboot"),
        DIRECTORY: ByContent(f"by key for the files that {MAIN} imports; None for certs.d"),
    },
    contents={f"{DIRECTORY}/*.toml": toml_problems, f"{DIRECTORY}/conf.d/*.toml": toml_problems},
    joined=(UNIT,),
)
