"""The settings of the agent. (The configuration of the node is the MachineConfig; settings control how it is applied.)

Fragments are YAML files in ``config.d`` of /usr/lib/nodeagent (the package), /run/nodeagent (until the next boot) and
/etc/nodeagent (the admin). A file replaces one of the same name in an earlier directory, and a link to /dev/null masks
it. The remaining files are merged key by key in the order of their names: the last one wins.

Three stages: ``find`` and ``read`` access the disk, ``merge`` and ``check`` are pure. All errors are reported together,
each with its file, line and key, because an admin fixes a file once, not once per error. An unknown key is an error:
if a misspelt setting were silently ignored, the admin would notice only when the setting is needed.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from nodeagent.errors import InvalidInput, Problem
from nodeagent.settings.cluster import (
    ClusterSettings,
    DrainSettings,
    EtcdSettings,
    SlotSettings,
    WindowSettings,
)
from nodeagent.settings.fence import FenceSettings

__all__ = [
    "DIRECTORIES",
    "Actions",
    "Fragment",
    "LeaseSettings",
    "Loaded",
    "Log",
    "MetricsSettings",
    "OsSettings",
    "RebootSettings",
    "Settings",
    "Value",
    "Verify",
    "check",
    "find",
    "flatten",
    "load",
    "merge",
    "parse_fragment",
    "read",
]

DIRECTORIES = ("/usr/lib/nodeagent/config.d", "/run/nodeagent/config.d", "/etc/nodeagent/config.d")
"""From the weakest to the strongest."""

MAX_BYTES = 64 * 1024
"""Largest size of one fragment. All settings fit into it; anything larger is not a settings file."""

AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\x00-\x1f]*$", max_length=4096)]
OptionalPath = Annotated[str, Meta(pattern=r"^(/[^\x00-\x1f]*)?$", max_length=4096)]
# RFC 1123: the name becomes part of the name of a Lease object.
NodeName = Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]


class Actions(Struct, frozen=True, forbid_unknown_fields=True):
    """Time limits for the actions on units after the files are written. All in seconds.

    ``timeout``: longest time for one reload or restart. After that the action has failed, and the fallback is a reboot.
    120: longer than systemd's own 90 s for a start, so that systemd reports its timeout first.

    ``settle``: how long a restarted unit must stay up before it counts as good. 10: a service that cannot read its new
    config fails in the first seconds; a longer time only slows down each restart.

    ``daemon_reload_timeout``: longest time for a daemon-reload of systemd. 90: the generators of a large host take
    seconds, and PID 1 refuses a reload while it is busy.
    """

    timeout: Annotated[float, Meta(ge=1, le=3600)] = 120
    settle: Annotated[float, Meta(ge=0, le=300)] = 10
    daemon_reload_timeout: Annotated[float, Meta(ge=1, le=600)] = 90


class RebootSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether and how this host is rebooted.

    ``allow``: whether nodeagent may reboot this host. False: every plan with a reboot is refused, and a failed action
    leads to ``Degraded`` or to a revert without a reboot. True is the default because the author of a config that needs
    a reboot wants that reboot.

    ``inhibitor_wait``: seconds to wait for ``block`` inhibitors of other programs. 3600: a package transaction or a
    backup ends within an hour.

    ``inhibitor_override``: what to do when ``reboot.inhibitor_wait`` has passed. True: reboot anyway, because a
    forgotten inhibitor must not block the security updates of a fleet permanently. False: ``Degraded``.

    ``warn_users``: seconds between the message to logged-in users and the reboot; skipped if no user is logged in. 60:
    time to save a file.

    ``grace``: seconds from the time when logind accepts the reboot until the reboot counts as failed. 600: services may
    use their full stop timeout of 90 s each, and some stop one after the other.
    """

    allow: bool = True
    inhibitor_wait: Annotated[float, Meta(ge=0, le=7 * 86400)] = 3600
    inhibitor_override: bool = True
    warn_users: Annotated[float, Meta(ge=0, le=3600)] = 60
    grace: Annotated[float, Meta(ge=30, le=86400)] = 600


class Verify(Struct, frozen=True, forbid_unknown_fields=True):
    """``timeout``: seconds that units may take to become healthy before the new config counts as bad. 300: a kubelet
    needs two to three minutes after a boot."""

    timeout: Annotated[float, Meta(ge=1, le=900)] = 300


class LeaseSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """``retry``: seconds between two attempts to take a lease that another holder has. 15: the interval of leader
    election; a fleet of a thousand waiting nodes then sends 70 requests per second to the API server."""

    retry: Annotated[float, Meta(ge=1, le=600)] = 15


class OsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Updates of the operating system, on hosts that have deployments.

    ``free_space``: MiB that must be free in /sysroot before a staging. 2048: about the size of the new layers of an
    RHCOS image that shares most of its layers; libostree reserves another 3 % of the disk.

    ``busy_wait``: seconds to wait for a transaction of another rpm-ostree client. After that nodeagent reports the
    client and retries later. 1800: an interactive upgrade takes minutes.

    ``no_progress``: seconds without progress after which nodeagent cancels its own transaction. If that does not end
    it, rpm-ostreed is restarted. 1800: rpm-ostree reports only the start and the end of each layer of a container
    image, and a layer of 1 GB takes seventeen minutes at 1 MB/s.
    """

    free_space: Annotated[int, Meta(ge=0, le=1024 * 1024)] = 2048
    busy_wait: Annotated[float, Meta(ge=0, le=86400)] = 1800
    no_progress: Annotated[float, Meta(ge=60, le=10800)] = 1800


class MetricsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """``file``: file for the metrics, for the textfile collector of node_exporter, which is given the directory; "" for
    no metrics. The default is in memory: each event costs one write to it."""

    file: OptionalPath = "/run/nodeagent/metrics.prom"


class Log(Struct, frozen=True, forbid_unknown_fields=True):
    """``level``: the lowest priority of messages in the journal. info: about ten lines for each update."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings, checked. The defaults here and those of the shipped 10-defaults.yaml are the same.

    ``node_name``: name of this node in the cluster and as a lease holder. "": the host name, which kubelet uses too.

    ``desired_config``: the MachineConfig to apply if it does not come from a cluster. Watched; may be missing.

    ``policy``: a ``MachineConfiguration`` whose node disruption policy replaces built-in entries; "" for none. The file
    at the default path may be missing; a file at any other path must exist.

    ``state_dir``: directory of the store. It must be on a disk that survives reboots; otherwise an update is not
    resumed after a crash.

    ``on_failure``: what to do if the new config is still bad after the one fallback reboot. revert: the host returns to
    the previous config and keeps serving. degraded: the host stays as it is until an operator acts.

    ``on_drift``: what to do if managed files were changed before an update. refuse: do not start the update, because
    the host may depend on these changes. repair: overwrite the changes. Changes below directories that users other than
    root can write to are reported, never refused.
    """

    node_name: NodeName = ""
    desired_config: AbsolutePath = "/etc/nodeagent/machineconfig.yaml"
    policy: OptionalPath = "/etc/nodeagent/policy.yaml"
    state_dir: AbsolutePath = "/var/lib/nodeagent"
    on_failure: Literal["revert", "degraded"] = "revert"
    on_drift: Literal["refuse", "repair"] = "refuse"
    actions: Actions = Actions()
    reboot: RebootSettings = RebootSettings()
    verify: Verify = Verify()
    lease: LeaseSettings = LeaseSettings()
    os: OsSettings = OsSettings()
    metrics: MetricsSettings = MetricsSettings()
    log: Log = Log()
    cluster: ClusterSettings = ClusterSettings()
    drain: DrainSettings = DrainSettings()
    slots: SlotSettings = SlotSettings()
    windows: WindowSettings = WindowSettings()
    etcd: EtcdSettings = EtcdSettings()
    fence: FenceSettings = FenceSettings()


@dataclass(frozen=True, slots=True)
class Value:
    """One key of one fragment. ``where`` is ``file:line``."""

    value: Any
    where: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """``values`` by dotted key (``reboot.grace``), in the order of the file."""

    path: str
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Loaded:
    """``origins`` maps each dotted key that is set in a file to its ``file:line``."""

    settings: Settings
    origins: Mapping[str, str]
    files: tuple[str, ...]


def _knobs(struct: type[Struct] = Settings, prefix: str = "") -> dict[str, Any]:
    """Dotted key to type, for every leaf."""
    out: dict[str, Any] = {}
    for name, kind in get_type_hints(struct, include_extras=True).items():
        if name.startswith("__"):
            continue
        if isinstance(kind, type) and issubclass(kind, Struct):
            out |= _knobs(kind, f"{prefix}{name}.")
        else:
            out[prefix + name] = kind
    return out


KNOBS: Mapping[str, Any] = _knobs()
GROUPS = frozenset(key.split(".")[0] for key in KNOBS if "." in key)


def flatten(settings: Settings) -> dict[str, Any]:
    """Dotted key to value, in the order of the documentation."""
    tree = msgspec.to_builtins(settings)
    values = {key: tree[key] if "." not in key else tree[key.split(".")[0]][key.split(".")[1]] for key in KNOBS}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def find(directories: Sequence[str | Path] = DIRECTORIES) -> list[Path]:
    """Return the effective fragments, in the order in which they are merged."""
    chosen: dict[str, Path] = {}
    for directory in directories:
        try:
            names = os.listdir(directory)  # noqa: PTH208 - as cheap as it gets, and errors are per directory
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _unreadable(str(directory), error) from error
        chosen |= {name: Path(directory, name) for name in names if name.endswith(".yaml") and name[0] != "."}
    return [path for _, path in sorted(chosen.items()) if not _masked(path)]


def _masked(path: Path) -> bool:
    return path.is_symlink() and str(path.readlink()) == os.devnull


def _unreadable(path: str, error: OSError) -> InvalidInput:
    return _invalid([Problem(path, error.strerror or "cannot be read")])


def read(path: str | Path) -> Fragment:
    """Read one fragment. Raises ``InvalidInput`` with all problems of the text; ``check`` checks the values."""
    try:
        # A pipe of that name must not keep the agent from starting.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(str(path), error) from error
    return parse_fragment(str(path), text or b"")


def parse_fragment(path: str, text: bytes) -> Fragment:
    import yaml  # 14 ms that nothing but this pays for

    def problem(mark: Any, message: str) -> Problem:
        return Problem(f"{path}:{mark.line + 1}" if mark is not None else path, message)

    if len(text) > MAX_BYTES:
        raise _invalid([Problem(path, f"larger than {MAX_BYTES // 1024} KiB")])
    problems: list[Problem] = []
    values: dict[str, Value] = {}

    def walk(node: Any, prefix: str) -> None:
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                problems.append(problem(key_node.start_mark, "a key must be a word"))
                continue
            key = prefix + key_node.value
            if key in values:
                problems.append(problem(key_node.start_mark, f"{key} is set twice in this file"))
            elif key in GROUPS and isinstance(value_node, yaml.MappingNode):
                walk(value_node, f"{key}.")
            else:
                where = f"{path}:{key_node.start_mark.line + 1}"
                values[key] = Value(loader.construct_object(value_node, deep=True), where)

    try:
        # Not the C loader: it recurses without a limit, and deep nesting would kill the process.
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if isinstance(root, yaml.MappingNode):
            walk(root, "")
        elif root is not None:
            problems.append(problem(root.start_mark, "must be a mapping of keys to values"))
    except yaml.MarkedYAMLError as error:
        problems.append(problem(error.problem_mark, error.problem or "not YAML"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date like 2024-99-99
        problems.append(Problem(path, f"not YAML: {type(error).__name__}"))
    if problems:
        raise _invalid(problems)
    return Fragment(path, values)


def merge(fragments: Iterable[Fragment]) -> dict[str, Value]:
    merged: dict[str, Value] = {}
    for fragment in fragments:
        merged |= fragment.values
    return merged


def check(merged: Mapping[str, Value]) -> Settings:
    """Convert the merged values. Raises ``InvalidInput`` (``SettingsInvalid``) with a problem for each wrong key."""
    problems: list[Problem] = []
    tree: dict[str, Any] = {}
    for key, value in merged.items():
        if key not in KNOBS:
            problems.append(Problem(value.where, _unknown(key)))
            continue
        try:
            good = msgspec.convert(value.value, KNOBS[key])
            if isinstance(good, float) and math.isnan(good):
                raise msgspec.ValidationError  # it is neither too small nor too large
        except msgspec.ValidationError:
            problems.append(Problem(value.where, f"{key} {_expected(KNOBS[key])}"))
            continue
        group, _, name = key.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[name] = good
    if problems:
        raise _invalid(problems)
    return msgspec.convert(tree, Settings)


def _unknown(key: str) -> str:
    if key in GROUPS:
        return f"{key} is a group: its keys go below it, indented"
    near = difflib.get_close_matches(key, [*KNOBS, *sorted(GROUPS)], n=1, cutoff=0.6)
    if not near:  # the right knob in the wrong group, or outside of any
        near = [knob for knob in KNOBS if knob.rpartition(".")[2] == key.rpartition(".")[2]]
    return f"unknown key {key}" + (f"; did you mean {near[0]}?" if near else "")


def _expected(kind: Any) -> str:
    if kind is bool:
        return "must be true or false"
    if get_origin(kind) is Literal:
        return "must be one of " + ", ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return f"must be a list, each {get_args(get_args(kind)[0])[1].description}"
    base, meta = get_args(kind)
    if base is float:
        return f"must be a number of seconds from {meta.ge} to {meta.le}"
    if base is int:
        return f"must be {meta.description or 'a whole number of MiB'} from {meta.ge} to {meta.le}"
    if meta.description:
        return f"must be {meta.description}"
    return (
        "must be a node name: lower case letters, digits, - and ." if kind is NodeName else "must be an absolute path"
    )


def _invalid(problems: Sequence[Problem]) -> InvalidInput:
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidInput(
        f"{first.path}: {first.message}{more}",
        reason="SettingsInvalid",
        hint="nodeagent config check shows every problem; nothing was changed",
        problems=problems,
    )


def load(directories: Sequence[str | Path] = DIRECTORIES) -> Loaded:
    """Read, merge and check all fragments, and set an empty ``node_name`` to the host name in lower case.

    Blocking: a few small files. Raises ``InvalidInput`` with the problems of all files.
    """
    fragments: list[Fragment] = []
    problems: list[Problem] = []
    for path in find(directories):
        try:
            fragments.append(read(path))
        except InvalidInput as error:
            problems += error.problems
    merged = merge(fragments)
    try:
        settings = check(merged)
    except InvalidInput as error:
        raise _invalid([*problems, *error.problems]) from None
    if problems:
        raise _invalid(problems)
    if not settings.node_name:
        settings = msgspec.structs.replace(settings, node_name=os.uname().nodename.lower())
    return Loaded(settings, {key: value.where for key, value in merged.items()}, tuple(f.path for f in fragments))
