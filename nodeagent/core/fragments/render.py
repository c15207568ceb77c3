# SPDX-License-Identifier: Apache-2.0
"""Render one config from the MachineConfigs of a pool, in the order and with the exceptions of the
machine-config-controller (``MergeMachineConfigs`` in ``pkg/controller/common/helpers.go``).

Beside the pool, one host may have MachineConfigs of its own, which are merged last.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from nodeagent.core.config.ignition import VERSIONS
from nodeagent.core.config.ignition_document import as_machine_config
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import API_VERSION, KIND, ORIGINS, parse
from nodeagent.core.config.text.document import load
from nodeagent.core.fragments.ignition_merge import Object, merge_ignition
from nodeagent.core.plan.diff import diff
from nodeagent.errors import InvalidInput

# The directory, in a directory of fragments, with those of this host alone.
OWN: Final = "host.d"
# Files of MachineConfigs, and those that are often taken for one: their error says what to do with them.
_SUFFIXES: Final = (".yaml", ".yml", ".json", ".ign", ".bu")
# What a controller made from the image of the release: its OS image is not one that an admin chose.
GENERATED: Final = "machineconfiguration.openshift.io/generated-by-controller-version"
WORKER: Final = "worker"
CONTROL_PLANE: Final = ("control-plane", "master")
# Characters that no name of a MachineConfig has.
_OTHERS: Final = re.compile(r"[^A-Za-z0-9._-]")
# Characters of the digest in the name of the result.
_DIGEST: Final = 32
# Each is parsed before they are merged.
MAX_FRAGMENTS: Final = 1000
# These packages are those of the default kernel.
_KERNEL_DEVEL: Final = "kernel-devel"


@dataclass(frozen=True, slots=True)
class Fragment:
    """A MachineConfig that is a part of what a host gets. ``where`` names its file. ``own``: of this host alone."""

    name: str
    where: str
    role: str
    generated: bool
    own: bool
    spec: Object
    config: MachineConfig


def is_fragment(name: str) -> bool:
    """Return whether a file of this name in a directory is read. Editors leave other files beside it."""
    return name.endswith(_SUFFIXES) and not name.startswith(".")


def read_fragment(text: bytes, where: str, *, own: bool = False) -> Fragment:
    """Return the fragment in ``text``, which is JSON or YAML. Raises ``InvalidInput`` with all of its problems.

    An Ignition config is named after its file.
    """
    file = where.rpartition("/")[2]
    text = as_machine_config(text, _OTHERS.sub("-", file.rpartition(".")[0] or file))
    config = parse(text, where)
    # ``parse`` has checked the types.
    document = cast(dict[str, Any], load(text, where, unique_keys=False))
    metadata = document.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    return Fragment(
        config.name,
        where,
        role=config.pool,
        generated=isinstance(annotations, Mapping) and bool(annotations.get(GENERATED)),
        own=own,
        spec=document.get("spec") or {},
        config=config,
    )


def render(fragments: Iterable[Fragment]) -> bytes:
    """Return the text of the config, as JSON. Equal fragments give equal bytes.

    Raises ``InvalidInput`` if the fragments cannot be of one host.
    """
    ordered = in_order(fragments)
    _check(ordered)
    spec = _spec([fragment.spec for fragment in ordered], [f.spec for f in ordered if not f.generated])
    form = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    # A custom pool has the MachineConfigs of the workers, too.
    pool = next((f.role for f in reversed(ordered) if f.role not in ("", WORKER)), "")
    pool = pool or next((f.role for f in ordered if f.role), "host")
    name = f"rendered-{pool}-{hashlib.sha256(form.encode()).hexdigest()[:_DIGEST]}"
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "annotations": {ORIGINS: json.dumps(origins(ordered), separators=(",", ":"))}},
        "spec": spec,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def in_order(fragments: Iterable[Fragment]) -> list[Fragment]:
    """Return the fragments in the order in which they are merged; of two values, that of the later one counts.

    Those of the workers come first, because a custom pool overrides them, and those of this host alone come last.
    Names are compared byte by byte.
    """
    return sorted(fragments, key=lambda f: (f.own, f.role != WORKER, f.name.encode()))


def origins(ordered: Sequence[Fragment]) -> dict[str, list[str]]:
    """Return the names of the fragments that have an entry, by its id (``file:/etc/x``), in the order of merging."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for fragment in ordered:
        for change in diff(MachineConfig(""), fragment.config):
            names[change.id].append(fragment.name)
    return dict(sorted(names.items()))


def _check(ordered: Sequence[Fragment]) -> None:
    if not ordered:
        raise InvalidInput("there is no MachineConfig to merge")
    if len(ordered) > MAX_FRAGMENTS:
        raise InvalidInput(f"there are {len(ordered)} MachineConfigs; at most {MAX_FRAGMENTS} are merged")
    by_name: dict[str, Fragment] = {}
    for fragment in ordered:
        if (other := by_name.setdefault(fragment.name, fragment)) is not fragment:
            raise InvalidInput(
                f"{other.where} and {fragment.where} both have the MachineConfig {fragment.name}: rename or remove one"
            )
    roles = {fragment.role: fragment for fragment in ordered if fragment.role}
    control_plane = next((roles[role] for role in CONTROL_PLANE if role in roles), None)
    others = next((fragment for role, fragment in roles.items() if role not in CONTROL_PLANE), None)
    if control_plane is not None and others is not None:
        raise InvalidInput(
            f"{control_plane.where} is for the pool {control_plane.role} and {others.where} for {others.role}: "
            "a host is in one of them (a custom pool has the MachineConfigs of the workers, too)"
        )


def _spec(specs: Sequence[Object], chosen: Sequence[Object]) -> dict[str, Any]:
    """``chosen`` are those whose OS image counts."""
    kernel = next((kind for kind in _last(specs, "kernelType") if kind != "default"), "default")
    spec: dict[str, Any] = {
        "config": _ignition([spec["config"] for spec in specs if spec.get("config")]),
        "extensions": [name for spec in specs for name in spec.get("extensions") or ()],
        "fips": any(spec.get("fips") for spec in specs),
        "kernelArguments": [entry for spec in specs for entry in spec.get("kernelArguments") or ()],
        "kernelType": kernel,
        "osImageURL": next(_last(chosen, "osImageURL"), ""),
        "baseOSExtensionsContainerImage": next(_last(chosen, "baseOSExtensionsContainerImage"), ""),
    }
    if kernel != "default" and _KERNEL_DEVEL in spec["extensions"]:
        raise InvalidInput(f"the extension {_KERNEL_DEVEL} is not for the kernel type {kernel}: remove one of them")
    return {key: value for key, value in spec.items() if value not in ([], False, "", "default")}


def _last(specs: Sequence[Object], key: str) -> Iterator[str]:
    return (spec[key] for spec in reversed(specs) if spec.get(key))


def _ignition(configs: Sequence[Object]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    versions = [config["ignition"]["version"] for config in configs if config.get("ignition")]
    for config in configs:
        merged = merge_ignition(merged, config)
    # A newer version reads what an older one has.
    newest = max(versions, key=VERSIONS.index, default=VERSIONS[-1])
    merged["ignition"] = {**merged.get("ignition", {}), "version": newest}
    for file in merged.get("storage", {}).get("files", ()):
        # Ignition itself would keep a file that exists already.
        if file.get("overwrite") is None:
            file["overwrite"] = True
    return merged
