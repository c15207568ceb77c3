"""The links that the [Install] section of a unit names: systemd.unit(5), and ``install.c`` of systemd."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.unit_names import is_template, unit_name_problem
from nodeagent.core.plan.enablement.unit_files import EnablementFacts, UnitSource, names_of, source_of
from nodeagent.core.validate.unit_file import assignments

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
    """Return what the [Install] section of a unit and of its drop-ins names. systemd ignores what is invalid."""
    lists: dict[str, list[str]] = {}
    default = ""
    for text in source.texts:
        for section, key, value in assignments(text):
            if section != "Install":
                continue
            if key == "DefaultInstance":
                default = value
            elif value or key == "Also":
                lists.setdefault(key, []).extend(value.split())
            else:
                # An empty value empties the list.
                lists[key] = []
    own = {**specifiers, **_own_specifiers(source.name, default)}

    def expanded(key: str) -> Iterator[str]:
        found = (_expand(word, own) for word in lists.get(key, ()))
        return (name for name in found if name is not None and unit_name_problem(name) is None)

    name = source.name
    if is_template(name):
        name = name.replace("@.", f"@{default}.") if default else ""
    links = {
        f"{wanting}{suffix}/{name}": source.path
        for key, suffix in _DIRECTORIES.items()
        for wanting in expanded(key)
        if name
    }
    aliases = {alias: source.path for alias in expanded("Alias") if _may_be_alias(alias, source.name, default)}
    also = tuple(dict.fromkeys(each for each in expanded("Also") if each != source.name))
    return Install(source.name, links | aliases, also)


def _may_be_alias(alias: str, unit: str, default: str) -> bool:
    """Return whether systemd accepts an alias: of the same type, and an instance only of the same instance."""
    instance, of = (name.partition("@")[2].rpartition(".")[0] for name in (alias, unit))
    same = "@" in alias, alias.rpartition(".")[2]
    if alias == unit or same != ("@" in unit, unit.rpartition(".")[2]):
        return False
    return instance == of or (is_template(unit) and instance == default)


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
    """Return the word with its specifiers replaced; None for one that is not known."""
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
    """Return what enables ``unit`` and the units that it names in Also=; empty for a unit that cannot be enabled."""
    return list(_walk(unit, facts.files, facts.specifiers))


def _walk(unit: str, files: Mapping[str, FileTreeEntry], specifiers: Mapping[str, str]) -> Iterator[Install]:
    todo, seen = [unit], {unit}
    while todo and len(seen) <= _MAX_ALSO:
        if (source := source_of(todo.pop(0), files)) is None:
            continue
        found = install_of(source, specifiers)
        yield found
        todo += [each for each in found.also if each not in seen]
        seen.update(found.also)


def named(units: Iterable[str], facts: EnablementFacts) -> set[str]:
    """Return these units, and all that they name in Also= or are an alias of, as far as their files are known."""
    found = set(units)
    for unit in tuple(found):
        found.update(names_of(unit, facts.files))
        for each in _walk(unit, facts.files, facts.specifiers):
            found |= {each.unit, *each.also}
    return found
