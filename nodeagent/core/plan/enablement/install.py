# SPDX-License-Identifier: Apache-2.0
"""The links that the [Install] section of a unit names: systemd.unit(5), and ``install.c`` of systemd."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nodeagent.core.config.file_tree import DEV_NULL, FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import is_template, unit_name_problem
from nodeagent.core.plan.enablement.unit_files import EnablementFacts, UnitSource, names_of, source_of
from nodeagent.core.validate.unit_file import assignments, words

_DIRECTORIES: Final = {"WantedBy": ".wants", "RequiredBy": ".requires", "UpheldBy": ".upholds"}
# Units that are enabled together with one; a unit names a few of them.
_MAX_ALSO: Final = 100


@dataclass(frozen=True, slots=True)
class Install:
    """``links`` are those of the unit itself, by path with their target. ``also`` are units that share its fate."""

    unit: str
    links: Mapping[str, str]
    also: tuple[str, ...] = ()


def install_of(source: UnitSource, specifiers: Mapping[str, str]) -> Install:
    """Return the links of the [Install] section of a unit and its drop-ins. systemd ignores invalid names."""
    lists: dict[str, list[str]] = {}
    default = ""
    for text in source.install_texts:
        for section, key, value in assignments(text):
            if section != "Install":
                continue
            if key == "DefaultInstance":
                default = value
            elif value or key == "Also":
                lists.setdefault(key, []).extend(words(value))
            else:
                # An empty value empties the list.
                lists[key] = []
    own = {**specifiers, **_own_specifiers(source.name, default)}

    def expanded(key: str) -> Iterator[str]:
        names = (_expand(word, own) for word in lists.get(key, ()))
        return (name for name in names if name is not None and unit_name_problem(name) is None)

    name = source.name
    if is_template(name) and default:
        name = name.replace("@.", f"@{default}.")
    # A template without an instance can be wanted by another template only.
    links = {
        f"{wanting}{suffix}/{name}": source.path
        for key, suffix in _DIRECTORIES.items()
        for wanting in expanded(key)
        if not is_template(name) or is_template(wanting)
    }
    aliases = {alias: source.path for word in expanded("Alias") if (alias := _alias(word, source.name, default))}
    also = tuple(dict.fromkeys(unit for unit in expanded("Also") if unit != source.name))
    return Install(source.name, links | aliases, also)


def _alias(alias: str, unit: str, default: str) -> str:
    """Return the name under which systemd accepts an alias, "" if it does not: of the same type, and an instance only
    of the same instance. A template is an alias of the template, and its instance one of the instance."""
    instance, of = (name.partition("@")[2].rpartition(".")[0] for name in (alias, unit))
    same = "@" in alias, alias.rpartition(".")[2]
    if alias == unit or same != ("@" in unit, unit.rpartition(".")[2]):
        return ""
    if of and not instance:
        return alias.replace("@.", f"@{of}.")
    return alias if instance == of or (is_template(unit) and instance == default) else ""


def _own_specifiers(unit: str, default: str) -> dict[str, str]:
    stem = unit.rpartition(".")[0]
    prefix, at, instance = stem.partition("@")
    instance = instance or default
    whole = f"{prefix}{at}{instance}"
    return {
        "%": "%",
        "i": instance,
        "j": prefix.rpartition("-")[2],
        "n": whole + unit[len(stem) :],
        "N": whole,
        "p": prefix,
    }


def _expand(word: str, specifiers: Mapping[str, str]) -> str | None:
    """Return the word with its specifiers replaced, None if a specifier is unknown."""
    parts, rest = [], word
    while rest:
        plain, percent, rest = rest.partition("%")
        parts.append(plain)
        if percent:
            if (value := specifiers.get(rest[:1])) is None:
                return None
            parts.append(value)
            rest = rest[1:]
    return "".join(parts)


def installs(unit: str, facts: EnablementFacts) -> list[Install]:
    """Return the links that enable ``unit`` and the units in its Also=; empty for a unit that cannot be enabled.

    An alias is left out where its name is that of another unit file, or is masked.
    """
    return [
        replace(install, links={path: to for path, to in install.links.items() if not taken(path, facts.files)})
        for install in _walk(unit, facts.files, facts.specifiers)
    ]


def taken(path: str, files: Mapping[str, FileTreeEntry]) -> str:
    """Return the file that is in the place of an alias, as a phrase; "" if the alias can be made."""
    match files.get(f"{UNIT_DIR}/{path}"):
        case RegularFile():
            return "a unit file"
        case SymbolicLink(target) if target == DEV_NULL:
            return "a mask"
        case _:
            return ""


def taken_aliases(unit: str, facts: EnablementFacts) -> dict[str, str]:
    """Return the aliases of a unit that cannot be made, with what is in their place."""
    install = next(_walk(unit, facts.files, facts.specifiers), Install(unit, {}))
    return {path: obstacle for path in install.links if (obstacle := taken(path, facts.files))}


def _walk(unit: str, files: Mapping[str, FileTreeEntry], specifiers: Mapping[str, str]) -> Iterator[Install]:
    todo, seen = [unit], {unit}
    while todo and len(seen) <= _MAX_ALSO:
        if (source := source_of(todo.pop(0), files)) is None:
            continue
        install = install_of(source, specifiers)
        yield install
        todo += [other for other in install.also if other not in seen]
        seen.update(install.also)


def named(units: Iterable[str], facts: EnablementFacts) -> set[str]:
    """Return these units, and all that they name in Also= or Alias=, or are an alias of, as far as their files are
    known."""
    names = set(units)
    for unit in tuple(names):
        names.update(names_of(unit, facts.files))
        for install in _walk(unit, facts.files, facts.specifiers):
            names |= {install.unit, *install.also, *(path for path in install.links if "/" not in path)}
    return names
