# SPDX-License-Identifier: Apache-2.0
"""The static pods of two configs: which directory holds their manifests, what a change of a manifest changes, and what
the directory as it will be must not contain.

The kubelet reads every visible file of its directory. A backup of a manifest is a second pod of the same name, which
replaces the first one and stays (kubernetes:pkg/kubelet/config/file.go, extractFromDir).
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.validate.static_pod import StaticPod, is_visible, load
from nodeagent.errors import Problem

# That of kubeadm and of the machine-config-operator. The kubelet itself has no default for staticPodPath.
DEFAULT_DIRECTORY: Final = "/etc/kubernetes/manifests"

# Where the installer of OpenShift's static pods puts their files (library-go:pkg/operator/staticpod).
OPERATOR_RESOURCES: Final = "/etc/kubernetes/static-pod-resources"
OPERATOR_NAMESPACES: Final = "openshift-"
# Label with the number of the revision that an operator has installed (library-go).
REVISION: Final = "revision"
KUBEADM: Final = "kubeadm.kubernetes.io/"

_BY_NAME: Final = ("containers", "initContainers", "volumes", "env")
_WHOLE: Final = ("command", "args", "ports", "securityContext", "resources")
# In place of a value: the key is not set.
MISSING: Final = object()


def in_directory(files: Mapping[str, bytes], directory: str = DEFAULT_DIRECTORY) -> Mapping[str, bytes]:
    """Return the files that the kubelet reads in ``directory``, which it does not enter deeper."""
    places = {path: path.rpartition("/") for path in files}
    return {path: files[path] for path, (above, _, name) in places.items() if above == directory and is_visible(name)}


def manifests(config: MachineConfig, directory: str = DEFAULT_DIRECTORY) -> Mapping[str, bytes]:
    """Return the files of ``config`` that the kubelet reads in ``directory``."""
    return in_directory({path: file.content for path, file in config.files.items()}, directory)


def owned_manifests(config: MachineConfig) -> Mapping[str, str]:
    """Return the paths of the manifests in ``config`` that an operator writes, with the sign of it.

    Such a file is compared with the host and never written.
    """
    pods = {path: load(content) for path, content in manifests(config).items()}
    return {path: sign for path, pod in pods.items() if pod is not None and (sign := owner_of(pod))}


def directory_problems(files: Mapping[str, bytes], changed: Sequence[str]) -> Iterator[Problem]:
    """Yield the problems of the directory as it will be, if a changed file takes part in them.

    ``files`` are all visible files by path. Two of them must not be the same pod, or members with the same data.
    """
    pods = {path: pod for path, content in sorted(files.items()) if (pod := load(content)) is not None}
    for path in sorted(changed):
        for other, pod in pods.items():
            if path not in pods or other == path:
                continue
            if pod.title == pods[path].title:
                yield Problem(path, f"is the same pod as {other}, {pod.title}: the kubelet runs one of them")
            # etcd locks its database, so the second one waits for the first without end.
            elif (data := data_directory(pod)) and data == data_directory(pods[path]):
                yield Problem(path, f"has the data directory of etcd of {other}, {data}: only one of them starts")


# A key such as ``spec.containers[etcd].image``, its old and its new value. Values may be secrets, or ``MISSING``.
Difference = tuple[str, object, object]


def differences(old: StaticPod, new: StaticPod) -> Sequence[Difference]:
    """Return the keys that differ."""
    return tuple(_differences("", old.document, new.document))


def _differences(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    for key in sorted({*old, *new}):
        place = f"{where}.{key}" if where else key
        was, now = old.get(key, MISSING), new.get(key, MISSING)
        if _same(was, now):
            continue
        if key in _BY_NAME and (named := _named(was, now)) is not None:
            yield from _named_differences(place, *named)
        elif isinstance(was, dict) and isinstance(now, dict) and key not in _WHOLE:
            yield from _differences(place, was, now)
        else:
            yield place, was, now


def _named(was: object, now: object) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    sides = []
    for side in (was, now):
        items = side if isinstance(side, list) else []
        if not all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in items):
            return None
        sides.append({item["name"]: item for item in items})
    return sides[0], sides[1]


def _named_differences(place: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    # The order alone is a difference: init containers run in it, and a variable may refer to those above it.
    if list(old) != list(new) and set(old) == set(new):
        yield place, list(old), list(new)
    for name in sorted({*old, *new}):
        if name not in old or name not in new:
            yield f"{place}[{name}]", old.get(name, MISSING), new.get(name, MISSING)
        elif not _same(old[name], new[name]):
            yield from _differences(f"{place}[{name}]", old[name], new[name])


def _same(value: object, other: object) -> bool:
    """Compare by type as well: in Python, true equals 1."""
    if value is MISSING or other is MISSING:
        return value is other
    return json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)


def is_etcd(pod: StaticPod) -> bool:
    return any(is_etcd_container(container) for container in pod.containers)


def is_etcd_container(container: Mapping[str, Any]) -> bool:
    """Return whether a container runs etcd: by its name, or by the program that it starts."""
    words = [*_words(container.get("command")), *_words(container.get("args"))]
    return container.get("name") == "etcd" or bool(words and posixpath.basename(words[0]) == "etcd")


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def etcd_image(pod: StaticPod) -> str:
    """Return the image of etcd, "" for a pod without it."""
    return next((container["image"] for container in pod.containers if is_etcd_container(container)), "")


def data_directory(pod: StaticPod) -> str:
    """Return the path of the data of etcd on the host, "" if the manifest does not name it.

    The flag counts before the variable, as in etcd. A path on no mount belongs to the container.
    """
    for container in filter(is_etcd_container, pod.containers):
        words = [*_words(container.get("command")), *_words(container.get("args"))]
        inside = _option(words, "data-dir") or _variable(container, "ETCD_DATA_DIR")
        volumes = {v["name"]: (v.get("hostPath") or {}).get("path") for v in pod.document["spec"].get("volumes") or ()}
        mounts = {m["mountPath"].rstrip("/"): volumes.get(m["name"]) for m in container.get("volumeMounts") or ()}
        # Of nested mounts the deepest one holds the path.
        for mount in sorted(mounts, key=len, reverse=True):
            if f"{inside}/".startswith(f"{mount}/"):
                return f"{mounts[mount]}{inside[len(mount) :]}".rstrip("/")
        return inside
    return ""


def _option(words: Sequence[str], name: str) -> str:
    """Return the value of a flag, as Go reads it. A script may have it inside of a word."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        for part in word.split():
            flag, equals, value = part.lstrip("-").partition("=")
            if part.startswith("-") and flag == name:
                return value if equals else following
    return ""


def _variable(container: Mapping[str, Any], name: str) -> str:
    return next((str(v.get("value") or "") for v in container.get("env") or () if v["name"] == name), "")


def owner_of(pod: StaticPod) -> str:
    """Return the sign that an operator of OpenShift writes this manifest, "" if there is none."""
    # The operator writes its next revision over every change, so there is no point in writing one.
    below = [path for path in pod.host_paths if f"{path}/".startswith(f"{OPERATOR_RESOURCES}/")]
    if below:
        return f"it mounts {below[0]}"
    labels = pod.document["metadata"].get("labels") or {}
    if pod.namespace.startswith(OPERATOR_NAMESPACES) and REVISION in labels:
        return f"its label {REVISION}"
    return ""


def kubeadm_writes(pod: StaticPod) -> bool:
    """Return whether the manifest has the annotations of kubeadm, which writes it once for each upgrade."""
    annotations = pod.document["metadata"].get("annotations") or {}
    return any(name.startswith(KUBEADM) for name in annotations)
