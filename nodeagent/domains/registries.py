# SPDX-License-Identifier: Apache-2.0
"""The sources of images: registries.conf and its drop-ins, and whether a change of them needs a drain.

A node is drained before CRI-O reads new registries, because its workloads may depend on the source of their images.
Additions that affect only pulls by digest cannot change an image, so they are safe. The rule is that of the
machine-config-daemon (``isSafeContainerRegistryConfChanges``), with three differences: an unreadable file is unsafe
here and an error there, and drop-ins and aliases count. A missing file counts as an empty one.

A drop-in replaces the search list, and each registry and alias of the same name (containers/image:
``updateWithConfigurationFrom`` in pkg/sysregistriesv2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from nodeagent import typed
from nodeagent.core.plan.change import Change
from nodeagent.core.plan.domain import ByContent, Domain
from nodeagent.core.plan.layers import by_name, is_leftover, parse_toml
from nodeagent.core.plan.policy import DRAIN, NONE, Verdict, reload
from nodeagent.core.plan.sides import Sides
from nodeagent.core.validate import registries_conf
from nodeagent.errors import Problem

REGISTRIES_CONF: Final = "/etc/containers/registries.conf"
DROPINS: Final = "/etc/containers/registries.conf.d"
SUFFIX: Final = ".conf"
RELOAD_CRIO: Final = reload("crio.service")
DIGEST_ONLY: Final = "digest-only"
SEARCH: Final = "unqualified-search-registries"
RULE: Final = "Reload crio.service, after a Drain if more than pulls by digest is affected"


class RegistriesDomain(Domain):
    """The comparison of both sides decides whether a node is drained before the runtime reloads."""

    def reads(self, _sides: Sides) -> Collection[str]:
        return (REGISTRIES_CONF, f"{DROPINS}/")

    def actions(self, change: Change, sides: Sides) -> Verdict:
        if change.key != REGISTRIES_CONF and not by_name([change.key], [DROPINS], SUFFIX):
            return Verdict((NONE,), f"only files of {DROPINS} itself that end in {SUFFIX} are read")
        if cause := unsafe_reason(_documents(sides.before), _documents(sides.after)):
            return Verdict((DRAIN, RELOAD_CRIO), cause)
        return Verdict((RELOAD_CRIO,), "only pulls by digest are affected")

    def warnings(self, sides: Sides) -> Iterator[Problem]:
        for path in by_name(sides.after, [DROPINS], SUFFIX):
            if is_leftover(path):
                yield Problem(path, "is read by CRI-O, which reads every file of the directory that ends in .conf")


def _documents(files: Mapping[str, bytes]) -> list[bytes]:
    # Hidden names count, and subdirectories do not.
    return [files[path] for path in (REGISTRIES_CONF, *by_name(files, [DROPINS], SUFFIX)) if path in files]


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
        if cause := _kept(scope, registry, now.registries[scope]):
            return cause
    for scope, registry in now.registries.items():
        if scope not in was.registries and not _all_by_digest(registry):
            return f"registry {scope} is added and is not limited to pulls by digest"
    return ""


class _Unreadable(ValueError):
    pass


class _Mirror(Struct):
    location: str = ""
    pull: str = msgspec.field(default="", name="pull-from-mirror")


class _Registry(Struct):
    prefix: str = ""
    location: str = ""
    blocked: bool = False
    insecure: bool = False
    by_digest: bool = msgspec.field(default=False, name="mirror-by-digest-only")
    mirror: list[_Mirror] = []

    @property
    def mirrors(self) -> Mapping[str, str]:
        """Location to pull-from-mirror. The first of several with the same location counts."""
        pulls: dict[str, str] = {}
        for mirror in self.mirror:
            pulls.setdefault(mirror.location, mirror.pull)
        return pulls


class _Document(Struct):
    # None if the document does not name any.
    search: list[str] | None = msgspec.field(default=None, name=SEARCH)
    registry: list[_Registry] = []
    aliases: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class _Registries:
    search: list[str]
    # By scope, the prefix that is compared with an image reference.
    registries: Mapping[str, _Registry]
    aliases: Mapping[str, Any]


# Each of them decides which image a reference means, or whether it is pulled at all.
FIXED: Final = ("prefix", "location", "blocked", "insecure")


def _kept(scope: str, was: _Registry, now: _Registry) -> str:
    for name in FIXED:
        if getattr(was, name) != getattr(now, name):
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
    search: list[str] = []
    registries: dict[str, _Registry] = {}
    aliases: dict[str, Any] = {}
    for document in map(_read, texts):
        search = search if document.search is None else document.search
        aliases |= document.aliases
        for registry in document.registry:
            # The first entry of a repeated scope counts, and with drop-ins the last one: containers/image merges them
            # in a map.
            if len(texts) > 1 or (registry.prefix or registry.location) not in registries:
                registries[registry.prefix or registry.location] = registry
    return _Registries(search, registries, aliases)


def _read(text: bytes) -> _Document:
    data = parse_toml(text)[0]
    if data is None:
        raise _Unreadable("registries.conf cannot be read on one side")
    if "registries" in data:
        raise _Unreadable("registries.conf is in the old format (version 1) on one side")
    try:
        return typed.convert(data, _Document)
    except ValueError:
        raise _Unreadable("registries.conf has values of a wrong type on one side") from None


DOMAIN: Final = RegistriesDomain(
    name="container registries and mirrors",
    files={REGISTRIES_CONF: ByContent(RULE), DROPINS: ByContent(RULE)},
    contents={
        REGISTRIES_CONF: registries_conf.check,
        f"{DROPINS}/*.conf": partial(registries_conf.check, version_1=False),
    },
    # A registry in one file and its mirror in another one are changed together.
    joined=(),
    fix=True,
)
