# SPDX-License-Identifier: Apache-2.0
"""Check the manifest of a static pod as the kubelet reads it.

A manifest that the kubelet cannot use is left out of its next full listing of the directory, up to 20 s after the
write, and then it kills the pod that runs from the previous content. So nothing of this kind may be written. The rules
are those of kubernetes:pkg/kubelet/config/common.go and of its validation of pods; keys that are not known here are
accepted, because the version of the kubelet decides about them. Anchors, aliases and tags of YAML are rejected.

Messages name keys and never contain a value of the environment or of a command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nodeagent.core.config.problems import kind_of, shown
from nodeagent.core.config.text import document
from nodeagent.errors import InvalidInput

# The kubelet reads no more of a file (kubernetes:pkg/kubelet/config/file.go, maxConfigLength).
MAX_BYTES: Final = 10 << 20

NAMESPACE: Final = "default"
# RFC 1123, as the API server has it: a label for containers and volumes, a subdomain for pods.
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")

# The kubelet decodes a manifest into types: one value of a wrong type makes all of it unusable.
_TEXT_FIELDS: Final = ("image", "imagePullPolicy", "workingDir", "terminationMessagePath")
# A static pod must start without an API server, so it cannot refer to other objects of it.
_API_VOLUMES: Final[Mapping[str, str]] = {
    "secret": "a Secret",
    "configMap": "a ConfigMap",
    "persistentVolumeClaim": "a PersistentVolumeClaim",
    "ephemeral": "a PersistentVolumeClaim",
}
_API_PROJECTIONS: Final[Mapping[str, str]] = {
    "secret": "a Secret",
    "configMap": "a ConfigMap",
    "serviceAccountToken": "a ServiceAccount",
    "clusterTrustBundle": "a ClusterTrustBundle",
    "podCertificate": "a PodCertificateRequest",
}
_API_ENV: Final[Mapping[str, str]] = {
    "secretKeyRef": "a Secret",
    "configMapKeyRef": "a ConfigMap",
    "secretRef": "a Secret",
    "configMapRef": "a ConfigMap",
}


@dataclass(frozen=True, slots=True)
class StaticPod:
    """A pod that the kubelet accepts. ``document`` is the decoded manifest."""

    namespace: str
    name: str
    document: Mapping[str, Any] = field(repr=False)

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def containers(self) -> Sequence[Mapping[str, Any]]:
        """The containers that keep running, without the init containers."""
        return tuple(self.document["spec"]["containers"])

    @property
    def images(self) -> Mapping[str, str]:
        """Image to its pull policy: Always, IfNotPresent or Never; "" for the default of the kubelet."""
        spec = self.document["spec"]
        every = (*(spec.get("initContainers") or ()), *spec["containers"])
        return {container["image"]: container.get("imagePullPolicy") or "" for container in every}

    @property
    def host_paths(self) -> Mapping[str, str]:
        """Paths of the host that it mounts, to their type (File, DirectoryOrCreate, ...; "" for any)."""
        mounted = [volume.get("hostPath") for volume in self.document["spec"].get("volumes") or ()]
        return {source["path"]: source.get("type") or "" for source in mounted if source}

    @property
    def grace_period(self) -> float:
        """Seconds that the kubelet gives the containers to end."""
        seconds = self.document["spec"].get("terminationGracePeriodSeconds")
        # The default of the API, which the kubelet gives to a manifest as well.
        return 30.0 if seconds is None else float(max(1, seconds))


def is_visible(name: str) -> bool:
    """Return whether the kubelet reads a file of this name, whatever its suffix."""
    # The kubelet lists ``[^.]*`` and looks at no suffix, so a backup beside a manifest is a pod.
    return not name.startswith(".")


def load(content: bytes) -> StaticPod | None:
    """Return the pod, None if the kubelet would not run it."""
    try:
        data = _decode(content)
    except InvalidInput:
        return None
    return None if any(problems_of(data)) else _pod(data)


def check(content: bytes) -> Iterator[str]:
    """Yield the problems of a manifest."""
    try:
        data = _decode(content)
    except InvalidInput as error:
        yield from [f"{p.path}: {p.message}" for p in error.problems] or [error.message]
    else:
        yield from problems_of(data)


def same_object(pod: StaticPod, other: StaticPod) -> bool:
    """Return whether the kubelet sees no difference: comments, quotes and the order of keys do not count.

    Its id of a pod is a hash of the decoded object. An explicit default counts as a difference here, not there.
    """
    return json.dumps(pod.document, sort_keys=True) == json.dumps(other.document, sort_keys=True)


def _decode(content: bytes) -> object:
    if len(content) > MAX_BYTES:
        raise InvalidInput(f"is {len(content)} bytes; the kubelet reads at most {MAX_BYTES}")
    return document.load(content, "the manifest")


def _pod(data: object) -> StaticPod:
    assert isinstance(data, dict), "problems_of has found none"
    metadata = data["metadata"]
    return StaticPod(metadata.get("namespace") or NAMESPACE, metadata["name"], data)


def problems_of(data: object) -> Iterator[str]:
    """Yield the problems of a decoded manifest."""
    if not isinstance(data, dict):
        yield f"must be a Pod, is {kind_of(data)}"
        return
    kind = data.get("kind")
    if kind in ("PodList", "List"):
        yield "must have one Pod: the kubelet reads no list from a file"
        return
    if kind != "Pod" or data.get("apiVersion") != "v1":
        yield "must have apiVersion v1 and kind Pod"
        return
    yield from _metadata(data.get("metadata"))
    spec = data.get("spec")
    if isinstance(spec, dict):
        yield from _spec(spec)
    else:
        yield f"spec must be a mapping, is {kind_of(spec)}"


def _metadata(metadata: object) -> Iterator[str]:
    if not isinstance(metadata, dict):
        yield f"metadata must be a mapping, is {kind_of(metadata)}"
        return
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not isinstance(name, str) or not _SUBDOMAIN.fullmatch(name):
        yield "metadata.name must be a name in lower case, such as etcd"
    if namespace not in (None, "") and not (isinstance(namespace, str) and _LABEL.fullmatch(namespace)):
        yield "metadata.namespace must be a name in lower case, such as kube-system"
    if metadata.get("uid"):
        # The kubelet would change such a pod in place, one container after the other.
        yield "metadata.uid must not be set: the kubelet derives it from the content"
    for key in ("labels", "annotations"):
        yield from _texts(f"metadata.{key}", metadata.get(key))


def _spec(spec: Mapping[str, object]) -> Iterator[str]:
    volumes = yield from _volumes(spec.get("volumes"))
    # Containers and init containers share their names.
    names: set[str] = set()
    if not spec.get("containers"):
        yield "spec.containers must have at least one container"
    for key in ("containers", "initContainers"):
        for where, container in (yield from _mappings(f"spec.{key}", spec.get(key))):
            yield from _container(where, container, volumes, names)
    # Only the API adds them, to a pod that runs.
    if spec.get("ephemeralContainers"):
        yield "spec.ephemeralContainers must not be set in a manifest"
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        yield "spec.serviceAccountName: a static pod must not refer to a ServiceAccount"
    if spec.get("resourceClaims"):
        yield "spec.resourceClaims: a static pod must not refer to a ResourceClaim"
    if spec.get("imagePullSecrets"):
        yield "spec.imagePullSecrets: a static pod must not refer to a Secret"
    grace = spec.get("terminationGracePeriodSeconds")
    # A boolean is an integer in Python.
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool) or grace < 0):
        yield "spec.terminationGracePeriodSeconds must be a number of seconds"
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if not isinstance(spec.get(key), bool | None):
            yield f"spec.{key} must be true or false"
    policy = spec.get("restartPolicy")
    if policy is not None and policy not in ("Always", "OnFailure", "Never"):
        yield "spec.restartPolicy must be Always, OnFailure or Never"


def _volumes(value: object) -> Generator[str, None, set[str]]:
    """Yield the problems of the volumes, and return their names."""
    names: set[str] = set()
    for where, volume in (yield from _mappings("spec.volumes", value)):
        name = volume.get("name")
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            yield f"{where}.name must be a name in lower case"
            continue
        if name in names:
            yield f"{where}.name: {shown(name)} occurs twice"
        names.add(name)
        yield from _source(where, volume)
    return names


def _source(where: str, volume: Mapping[str, object]) -> Iterator[str]:
    yield from _references(where, volume, _API_VOLUMES)
    host = volume.get("hostPath")
    if host is not None:
        path = host.get("path") if isinstance(host, dict) else None
        # The validation of the kubelet refuses steps back in the path of a volume.
        if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/"):
            yield f"{where}.hostPath.path must be an absolute path"
    projected = volume.get("projected")
    sources = projected.get("sources") if isinstance(projected, dict) else None
    for source in sources if isinstance(sources, list) else ():
        for key, what in _API_PROJECTIONS.items():
            if isinstance(source, dict) and source.get(key) is not None:
                yield f"{where}.projected: a static pod must not refer to {what}"
    driver = volume.get("csi")
    if isinstance(driver, dict) and driver.get("nodePublishSecretRef"):
        yield f"{where}.csi: a static pod must not refer to a Secret"


def _container(where: str, container: Mapping[str, object], volumes: set[str], names: set[str]) -> Iterator[str]:
    name = container.get("name")
    if not isinstance(name, str) or not _LABEL.fullmatch(name):
        yield f"{where}.name must be a name in lower case"
    elif name in names:
        yield f"{where}.name: {shown(name)} occurs twice"
    else:
        names.add(name)
    for key in _TEXT_FIELDS:
        if not isinstance(container.get(key), str | None):
            yield f"{where}.{key} must be a string"
    image = container.get("image")
    if not image:
        yield f"{where}.image is missing"
    # The name is an argument of crictl, which would take a dash for an option.
    elif isinstance(image, str) and (image.startswith("-") or any(char.isspace() for char in image)):
        yield f"{where}.image must be the name of an image"
    if container.get("imagePullPolicy") not in (None, "", "Always", "IfNotPresent", "Never"):
        yield f"{where}.imagePullPolicy must be Always, IfNotPresent or Never"
    for key in ("command", "args"):
        words = container.get(key)
        if words is not None and not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
            yield f"{where}.{key} must be a list of strings: put numbers and booleans in quotes"
    yield from _environment(where, container)
    yield from _mounts(where, container.get("volumeMounts"), volumes)


def _environment(where: str, container: Mapping[str, object]) -> Iterator[str]:
    for place, variable in (yield from _mappings(f"{where}.env", container.get("env"))):
        name, value = variable.get("name"), variable.get("value")
        # Newer kubelets accept every printable character but this one.
        if not isinstance(name, str) or not name or "=" in name:
            yield f"{place}.name must be the name of a variable"
        # YAML reads 1 and true as a number and a boolean, which the decoder of the kubelet does not convert.
        if not isinstance(value, str | None):
            yield f"{place}.value must be a string: put numbers and booleans in quotes"
        yield from _references(f"{place}.valueFrom", variable.get("valueFrom"))
    for place, source in (yield from _mappings(f"{where}.envFrom", container.get("envFrom"))):
        yield from _references(place, source)


def _references(where: str, source: object, kinds: Mapping[str, str] = _API_ENV) -> Iterator[str]:
    for key, what in kinds.items():
        if isinstance(source, dict) and source.get(key) is not None:
            yield f"{where}.{key}: a static pod must not refer to {what}"


def _mounts(where: str, value: object, volumes: set[str]) -> Iterator[str]:
    paths: set[str] = set()
    for place, mount in (yield from _mappings(f"{where}.volumeMounts", value)):
        name, path = mount.get("name"), mount.get("mountPath")
        if not isinstance(name, str) or name not in volumes:
            yield f"{place}.name must be the name of a volume of this pod"
        if not isinstance(path, str) or not path:
            yield f"{place}.mountPath must be a path"
        # One would be mounted over the other.
        elif path in paths:
            yield f"{place}.mountPath: {shown(path)} occurs twice"
        else:
            paths.add(path)


def _texts(where: str, value: object) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield f"{where} must be a mapping, is {kind_of(value)}"
        return
    for key, text in value.items():
        if not isinstance(text, str):
            yield f"{where}.{key} must be a string: put numbers and booleans in quotes"


def _mappings(where: str, value: object) -> Generator[str, None, Sequence[tuple[str, Mapping[str, Any]]]]:
    """Yield a problem for each item that is no mapping, and return the place and the mapping of the others."""
    if not isinstance(value, list | None):
        yield f"{where} must be a list, is {kind_of(value)}"
        return []
    mappings = []
    for index, item in enumerate(value or ()):
        place = f"{where}[{index}]"
        if isinstance(item, dict):
            mappings.append((place, item))
        else:
            yield f"{place} must be a mapping, is {kind_of(item)}"
    return mappings
