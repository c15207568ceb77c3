"""Untrusted text to a ``MachineConfig`` that is valid, normalised and complete, or ``InvalidInput`` with all problems.

Nothing is silently ignored. What we apply is checked and read; what belongs to the schemas and we do not apply goes to
``MachineConfig.unapplied``; any other key is an error.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from nodeagent.core.config import kargs
from nodeagent.core.config.fields import Fields
from nodeagent.core.config.ignition import read_ignition
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import has_control, path_problem
from nodeagent.core.config.problems import Problems, kind_of, shown
from nodeagent.core.config.text import jsondoc
from nodeagent.core.config.text.document import is_json, load
from nodeagent.core.config.text.quickfiles import Cache
from nodeagent.core.config.unit_names import unit_name_problem
from nodeagent.core.config.unsupported import Unapplied
from nodeagent.errors import InvalidInput

__all__ = ["API_VERSION", "KERNEL_TYPES", "KIND", "Cache", "parse", "parse_document", "parse_stored"]

API_VERSION: Final = "machineconfiguration.openshift.io/v1"
KIND: Final = "MachineConfig"
KERNEL_TYPES: Final = ("default", "realtime", "64k-pages")
MAX_NAME: Final = 253  # of an object in Kubernetes
MAX_PATHS: Final = 20_000
"""Files, units and drop-ins of one config. Each costs two syncs of the disk when it is written: on a slow disk that
many take half an hour. The largest rendered configs have some hundreds."""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")


def parse(text: bytes, what: str = "the MachineConfig", *, cache: Cache | None = None) -> MachineConfig:
    """``text`` is JSON or YAML; ``what`` names it in errors.

    One ``cache`` for the two configs of a comparison makes them share the files that are the same in both, which
    saves decoding and comparing them. It changes no result.
    """
    document = jsondoc.read(text, cache or Cache()) if is_json(text) else None
    return parse_document(load(text, what) if document is None else document, what)


def parse_stored(text: bytes, what: str = "the stored MachineConfig") -> MachineConfig:
    """A config that an earlier version accepted: what breaks a rule of this version is left out.

    Raises ``InvalidInput`` only for what is no MachineConfig at all.
    """
    config = parse_document(load(text, what), what, lenient=True)
    return replace(
        config,
        files={path: entry for path, entry in config.files.items() if path_problem(path) is None},
        units={name: entry for name, entry in config.units.items() if unit_name_problem(name) is None},
    )


def parse_document(document: object, what: str = "the MachineConfig", *, lenient: bool = False) -> MachineConfig:
    """The same for data that ``document.load`` gave or would give. ``lenient``: problems are no errors."""
    problems = Problems()
    if not isinstance(document, dict):
        raise InvalidInput(f"{what} is invalid: must be an object, is {kind_of(document)}")
    if foreign := _foreign(document):
        raise InvalidInput(f"{what} {foreign}", reason="NotMachineConfig")
    unapplied = Unapplied()
    top = Fields(document, "", problems)
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        found = top.text(key)
        if found != wanted:
            top.bad(key, f"must be {wanted}" if found is None else f"must be {wanted}, is {shown(found)}")
    name = _name(top.child("metadata"))
    top.raw("status")  # an observation of the cluster, nothing that we are asked for
    spec = top.child("spec")
    top.finish()
    ignition = read_ignition(spec.child("config"), unapplied)
    config = MachineConfig(
        name=name,
        files=ignition.files,
        units=ignition.units,
        users=ignition.users,
        kernel_arguments=_kernel_arguments(spec),
        extensions=_extensions(spec),
        kernel_type=_kernel_type(spec),
        fips=spec.flag("fips") or False,
        os_image_url=_image(spec, "osImageURL"),
        extensions_image=_image(spec, "baseOSExtensionsContainerImage"),
        unapplied=unapplied.sections(),
    )
    spec.finish()
    paths = len(config.files) + sum(1 + len(unit.dropins) for unit in config.units.values())
    if paths > MAX_PATHS:
        spec.bad("config", f"has {paths} files, units and drop-ins; at most {MAX_PATHS} can be applied")
    if not lenient:
        problems.check(what)
    return config


def _foreign(document: dict[str, object]) -> str:
    """What the document is, and the way from it to a MachineConfig, for what people take for one; "" otherwise."""
    kind, variant = document.get("kind"), document.get("variant")
    if isinstance(variant, str) and kind is None:
        return (
            f"is a Butane config (variant: {shown(variant)}): run butane on it. Variant openshift gives a "
            "MachineConfig; the others give an Ignition config, which goes below spec.config of one"
        )
    if isinstance(document.get("ignition"), dict) and kind is None:
        return "is an Ignition config: put it below spec.config of a MachineConfig"
    items = document.get("items")
    if isinstance(items, list) and (kind is None or (isinstance(kind, str) and kind.endswith("List"))):
        return f"is a list of {len(items)} objects: take one of them (kubectl get machineconfig NAME -o yaml)"
    return ""


def _name(metadata: Fields) -> str:
    name = metadata.text("name")  # of the rest of the metadata nothing concerns a host
    if not name:
        metadata.bad("name", "is missing")
    elif len(name) > MAX_NAME or has_control(name) or "/" in name or " " in name:
        metadata.bad("name", f"must be at most {MAX_NAME} characters without spaces, slashes or control characters")
    return name or ""


def _kernel_arguments(spec: Fields) -> tuple[str, ...]:
    tokens: list[str] = []
    for index, entry in enumerate(spec.texts("kernelArguments")):
        if problem := kargs.entry_problem(entry):
            spec.bad(f"kernelArguments[{index}]", problem)
        else:
            tokens.extend(kargs.split(entry))
    if sum(map(len, tokens)) + len(tokens) > kargs.MAX_LENGTH:
        spec.bad("kernelArguments", f"must not be longer than {kargs.MAX_LENGTH} characters together")
    return tuple(tokens)


def _extensions(spec: Fields) -> tuple[str, ...]:
    """Sorted, each once: they are a set of features. Which ones exist is known to the image, not to us."""
    found: set[str] = set()
    for index, name in enumerate(spec.texts("extensions")):
        if not name:
            continue
        if not _WORD.fullmatch(name):
            spec.bad(f"extensions[{index}]", f"{shown(name)} is not the name of an extension")
        found.add(name)
    return tuple(sorted(found))


def _kernel_type(spec: Fields) -> str:
    """The machine-config-operator takes an unknown type for ``default``; a typo should not swap the kernel."""
    name = spec.text("kernelType") or "default"
    if name not in KERNEL_TYPES:
        spec.bad("kernelType", f"unknown kernel type {shown(name)}, must be one of {', '.join(KERNEL_TYPES)}")
    return name


def _image(spec: Fields, key: str) -> str:
    reference = spec.text(key) or ""
    if has_control(reference) or " " in reference:
        spec.bad(key, "must not hold spaces or control characters")
    return reference
