# SPDX-License-Identifier: Apache-2.0
"""Check registries.conf with the rules of its reader, containers/image: containers-registries.conf(5).

Like that reader, this accepts unknown keys, which newer versions add, and the old format (version 1) on its own, and
rejects a mixture of both formats.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nodeagent.core.config.problems import kind_of, shown

LISTS: Final = ("unqualified-search-registries", "credential-helpers")
TEXTS: Final = ("short-name-mode", "additional-layer-store-auth-helper")
VERSION_2: Final = ("registry", *LISTS, *TEXTS, "aliases")
SHORT_NAME_MODES: Final = ("", "disabled", "enforcing", "permissive")
PULL_FROM_MIRROR: Final = ("", "all", "digest-only", "tag-only")

# The form in which tomllib quotes keys of the file.
_KEYS: Final = re.compile(r"\('.*'[^)]*\)")
LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
HOST: Final = re.compile(rf"(?:{LABEL}(?:\.{LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?")


def check(content: bytes, *, version_1: bool = True) -> Iterator[str]:
    """Check registries.conf, or a file in registries.conf.d, where only version 2 is read."""
    try:
        data = tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        yield f"is not UTF-8 at offset {error.start}"
        return
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        toml = isinstance(error, tomllib.TOMLDecodeError)
        yield f"is not TOML: {_KEYS.sub('a key', str(error))}" if toml else "is nested too deeply"
        return
    except ValueError:
        # Python converts no integer of more than 4300 digits, and tomllib does not catch that error.
        yield "is not TOML: a number has too many digits"
        return
    if "registries" in data:
        # containers/image compares what is in the tables, so an empty one is no mixture.
        if any(data.get(key) for key in VERSION_2):
            yield "mixes tables of version 1 (registries.search, .insecure, .block) and version 2 (registry)"
        elif not version_1:
            yield "is in the format of version 1; here only version 2 is read"
        else:
            yield from _version_1(data["registries"])
        return
    yield from _version_2(data)


def _version_1(tables: object) -> Iterator[str]:
    if not isinstance(tables, dict):
        yield f"registries must be a table, is {kind_of(tables)}"
        return
    for name in ("search", "insecure", "block"):
        table = tables.get(name, {})
        entries = table.get("registries", []) if isinstance(table, dict) else None
        if not _all_texts(entries):
            yield f"registries.{name}.registries must be a list of strings"


def _version_2(data: Mapping[str, Any]) -> Iterator[str]:
    for key in LISTS:
        if not _all_texts(data.get(key, [])):
            yield f"{key} must be a list of strings"
            return
    for key in TEXTS:
        if not isinstance(data.get(key, ""), str):
            yield f"{key} must be a string"
            return
    for name in data.get(LISTS[0], []):
        # containers/image removes a slash at the end before it looks at a location.
        if not HOST.fullmatch(name.rstrip("/")):
            # A location may have credentials in front.
            host = shown(name.rpartition("@")[2])
            yield f"unqualified-search-registries: {host} is not a host name with an optional port"
    if data.get("short-name-mode", "") not in SHORT_NAME_MODES:
        yield f"short-name-mode must be one of {', '.join(SHORT_NAME_MODES[1:])}"
    yield from _aliases(data.get("aliases", {}))
    registries = data.get("registry", [])
    if not isinstance(registries, list) or not all(isinstance(table, dict) for table in registries):
        yield "registry must be an array of tables: [[registry]]"
        return
    bad = False
    for index, table in enumerate(registries):
        for problem in _registry(table):
            bad = True
            yield f"registry[{index}]: {problem}"
    # A conflict between tables that are wrong themselves would only repeat their problems.
    if not bad:
        yield from _conflicts(registries)


def _aliases(aliases: object) -> Iterator[str]:
    if not isinstance(aliases, dict):
        yield "aliases must be a table"
        return
    for name, value in aliases.items():
        if not isinstance(value, str):
            yield f"aliases: {shown(name)} must be a string"
        # The tag is that of the short name, so an alias with one could not be combined with it.
        elif value and ("/" not in value or "@" in value or ":" in value.rpartition("/")[2]):
            yield f"aliases: {shown(name)} must be a registry and repository without tag or digest"


def _registry(table: Mapping[str, Any]) -> Iterator[str]:
    if problem := _types(table, texts=("prefix", "location", "pull-from-mirror")):
        yield problem
        return
    prefix, location = table.get("prefix", ""), table.get("location", "")
    for key in ("prefix", "location"):
        if _has_scheme(table.get(key, "")):
            yield f"{key} must not have a scheme (http://, https://)"
    # Behind a wildcard the location may be missing: then containers/image uses the reference as it is.
    if not location and not prefix.startswith("*."):
        yield "location is missing" if prefix else "prefix and location are missing"
    if prefix.startswith("*.") and any(c in prefix for c in "/@:"):
        yield "a prefix with * must look like *.example.com"
    if table.get("pull-from-mirror"):
        yield "pull-from-mirror belongs to a mirror, not to the registry"
    mirrors = table.get("mirror", [])
    if not isinstance(mirrors, list) or not all(isinstance(mirror, dict) for mirror in mirrors):
        yield "mirror must be an array of tables: [[registry.mirror]]"
        return
    for index, mirror in enumerate(mirrors):
        for problem in _mirror(mirror, by_digest=bool(table.get("mirror-by-digest-only"))):
            yield f"mirror[{index}]: {problem}"


def _mirror(mirror: Mapping[str, Any], *, by_digest: bool) -> Iterator[str]:
    if problem := _types(mirror, texts=("location", "pull-from-mirror")):
        yield problem
        return
    location, pull = mirror.get("location", ""), mirror.get("pull-from-mirror", "")
    if not location.rstrip("/"):
        yield "location is missing"
    if _has_scheme(location):
        yield "location must not have a scheme (http://, https://)"
    if pull not in PULL_FROM_MIRROR:
        yield f"pull-from-mirror must be one of {', '.join(PULL_FROM_MIRROR[1:])}"
    elif pull and by_digest:
        yield "pull-from-mirror cannot be set where the registry has mirror-by-digest-only"


def _conflicts(registries: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield locations with several prefixes that are insecure or blocked in some of them only."""
    first: dict[str, Mapping[str, Any]] = {}
    for index, table in enumerate(registries):
        location = (table.get("location") or table.get("prefix", "")).rstrip("/")
        earlier = first.setdefault(location, table)
        for key in ("insecure", "blocked"):
            if table.get(key, False) != earlier.get(key, False):
                place = shown(location.rpartition("@")[2])
                yield f"registry[{index}]: {place} is listed before with another value of {key}"


def _types(table: Mapping[str, Any], *, texts: tuple[str, ...]) -> str:
    for key in texts:
        if not isinstance(table.get(key, ""), str):
            return f"{key} must be a string"
    for key in ("insecure", "blocked", "mirror-by-digest-only"):
        if not isinstance(table.get(key, False), bool):
            return f"{key} must be true or false"
    return ""


def _has_scheme(location: str) -> bool:
    return location.startswith(("http://", "https://"))


def _all_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
