# SPDX-License-Identifier: Apache-2.0
"""Read the untrusted text of a MachineConfig.

The result is valid, normalised and complete; otherwise ``InvalidInput`` lists all problems. Nothing is silently
ignored: what is applied is checked, what the schemas contain and nodeagent does not apply goes to
``MachineConfig.unapplied``, and any other key is an error.

JSON is decoded straight to the types of ``schema``. If that or a check fails, a second pass over plain data collects
all problems with their paths; YAML always takes the second way. Of a key that is repeated in JSON, the last value
counts, as for the API server. In YAML it is an error, as for ``kubectl``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from nodeagent import typed
from nodeagent.core.config import schema
from nodeagent.core.config.arguments import read_arguments
from nodeagent.core.config.ignition import read_ignition
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import has_control, path_problem
from nodeagent.core.config.problems import Location, Problems, kind_of, shown
from nodeagent.core.config.shape import advised, shaped
from nodeagent.core.config.text.document import check_text, inspect, is_json, load
from nodeagent.core.config.text.yaml_document import foreign
from nodeagent.core.config.unit_names import unit_name_problem
from nodeagent.core.config.unsupported import UnsupportedSections
from nodeagent.errors import InvalidInput
from nodeagent.reasons import Reason

API_VERSION: Final = "machineconfiguration.openshift.io/v1"
KIND: Final = "MachineConfig"
# The annotation of a config that was merged on this host, with its origins as JSON.
ORIGINS: Final = "nodeagent.org/origins"
# The label with the pool that a MachineConfig is for.
ROLE: Final = "machineconfiguration.openshift.io/role"
# The keys with which a MachineConfig begins.
_FIRST: Final = "apiVersion, kind, metadata and spec"
# The keys of a policy without its frame.
_POLICY: Final = frozenset({"nodeDisruptionPolicy", "files", "units", "sshkey"})
KERNEL_TYPES: Final = ("default", "realtime", "64k-pages")
# Of an object in Kubernetes.
MAX_NAME: Final = 253
# Files, units and drop-ins of one config. Each costs two syncs of the disk when it is written: on a slow disk, this
# many take half an hour. The largest rendered configs have some hundreds.
MAX_PATHS: Final = 20_000

# Objects of the same API of which the machine-config-operator makes MachineConfigs.
_RENDERED: Final = (
    "ContainerRuntimeConfig",
    "ControllerConfig",
    "KubeletConfig",
    "MachineConfigPool",
    "PinnedImageSet",
)
_EXTENSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")


def parse(text: bytes, what: str = "the MachineConfig") -> MachineConfig:
    """Return the config in ``text``, which is JSON or YAML; ``what`` names it in errors."""
    text = check_text(text, what)
    # The typed decoder is much faster but stops at the first problem. Only after an error does a second pass collect
    # all of them.
    document = _decode(text) if is_json(text) else None
    if document is not None:
        # The second pass over so many files would only add time.
        _check_count(document, what)
        try:
            # The decoder has checked all other values against a type, except the sections that are only compared,
            # which ``UnsupportedSections`` inspects.
            inspect([document.metadata, document.status], what)
            return _config(document, Problems(), what)
        except InvalidInput:
            # Not all problems of the document are known yet.
            pass
    return parse_document(load(text, what, unique_keys=False), what)


def _decode(text: bytes) -> schema.Document | None:
    """Return None for every error: the second pass reports it with its place."""
    try:
        return typed.from_json(text, schema.Document)
    except ValueError:
        return None


def parse_stored(text: bytes) -> MachineConfig:
    """Return a config that an earlier version accepted, without the entries that violate a rule of this version.

    Raises ``InvalidInput`` only for a text that is not a MachineConfig.
    """
    what = "the stored MachineConfig"
    try:
        return parse(text, what)
    except InvalidInput:
        config = parse_document(load(text, what, unique_keys=False), what, lenient=True)
    return replace(
        config,
        # The host has these files already, so the rest of the config must stay readable.
        files={path: entry for path, entry in config.files.items() if path_problem(path) is None},
        units={name: entry for name, entry in config.units.items() if unit_name_problem(name) is None},
        directories={path: entry for path, entry in config.directories.items() if path_problem(path) is None},
        links={path: entry for path, entry in config.links.items() if path_problem(path) is None},
    )


def parse_document(data: object, what: str = "the MachineConfig", *, lenient: bool = False) -> MachineConfig:
    """Return the config in ``data``, as from ``document.load``. ``lenient``: problems are not errors."""
    if not isinstance(data, dict):
        # A line of text is a string in YAML, also the first of a page that reports an error.
        remedy = foreign(data.encode()) if isinstance(data, str) else ""
        raise InvalidInput(f"{what} is invalid: {remedy or f'must be an object with {_FIRST}, is {kind_of(data)}'}")
    if kind := _other_kind(data):
        raise InvalidInput(f"{what} {kind}", reason=Reason.NOT_MACHINE_CONFIG)
    problems = Problems()
    document = shaped(data, schema.Document, Location(problems))
    if not lenient:
        _check_count(document, what)
    return _config(document, problems, what, lenient=lenient)


def _other_kind(data: dict[str, object]) -> str:
    """Name a document that is often taken for a MachineConfig, and the remedy; otherwise return an empty string."""
    kind, variant = data.get("kind"), data.get("variant")
    if isinstance(variant, str) and kind is None:
        return (
            f"is a Butane config (variant: {shown(variant)}): run butane on it. Variant openshift gives a "
            "MachineConfig, the others an Ignition config, which is taken as it is"
        )
    if isinstance(data.get("ignition"), dict) and kind is None:
        return "is an Ignition config: it is read as JSON, as butane writes it"
    items = data.get("items")
    if isinstance(items, list) and (kind is None or (isinstance(kind, str) and kind.endswith("List"))):
        return f"is a list of {len(items)} objects: take one of them (kubectl get machineconfig NAME -o yaml)"
    if kind == "MachineConfiguration" or (data and data.keys() <= _POLICY):
        return "is a policy and no config: a host reads it from /etc/nodeagent/policy.yaml; nodeagent policy check FILE"
    if kind == "Kustomization":
        return "is a Kustomization, which names other files: kubectl kustomize prints them as one"
    if isinstance(kind, str) and kind != KIND and (data.get("apiVersion") != API_VERSION or kind in _RENDERED):
        return (
            f"is of the kind {shown(kind)}, and a host takes a {KIND}: apply it to a cluster, whose controllers "
            f"render it to one"
        )
    # With one of its keys it is a MachineConfig whose problems have places.
    if len(data) and not advised(schema.Document) & data.keys():
        return f"is no {KIND}: it has none of {_FIRST}"
    return ""


def _config(document: schema.Document, problems: Problems, what: str, *, lenient: bool = False) -> MachineConfig:
    top, where = Location(problems), Location(problems, "spec")
    for key, wanted, actual in (("apiVersion", API_VERSION, document.api_version), ("kind", KIND, document.kind)):
        if actual != wanted:
            top.bad(key, f"must be {wanted}" if actual is None else f"must be {wanted}, is {shown(actual)}")
    spec = document.spec or schema.Spec()
    config = spec.config or schema.Config()
    unsupported = UnsupportedSections()
    ignition = read_ignition(config, unsupported, where.child("config"))
    arguments = read_arguments(spec, where)
    result = MachineConfig(
        name=_name(shaped(document.metadata, schema.Metadata, top.child("metadata")), top),
        files=ignition.files,
        units=ignition.units,
        users=ignition.users,
        directories=ignition.directories,
        links=ignition.links,
        kernel_arguments=arguments.wanted,
        absent_arguments=arguments.absent,
        extensions=_extensions(spec.extensions or [], where),
        kernel_type=_kernel_type(spec.kernel_type or "default", where),
        fips=spec.fips or False,
        os_image_url=_image(spec.os_image_url or "", "osImageURL", where),
        extensions_image=_image(spec.base_os_extensions_container_image or "", "baseOSExtensionsContainerImage", where),
        unapplied=unsupported.sections(),
        origins=_origins(document.metadata or {}),
        pool=_pool(document.metadata or {}),
    )
    if not lenient:
        problems.check(what)
    return result


def _check_count(document: schema.Document, what: str) -> None:
    config = (document.spec or schema.Spec()).config or schema.Config()
    storage = config.storage or schema.Storage()
    files = [*(storage.files or ()), *(storage.directories or ()), *(storage.links or ())]
    units = (config.systemd or schema.SystemdSection()).units or []
    count = len(files) + sum(1 + len(unit.dropins or []) for unit in units)
    if count > MAX_PATHS:
        problems = Problems()
        problems.add("spec.config", f"has {count} files, units and drop-ins; at most {MAX_PATHS} can be applied")
        problems.check(what)


def _name(metadata: schema.Metadata, where: Location) -> str:
    name = metadata.name or ""
    if not name:
        where.bad("metadata.name", "is missing")
    elif len(name) > MAX_NAME or has_control(name) or "/" in name or " " in name:
        problem = f"must be at most {MAX_NAME} characters without spaces, slashes or control characters"
        where.bad("metadata.name", problem)
    return name


def _origins(metadata: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Return the origins in an annotation, empty without a valid one: they only explain."""
    annotations = metadata.get("annotations")
    text = annotations.get(ORIGINS) if isinstance(annotations, Mapping) else None
    if not isinstance(text, str):
        return {}
    try:
        origins = typed.from_json(text, dict[str, tuple[str, ...]])
    except ValueError:
        return {}
    return {} if any(has_control(name) for names in origins.values() for name in names) else origins


def _pool(metadata: Mapping[str, Any]) -> str:
    labels = metadata.get("labels")
    role = labels.get(ROLE) if isinstance(labels, Mapping) else None
    return role if isinstance(role, str) and not has_control(role) else ""


def _extensions(names: Sequence[str], where: Location) -> tuple[str, ...]:
    """Return a sorted set. Only the image knows which extensions exist."""
    for index, name in enumerate(names):
        if name and not _EXTENSION.fullmatch(name):
            where.bad(f"extensions[{index}]", f"{shown(name)} is not the name of an extension")
    # The order has no meaning, so it must not be a change.
    return tuple(sorted({name for name in names if name}))


def _kernel_type(name: str, where: Location) -> str:
    # The machine-config-operator takes an unknown type for ``default``. Here a typing error must not swap the kernel.
    if name not in KERNEL_TYPES:
        where.bad("kernelType", f"unknown kernel type {shown(name)}, must be one of {', '.join(KERNEL_TYPES)}")
    return name


def _image(reference: str, key: str, where: Location) -> str:
    if has_control(reference) or " " in reference:
        where.bad(key, "must not hold spaces or control characters")
    return reference
