"""The agent's own knobs. (The node's configuration is the MachineConfig; this is how the agent goes about it.)

Fragments are YAML files in ``config.d`` of /usr/lib/nodeagent (the package), /run/nodeagent (until the next boot) and
/etc/nodeagent (the admin). A file replaces one of the same name in an earlier directory, a link to /dev/null masks it,
and what is left is merged in the order of names, key by key: the last one wins.

Three stages: ``find`` and ``read`` touch the disk, ``merge`` and ``check`` are pure. All errors are reported together,
each with its file, line and key, because an admin fixes a file once, not once per error. An unknown key is an error: a
misspelt knob that is silently ignored is found out in the worst night of the year.
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
from nodeagent.settings_cluster import (
    ClusterSettings,
    DrainSettings,
    EtcdSettings,
    SlotSettings,
    WindowSettings,
)
from nodeagent.settings_fence import FenceSettings

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
"""Of one fragment. Twenty knobs fit into two of these; anything larger is not a settings file."""

AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\x00-\x1f]*$", max_length=4096)]
OptionalPath = Annotated[str, Meta(pattern=r"^(/[^\x00-\x1f]*)?$", max_length=4096)]
# RFC 1123: the name becomes part of the name of a Lease object.
NodeName = Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]


class Actions(Struct, frozen=True, forbid_unknown_fields=True):
    """What is done to units after the files are written. All in seconds.

    ``timeout``: how long one reload or restart may take before it has failed, and the fallback is a reboot. 120: above
    systemd's own 90 s for a start, so that systemd's verdict ("timeout") arrives before ours.

    ``settle``: how long a restarted unit has to stay up before we believe it. 10: a service that cannot read its new
    config dies in the first seconds; longer only makes each restart slower.

    ``daemon_reload_timeout``: 90: generators of a large host take seconds; PID 1 refuses to reload while it is busy.
    """

    timeout: Annotated[float, Meta(ge=1, le=3600)] = 120
    settle: Annotated[float, Meta(ge=0, le=300)] = 10
    daemon_reload_timeout: Annotated[float, Meta(ge=1, le=600)] = 90


class RebootSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether and how this host is rebooted.

    ``allow``: false refuses every plan with a reboot, and an action that fails leads to ``Degraded`` or a revert
    without one. True: a config that needs a reboot is wanted by somebody.

    ``inhibitor_wait``: seconds to wait for others' ``block`` inhibitors. 3600: a package transaction or a backup ends
    within the hour.

    ``inhibitor_override``: what then. True: reboot in spite of them, because a forgotten inhibitor must not hold back
    security updates of a fleet for ever. False: ``Degraded``.

    ``warn_users``: seconds between the message to logged-in users and the reboot; not waited if nobody is logged in.
    60: time to save a file.

    ``grace``: seconds after logind accepted the reboot until we say that it did not happen. 600: services may take
    their whole stop timeout, 90 s each and some one after the other.
    """

    allow: bool = True
    inhibitor_wait: Annotated[float, Meta(ge=0, le=7 * 86400)] = 3600
    inhibitor_override: bool = True
    warn_users: Annotated[float, Meta(ge=0, le=3600)] = 60
    grace: Annotated[float, Meta(ge=30, le=86400)] = 600


class Verify(Struct, frozen=True, forbid_unknown_fields=True):
    """``timeout``: seconds in which units may answer "not yet" before that counts as "bad". 300: after a boot a
    kubelet needs two to three minutes."""

    timeout: Annotated[float, Meta(ge=1, le=900)] = 300


class LeaseSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """``retry``: seconds between two tries for a lease that somebody else holds. 15: what leader election uses; a
    fleet of a thousand waiting nodes then costs the API server 70 requests a second."""

    retry: Annotated[float, Meta(ge=1, le=600)] = 15


class OsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Updates of the operating system, on hosts that have deployments.

    ``free_space``: MiB that must be free in /sysroot before anything is staged. 2048: about what an image of RHCOS with
    most of its layers shared is new; libostree keeps 3 % of the disk beside that.

    ``busy_wait``: seconds to wait for somebody else's transaction of rpm-ostree before we say whose it is and try again
    later. 1800: an interactive upgrade takes minutes.

    ``no_progress``: seconds without any sign of life after which a transaction of ours is cancelled, and rpm-ostreed
    restarted if that does not end it. 1800: of a container image only the begin and end of each layer are told, and
    one of a gigabyte takes seventeen minutes through a megabyte a second.
    """

    free_space: Annotated[int, Meta(ge=0, le=1024 * 1024)] = 2048
    busy_wait: Annotated[float, Meta(ge=0, le=86400)] = 1800
    no_progress: Annotated[float, Meta(ge=60, le=10800)] = 1800


class MetricsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """``file``: where metrics are written for the textfile collector of node_exporter, which is given the directory;
    "" for nowhere. The default costs one write to memory when something happens."""

    file: OptionalPath = "/run/nodeagent/metrics.prom"


class Log(Struct, frozen=True, forbid_unknown_fields=True):
    """``level``: the least important messages that are written. info: about ten lines for each update."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All knobs, checked. The defaults here and those of the shipped 10-defaults.yaml are the same.

    ``node_name``: how this node is called in the cluster and as a lease holder. "": the host name, which is what
    kubelet uses (``load`` has put it in).

    ``desired_config``: the MachineConfig to apply where no cluster gives one. Watched; may be missing.

    ``policy``: a ``MachineConfiguration`` whose node disruption policy replaces built-in entries; "" for none. The
    default may be missing, any other path may not.

    ``state_dir``: where the store is. On a disk that survives reboots, or a crash in an update is not resumed.

    ``on_failure``: when the new config is still bad after the one fallback reboot. revert: the host goes back to what
    worked, and serves; degraded: it stays as it is, for a person to look at.

    ``on_drift``: when managed files were changed by somebody else before an update. refuse: those changes may be why
    the host still works; repair: overwrite them. Changes below directories that others than root can write are
    reported and never refused.
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
    """``origins`` says for each dotted key that is not a built-in default which ``file:line`` it came from."""

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
    """The fragments that count, in the order in which they are merged."""
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
    """Raises ``InvalidInput`` with every problem of the text; what the values mean is for ``check`` to say."""
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
    """Raises ``InvalidInput`` (``SettingsInvalid``) with a problem for each key that is wrong."""
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
    """Reads, merges and checks. Blocking: a few small files. Raises ``InvalidInput`` with the problems of all files."""
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
