"""Decide whether a change of registries.conf needs a drain.

A node is drained before CRI-O reads a new registries.conf, because its workloads may depend on the source of their
images. Additions that affect only pulls by digest cannot change an image, so they are safe. The rule is that of the
machine-config-daemon (``isSafeContainerRegistryConfChanges``), with one difference: an unreadable file is unsafe here
and an error there. A missing file counts as an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.plan.change import Change
from nodeagent.core.plan.policy import DRAIN, Verdict, reload
from nodeagent.core.plan.sides import Sides

__all__ = ["REGISTRIES_CONF", "RELOAD_CRIO", "registries_rule", "unsafe_reason"]

REGISTRIES_CONF: Final = "/etc/containers/registries.conf"
RELOAD_CRIO: Final = reload("crio.service")
DIGEST_ONLY: Final = "digest-only"


def registries_rule(_change: Change, sides: Sides) -> Verdict:
    was, now = sides.old.files.get(REGISTRIES_CONF), sides.new.files.get(REGISTRIES_CONF)
    why = unsafe_reason(was.content if was else b"", now.content if now else b"")
    if why:
        return Verdict((DRAIN, RELOAD_CRIO), why)
    return Verdict((RELOAD_CRIO,), "only pulls by digest are affected")


def unsafe_reason(old: bytes, new: bytes) -> str:
    """Return why the change from ``old`` to ``new`` needs a drain, "" if it needs none."""
    try:
        was, now = _read(old), _read(new)
    except _Unreadable as error:
        return str(error)
    # An image without a registry is searched in this order, so an entry behind the others changes no pull that works.
    if now.search[: len(was.search)] != was.search:
        return "unqualified-search-registries lost an entry or their order"
    for scope, registry in was.registries.items():
        if scope not in now.registries:
            return f"registry {scope} is removed"
        if why := _kept(scope, registry, now.registries[scope]):
            return why
    for scope, registry in now.registries.items():
        if scope not in was.registries and not _all_by_digest(registry):
            return f"registry {scope} is added and is not limited to pulls by digest"
    return ""


class _Unreadable(ValueError):
    pass


@dataclass(frozen=True, slots=True)
class _Registry:
    # Prefix, location, blocked, insecure.
    fixed: tuple[str, str, bool, bool]
    by_digest: bool
    # Location to pull-from-mirror.
    mirrors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Registries:
    search: tuple[str, ...]
    # The keys are the prefixes that are compared with an image reference.
    registries: Mapping[str, _Registry]


# Each of them decides which image a reference means, or whether it is pulled at all.
FIXED: Final = ("prefix", "location", "blocked", "insecure")


def _kept(scope: str, was: _Registry, now: _Registry) -> str:
    for name, before, after in zip(FIXED, was.fixed, now.fixed, strict=True):
        if before != after:
            return f"{name} of registry {scope} changes"
    for location in was.mirrors:
        # A pod that is created again may find its image only there.
        if location not in now.mirrors:
            return f"mirror {location} of registry {scope} is removed"
    for location, pull in now.mirrors.items():
        if pull == DIGEST_ONLY:
            continue
        if location in was.mirrors:
            if pull != was.mirrors[location]:
                return f"pull-from-mirror of mirror {location} of registry {scope} changes"
        elif not now.by_digest:
            return f"mirror {location} of registry {scope} is added and is not limited to pulls by digest"
    return ""


def _all_by_digest(registry: _Registry) -> bool:
    if not registry.mirrors:
        return registry.by_digest
    return all(pull == DIGEST_ONLY for pull in registry.mirrors.values())


def _read(text: bytes) -> _Registries:
    # Loaded only if this file changes.
    import tomllib

    try:
        data = tomllib.loads(text.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        raise _Unreadable("registries.conf cannot be read on one side") from None
    if "registries" in data:
        raise _Unreadable("registries.conf is in the old format (version 1) on one side")
    search = _items(data, "unqualified-search-registries")
    registries: dict[str, _Registry] = {}
    for table in _items(data, "registry"):
        registry = _registry(table)
        # The first entry of a repeated scope counts, as in containers/image.
        registries.setdefault(registry.fixed[0] or registry.fixed[1], registry)
    if not all(isinstance(name, str) for name in search):
        raise _odd()
    return _Registries(tuple(search), registries)


def _registry(table: Any) -> _Registry:
    mirrors: dict[str, str] = {}
    for mirror in _items(table, "mirror"):
        mirrors.setdefault(_value(mirror, "location", str), _value(mirror, "pull-from-mirror", str))
    return _Registry(
        fixed=(
            _value(table, "prefix", str),
            _value(table, "location", str),
            _value(table, "blocked", bool),
            _value(table, "insecure", bool),
        ),
        by_digest=_value(table, "mirror-by-digest-only", bool),
        mirrors=mirrors,
    )


def _value(table: Any, key: str, kind: type) -> Any:
    value = table.get(key, kind()) if isinstance(table, dict) else None
    if not isinstance(value, kind):
        raise _odd()
    return value


def _items(table: Any, key: str) -> list[Any]:
    value: Any = _value(table, key, list)
    return list(value)


def _odd() -> _Unreadable:
    return _Unreadable("registries.conf has values of a wrong type on one side")
