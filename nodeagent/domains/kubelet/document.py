# SPDX-License-Identifier: Apache-2.0
"""The configuration that a kubelet uses: its file, then the drop-ins as JSON merge patches, then its flags.

Drop-ins are the files below ``--config-dir`` that end in ``.conf``, in the order of their paths: maps merge, lists are
replaced, null deletes. Flags win, and feature gates are merged (kubelet: cmd/kubelet/app/server.go).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import yaml

from nodeagent.core.config.problems import shown
from nodeagent.core.config.text import document, plain_json
from nodeagent.domains.kubelet.keys import KEYS
from nodeagent.domains.kubelet.unit import KubeletUnit, read_unit, unit_paths
from nodeagent.errors import InvalidInput

# The usual paths, for a plan that does not see the unit of the kubelet.
CONFIG_FILES: Final = ("/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/config.yaml")
CONFIG_DIRS: Final = ("/etc/openshift/kubelet.conf.d", "/etc/kubernetes/kubelet.conf.d")
DROPIN_SUFFIX: Final = ".conf"
TYPE_KEYS: Final = ("apiVersion", "kind")
# The key of a document that cannot be read, which is different from every other one.
UNREADABLE: Final = "(unreadable)"
KIND: Final = "KubeletConfiguration"
KUBECONFIG: Final = "Config"
GROUP: Final = "kubelet.config.k8s.io/"
# About a hundred times what a kubelet needs.
MAX_BYTES: Final = 1024 * 1024

# Flags by the form of their value. The others have one value, if a key has their name in camel case, or a renamed one.
MAPS: Final = (
    "cpu-manager-policy-options",
    "feature-gates",
    "kube-reserved",
    "qos-reserved",
    "system-reserved",
    "topology-manager-policy-options",
)
THRESHOLDS: Final = ("eviction-hard", "eviction-soft", "eviction-minimum-reclaim", "eviction-soft-grace-period")
LISTS: Final = ("cluster-dns", "enforce-node-allocatable", "tls-cipher-suites", "allowed-unsafe-sysctls")
RENAMED: Final = {
    "cluster-dns": "clusterDNS",
    "image-gc-high-threshold": "imageGCHighThresholdPercent",
    "image-gc-low-threshold": "imageGCLowThresholdPercent",
    "pod-manifest-path": "staticPodPath",
    "pod-max-pids": "podPidsLimit",
    "reserved-cpus": "reservedSystemCPUs",
    "cgroups-per-qos": "cgroupsPerQOS",
}


@dataclass(frozen=True)
class KubeletConfig:
    """The configuration on one side of an update. ``files`` is path to content, of the host and the config."""

    files: Mapping[str, bytes] = field(repr=False)

    @cached_property
    def unit(self) -> KubeletUnit:
        return read_unit(self.files)

    @cached_property
    def config_file(self) -> str:
        """The path of the main file; "" if there is none."""
        # A kubelet without the flag reads no file, whatever is at the usual path.
        if self.unit.program:
            return self.unit.flags.get("config", "")
        candidates = (path for path in CONFIG_FILES if path in self.files)
        return next((path for path in candidates if not is_kubeconfig(self.files[path])), "")

    @cached_property
    def config_dirs(self) -> Sequence[str]:
        if self.unit.program:
            directory = self.unit.flags.get("config-dir", "").rstrip("/")
            return [directory] if directory else []
        return [path for path in CONFIG_DIRS if any(file.startswith(f"{path}/") for file in self.files)]

    @cached_property
    def dropins(self) -> Sequence[str]:
        """The paths of the drop-ins that the kubelet reads, in order."""
        prefixes = tuple(f"{directory}/" for directory in self.config_dirs)
        # Without a directory, the empty tuple matches no path.
        return sorted(path for path in self.files if path.startswith(prefixes) and path.endswith(DROPIN_SUFFIX))

    @cached_property
    def sources(self) -> Sequence[str]:
        """All paths that the configuration comes from, from the weakest to the strongest."""
        main = [self.config_file] if self.config_file in self.files else []
        environment = [path for path in self.unit.environment_files if path in self.files]
        return [*main, *self.dropins, *environment, *unit_paths(self.files)]

    @cached_property
    def documents(self) -> Mapping[str, dict[str, Any]]:
        """Path to the data of the main file and of each drop-in."""
        return {path: _read(self.files[path]) for path in self.sources if path in (self.config_file, *self.dropins)}

    @cached_property
    def merged(self) -> dict[str, Any]:
        """The document without the flags."""
        whole: dict[str, Any] = {}
        for data in self.documents.values():
            whole = _patched(whole, data)
        return whole

    @cached_property
    def keys(self) -> Mapping[str, Any]:
        """Each key that is set, with dots between the levels, flags included: those without a key have dashes."""
        keys = dict(flatten({name: value for name, value in self.merged.items() if name not in TYPE_KEYS}))
        for flag, value in self.unit.flags.items():
            if flag in ("config", "config-dir"):
                continue
            values = dict(_flag_keys(flag, value))
            # A flag replaces the whole map of the document. Only feature gates are merged.
            if flag in (*MAPS, *THRESHOLDS) and flag != "feature-gates":
                whole = next(iter(values)).partition(".")[0]
                keys = {key: item for key, item in keys.items() if key.partition(".")[0] != whole}
            keys |= values
        return keys

    @cached_property
    def static_pods(self) -> str:
        """The directory of the manifests of static pods; "" if there is none."""
        path = self.keys.get("staticPodPath")
        # The paths of a config have no slash at the end and no dots.
        return posixpath.normpath(path) if isinstance(path, str) and path.startswith("/") else ""

    def sets(self, path: str, key: str) -> bool:
        """Return whether the document ``path`` says something about ``key``, a deletion included."""
        data: Any = self.documents.get(path, {})
        if UNREADABLE in data:
            return True
        for part in _parts(data, key):
            if not isinstance(data, dict) or part not in data:
                return False
            data = data[part]
            if data is None:
                return True
        return True

    def source_of(self, key: str) -> str:
        """Return the path of the strongest document that sets ``key``, or the strongest of all."""
        setting = [path for path in self.documents if self.sets(path, key)]
        return next(reversed(setting or self.sources), "")


def flatten(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested maps with dots between the names. A list is a leaf, and so is an empty map."""
    for name, value in data.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _parts(data: Any, key: str) -> Iterator[str]:
    """Split a key at the dots that separate levels: the name of a resource or a signal has dots, too."""
    while key:
        if isinstance(data, dict) and key in data:
            yield key
            return
        first, _, key = key.partition(".")
        data = data.get(first) if isinstance(data, dict) else None
        yield first


