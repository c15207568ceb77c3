"""Decide whether a change of registries.conf and its drop-ins needs a drain.

A node is drained before CRI-O reads new registries, because its workloads may depend on the source of their images.
Additions that affect only pulls by digest cannot change an image, so they are safe. The rule is that of the
machine-config-daemon (``isSafeContainerRegistryConfChanges``), with three differences: an unreadable file is unsafe
here and an error there, and drop-ins and aliases count. A missing file counts as an empty one.

A drop-in replaces the search list, and each registry and alias of the same name (containers/image:
``updateWithConfigurationFrom`` in pkg/sysregistriesv2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.plan.change import Change
from nodeagent.core.plan.policy import DRAIN, NONE, Verdict, reload
from nodeagent.core.plan.sides import Sides

REGISTRIES_CONF: Final = "/etc/containers/registries.conf"
DROPINS: Final = "/etc/containers/registries.conf.d"
SUFFIX: Final = ".conf"
RELOAD_CRIO: Final = reload("crio.service")
DIGEST_ONLY: Final = "digest-only"
SEARCH: Final = "unqualified-search-registries"


def registries_rule(change: Change, sides: Sides) -> Verdict:
    if change.key != REGISTRIES_CONF and not _is_dropin(change.key):
        return Verdict((NONE,), f"only files of {DROPINS} itself that end in {SUFFIX} are read")
    why = unsafe_reason(_documents(sides.before), _documents(sides.after))
    if why:
        return Verdict((DRAIN, RELOAD_CRIO), why)
    return Verdict((RELOAD_CRIO,), "only pulls by digest are affected")


def dropins(files: Mapping[str, bytes]) -> list[str]:
    """Return the paths of the drop-ins that are read, in order."""
    return sorted(filter(_is_dropin, files))


def _is_dropin(path: str) -> bool:
    directory, _, name = path.rpartition("/")
    # Hidden names count, and subdirectories do not.
    return directory == DROPINS and name.endswith(SUFFIX)


def _documents(files: Mapping[str, bytes]) -> list[bytes]:
    return [files[path] for path in (REGISTRIES_CONF, *dropins(files)) if path in files]


def unsafe_reason(old: Sequence[bytes], new: Sequence[bytes]) -> str:
    """Return why the change from ``old`` to ``new`` needs a drain, "" if it needs none. Both are documents in the order
    in which they are read."""
    try:
        was, now = _merged(old), _merged(new)
    except _Unreadable as error:
        return str(error)
    for name in sorted(was.aliases.keys() | now.aliases.keys()):
        if was.aliases.get(name) != now.aliases.get(name):
            return f"alias {name} changes"
    # An image without a registry is searched in this order, so an entry behind the others changes no pull that works.
    if now.search[: len(was.search)] != was.search:
        return f"{SEARCH} lost an entry or their order"
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

    @property
    def scope(self) -> str:
        """The prefix that is compared with an image reference."""
        return self.fixed[0] or self.fixed[1]


@dataclass(frozen=True, slots=True)
class _Document:
    # None if the document does not name any.
    search: tuple[str, ...] | None
    registries: Sequence[_Registry]
    aliases: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Registries:
    search: tuple[str, ...]
    # By scope.
    registries: Mapping[str, _Registry]
    aliases: Mapping[str, Any]


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


def _merged(texts: Sequence[bytes]) -> _Registries:
    search: tuple[str, ...] = ()
    registries: dict[str, _Registry] = {}
    aliases: dict[str, Any] = {}
    for document in map(_read, texts):
        search = search if document.search is None else document.search
        aliases |= document.aliases
        for each in document.registries:
            # The first entry of a repeated scope counts, and with drop-ins the last one: containers/image merges them
            # in a map.
            if len(texts) > 1 or each.scope not in registries:
                registries[each.scope] = each
    return _Registries(search, registries, aliases)


def _read(text: bytes) -> _Document:
    # Loaded only if such a file changes.
    import tomllib

    try:
        data = tomllib.loads(text.decode())
    except (ValueError, RecursionError):
        raise _Unreadable("registries.conf cannot be read on one side") from None
    if "registries" in data:
        raise _Unreadable("registries.conf is in the old format (version 1) on one side")
    search = tuple(_items(data, SEARCH)) if SEARCH in data else None
    if not all(isinstance(name, str) for name in search or ()):
        raise _odd()
    return _Document(search, [_registry(table) for table in _items(data, "registry")], _value(data, "aliases", dict))


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
