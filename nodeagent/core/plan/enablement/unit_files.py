# SPDX-License-Identifier: Apache-2.0
"""Unit files and drop-ins of a host, as far as they decide which links enable a unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from nodeagent.core.config.file_tree import DEV_NULL, FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import is_template, template_of, unit_name_problem
from nodeagent.core.plan.enablement.links import Links, last_part

# The search path of systemd for units of the system, the first one wins: systemd.unit(5).
SEARCH_PATH: Final = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    UNIT_DIR,
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/run/systemd/generator.late",
)
# Units in them cannot be enabled: another program decides about them.
_NOT_ENABLED: Final = ("/run/systemd/generator", "/run/systemd/transient/")
# As systemd, which follows links of links no further.
_MAX_LINKS: Final = 64


@dataclass(frozen=True, slots=True)
class EnablementFacts:
    """``links`` are those of ``links.Links``, ``files`` the unit files and drop-ins of the units in question by path,
    ``presets`` the texts of the presets in their order, ``specifiers`` the letters of systemd with the values of this
    host."""

    links: Links = field(default_factory=dict)
    files: Mapping[str, FileTreeEntry] = field(default_factory=dict)
    presets: Sequence[str] = ()
    specifiers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnitSource:
    """A unit as it is found: ``name`` differs from the requested one for an alias. ``texts`` are its file and its
    drop-ins in the order in which systemd reads them. For [Install], ``install_texts`` count: without the drop-ins of
    a type or of a prefix."""

    name: str
    path: str
    texts: tuple[str, ...]
    install_texts: tuple[str, ...]


def dropin_dirs(unit: str) -> list[str]:
    """Return the names of the directories of drop-ins of a unit, the most special one first."""
    stem, _, kind = unit.rpartition(".")
    names = [unit]
    if template := template_of(unit):
        names.append(template)
    # foo-bar-baz.service reads foo-bar-.service.d and foo-.service.d as well.
    prefix = stem.partition("@")[0]
    while "-" in prefix.rstrip("-"):
        prefix = prefix.rstrip("-").rpartition("-")[0] + "-"
        names.append(f"{prefix}.{kind}")
    return [f"{name}.d" for name in (*names, kind)]


def names_of(unit: str, files: Mapping[str, FileTreeEntry]) -> list[str]:
    """Return the names of a unit: the requested one, and those that it is an alias of, the real one last."""
    names = [unit]
    while len(names) < _MAX_LINKS:
        match _find(names[-1], files):
            case (_, SymbolicLink(target)) if target != DEV_NULL:
                name = last_part(target)
            case _:
                break
        instance = names[-1].partition("@")[2].rpartition(".")[0]
        if instance and is_template(name):
            name = name.replace("@.", f"@{instance}.")
        if name in names or unit_name_problem(name) is not None:
            break
        names.append(name)
    return names


def source_of(unit: str, files: Mapping[str, FileTreeEntry]) -> UnitSource | None:
    """Return the unit file and the drop-ins of a unit; None if it has none, is masked, or is one of a generator."""
    names = names_of(unit, files)
    match _find(names[-1], files):
        # An empty file masks a unit.
        case (str(path), RegularFile(content) as node) if content and not path.startswith(_NOT_ENABLED):
            every = [directory for name in names for directory in dropin_dirs(name)]
            own = [f"{owner}.d" for name in names for owner in (name, template_of(name)) if owner]
            return UnitSource(names[-1], path, tuple(_texts(node, every, files)), tuple(_texts(node, own, files)))
        case _:
            return None


def _find(unit: str, files: Mapping[str, FileTreeEntry]) -> tuple[str, FileTreeEntry] | None:
    for name in (unit, template_of(unit)):
        for directory in SEARCH_PATH:
            node = files.get(f"{directory}/{name}") if name else None
            # An instance may be a link to its template.
            if node is None or (isinstance(node, SymbolicLink) and last_part(node.target) == template_of(name) != ""):
                continue
            return f"{directory}/{name}", node
    return None


def _texts(main: RegularFile, dirs: Sequence[str], files: Mapping[str, FileTreeEntry]) -> Iterator[str]:
    yield main.content.decode(errors="replace")
    # A drop-in replaces one of the same name in a later directory, and they are read in the order of their names.
    dropins: dict[str, FileTreeEntry] = {}
    for place in [f"{directory}/{dropin_dir}/" for dropin_dir in dirs for directory in SEARCH_PATH]:
        for path in [path for path in files if path.startswith(place)]:
            dropins.setdefault(last_part(path), files[path])
    for name in sorted(dropins):
        node = dropins[name]
        if isinstance(node, RegularFile):
            yield node.content.decode(errors="replace")


def overlaid(
    files: Mapping[str, FileTreeEntry], changes: Mapping[str, FileTreeEntry | None]
) -> dict[str, FileTreeEntry]:
    """Return the files as they are after ``changes`` (None: the path is removed)."""
    return {path: node for path, node in {**files, **changes}.items() if node is not None}