def _read(content: bytes) -> dict[str, Any]:
    try:
        # The kubelet accepts a repeated key with a warning, and uses the last one. It reads aliases.
        data = document.load(content, "kubelet configuration", unique_keys=False, aliases=True)
    except (InvalidInput, RecursionError):
        return {UNREADABLE: content.hex()}
    # A kubeconfig has credentials, which a plan must not show.
    if isinstance(data, dict) and data.get("kind") != KUBECONFIG:
        return data
    return {UNREADABLE: content.hex()}


def _patched(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a JSON merge patch: RFC 7386. Documents have a bounded depth."""
    merged = dict(target)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            before = merged.get(name)
            merged[name] = _patched(before if isinstance(before, dict) else {}, value)
        else:
            merged[name] = value
    return merged


def _flag_keys(flag: str, value: str) -> Iterator[tuple[str, Any]]:
    name = RENAMED.get(flag) or _camel_case(flag)
    if flag in MAPS or flag in THRESHOLDS:
        # A threshold has the form memory.available<100Mi.
        parts = [_divided(part, "=<" if flag in THRESHOLDS else "=") for part in value.split(",")]
        pairs = [(f"{name}.{key}", _scalar(item)) for key, sign, item in parts if sign]
        yield from pairs or [(name, {})]
    elif flag in LISTS:
        yield name, value.split(",")
    elif flag in ("v", "vmodule"):
        yield ("logging.verbosity" if flag == "v" else "logging.vmodule"), _scalar(value)
    elif name in KEYS:
        yield name, _scalar(value)
    else:
        # The dashes stay for a flag without a known key, so that it has the strongest actions.
        yield f"--{flag}", value


def _divided(text: str, signs: str) -> tuple[str, str, str]:
    place = next((index for index, sign in enumerate(text) if sign in signs), len(text))
    return text[:place].strip(), text[place : place + 1], text[place + 1 :].strip()


def _camel_case(flag: str) -> str:
    first, *others = flag.split("-")
    return first + "".join(word.capitalize() for word in others)


def _scalar(text: str) -> Any:
    """Return numbers and booleans as a document has them."""
    try:
        value = plain_json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int) else text


def check_main(content: bytes) -> Iterator[str]:
    """Check a file at a path where OpenShift has the configuration and kubeadm the kubeconfig of the kubelet."""
    if not is_kubeconfig(content):
        yield from check_form(content)


def is_kubeconfig(content: bytes) -> bool:
    """Return whether the file is a kubeconfig, which has credentials."""
    return _scalars(content)[0].get("kind") == KUBECONFIG


def check_form(content: bytes) -> Iterator[str]:
    """Check the form of a file: YAML or JSON with a KubeletConfiguration.

    The kubelet does not start with a file that it cannot read, and then the node does not return from the reboot that
    follows the change. Only the form is checked, because only the kubelet of the host knows the keys. Anchors and other
    YAML that the kubelet accepts are accepted, but not what it drops without an error: the first of two equal keys, and
    each document after the first one.
    """
    top, problem = _scalars(content)
    if problem:
        yield problem
    else:
        yield from _dropped(content)
    if "kind" in top and top["kind"] != KIND:
        yield f"kind must be {KIND}"
    if "apiVersion" in top and not top["apiVersion"].startswith(GROUP):
        yield f"apiVersion must be {GROUP}v1beta1"


def _scalars(content: bytes) -> tuple[dict[str, str], str]:
    """Return the top-level scalars, and why there are none."""
    if len(content) > MAX_BYTES:
        return {}, f"is {len(content)} bytes; a kubelet configuration has at most {MAX_BYTES}"
    try:
        content.decode()
        top = _top(content)
    except UnicodeDecodeError as error:
        return {}, f"is not UTF-8 at offset {error.start}"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1} column {mark.column + 1}: "
        return {}, f"is not YAML: {where}{_without_quotes(error.problem or '')}"
    except yaml.YAMLError:
        return {}, "is not YAML: it has a character that YAML does not allow"
    return ({}, "is not a YAML mapping of settings") if top is None else (top, "")


def _top(content: bytes) -> dict[str, str] | None:
    """Return the top-level scalars of the first document; None if it is not a mapping. Parse the whole text."""
    scalars: dict[str, str] = {}
    depth, top, key = 0, None, ""
    # Events expand no alias, so a small text cannot take all memory.
    for event in yaml.parse(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if not isinstance(event, yaml.NodeEvent):
            continue
        text = event.value if isinstance(event, yaml.ScalarEvent) else ""
        if not depth:
            top = top or type(event)
        elif depth == 1 and key:
            scalars.setdefault(key, text)
            key = ""
        elif depth == 1:
            key = text or "?"
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
    return scalars if top is yaml.MappingStartEvent else None


def _dropped(content: bytes) -> Iterator[str]:
    """Yield what a kubelet does not read of a text that can be parsed."""
    # For each open collection its keys, None for a list, and whether the next node is a key.
    keys: list[set[str] | None] = []
    is_key: list[bool] = []
    documents = 0
    for event in yaml.parse(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        documents += isinstance(event, yaml.DocumentStartEvent)
        if isinstance(event, yaml.CollectionEndEvent):
            keys.pop()
            is_key.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        scalar = event.value if isinstance(event, yaml.ScalarEvent) else None
        if documents > 1 and scalar != "":
            yield "has a second YAML document, which the kubelet does not read"
            return
        if keys and (names := keys[-1]) is not None:
            if is_key[-1] and scalar is not None and scalar in names:
                where = "" if event.start_mark is None else f"line {event.start_mark.line + 1}: "
                yield f"{where}the key {shown(scalar)} occurs twice; the kubelet would use the last one"
            if is_key[-1] and scalar is not None:
                names.add(scalar)
            is_key[-1] = not is_key[-1]
        if isinstance(event, yaml.CollectionStartEvent):
            keys.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
            is_key.append(True)


def _without_quotes(problem: str) -> str:
    """Return the problem without the text of the file that the parser quotes."""
    return problem.partition("'")[0].strip() if problem.count("'") > 1 else problem
