# SPDX-License-Identifier: Apache-2.0
"""Where a unit comes from: from this host, with the config, from a generator, with the next OS, or from nowhere.

An entry may be about a unit that the host lacks and that the same update brings, so it is judged against both. A unit
from nowhere is no error: operators render the same entries for every node, whatever units it has.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import is_template, template_of, unit_name_problem
from nodeagent.core.plan.enablement.unit_files import dropin_dirs
from nodeagent.core.validate.unit_file import assignments, words

# Directories of unit files into which a config may write: systemd.unit(5).
UNIT_DIRS: Final = (UNIT_DIR, "/usr/local/lib/systemd/system")
_BELOW: Final = tuple(f"{directory}/" for directory in UNIT_DIRS)
# Generators read these files and make units of them at the next daemon-reload.
GENERATED: Final = (
    "/etc/containers/systemd/",
    "/etc/crypttab",
    "/etc/fstab",
    "/etc/init.d/",
    "/etc/rc.d/init.d/",
    "/etc/systemd/system-generators/",
    "/etc/systemd/zram-generator.conf",
)
# States of unit files that a program made, which systemd does not enable.
MADE: Final = frozenset({"generated", "transient"})
# The type of a file of Quadlet, and what its name becomes: podman-systemd.unit(5).
_QUADLETS: Final = {
    "container": "",
    "kube": "",
    "volume": "-volume",
    "network": "-network",
    "image": "-image",
    "build": "-build",
    "pod": "-pod",
}


class Origin(Enum):
    HOST = "this host"
    CONFIG = "the config"
    GENERATOR = "a generator"
    NEXT_OS = "maybe the next OS"
    NOWHERE = "nowhere"


@dataclass(frozen=True)
class Brought:
    """The units that a config brings."""

    config: MachineConfig

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """The files below the directories of units: path to text."""
        return {
            path: node.content.decode(errors="replace")
            for path, node in expand(self.config).items()
            if path.startswith(_BELOW) and isinstance(node, RegularFile)
        }

    @cached_property
    def files(self) -> Mapping[str, str]:
        """The unit files: name to text."""
        files: dict[str, str] = {}
        # The first directory wins.
        for path, text in sorted(self.texts.items()):
            name = path.rpartition("/")[2]
            if _directory(path) in UNIT_DIRS and unit_name_problem(name) is None:
                files.setdefault(name, text)
        return files

    @cached_property
    def _dropins(self) -> Mapping[str, Mapping[str, str]]:
        """The drop-ins: directory to name to text."""
        dropins: dict[str, dict[str, str]] = {}
        for path, text in self.texts.items():
            directory, _, name = path.rpartition("/")
            if name.endswith(".conf") and _directory(directory) in UNIT_DIRS:
                dropins.setdefault(directory, {})[name] = text
        return dropins

    @cached_property
    def _aliases(self) -> Mapping[str, str]:
        """The aliases that [Install] of a unit file has, with the first unit that has each."""
        aliases: dict[str, str] = {}
        for unit in self.files:
            for alias in _words(self.texts_of(unit), "Alias"):
                aliases.setdefault(alias, unit)
        return aliases

    def file_of(self, unit: str) -> str:
        """Return the name of the unit file, "" without one. An instance has the file of its template."""
        return next((name for name in (unit, template_of(unit)) if name in self.files), "")

    def has(self, unit: str) -> bool:
        """Return whether the config has the file of this unit, or the template of this instance."""
        return self.file_of(unit) != ""

    def texts_of(self, unit: str) -> list[str]:
        """Return the texts of a unit in the order in which systemd reads them: its file, or that of its template, then
        the drop-ins by name."""
        own = [self.files[name]] if (name := self.file_of(unit)) else []
        dropins: dict[str, str] = {}
        # A drop-in replaces one of the same name in a later directory.
        for name in dropin_dirs(unit):
            for directory in UNIT_DIRS:
                dropins = {**self._dropins.get(f"{directory}/{name}", {}), **dropins}
        return [*own, *(dropins[name] for name in sorted(dropins))]

    def alias_of(self, name: str) -> str:
        """Return the unit of this config whose [Install] has ``name`` as an alias, "" if there is none."""
        return "" if self.has(name) else self._aliases.get(name, "")

    def generator_of(self, unit: str) -> str:
        """Return the path of a file from which a generator makes this unit, "" if there is none."""
        generators = (path for path in self.config.files if path.startswith(GENERATED))
        return next((path for path in generators if self._makes(path, unit)), "")

    @property
    def has_generated(self) -> bool:
        """Whether the config has files of which a generator makes units, of whatever names."""
        return any(path.startswith(GENERATED) for path in self.config.files)

    def _makes(self, path: str, unit: str) -> bool:
        stem, _, kind = unit.rpartition(".")
        name = path.rpartition("/")[2]
        match path:
            case "/etc/fstab":
                return kind in ("mount", "automount", "swap")
            case "/etc/crypttab":
                return stem.startswith("systemd-cryptsetup@")
            case "/etc/systemd/zram-generator.conf":
                return stem.startswith(("systemd-zram-setup@", "dev-zram"))
            case _:
                pass
        if path.startswith("/etc/systemd/system-generators/"):
            return True
        if path.startswith("/etc/containers/systemd/users/"):
            # They make units of the managers of users.
            return False
        if not path.startswith("/etc/containers/systemd/"):
            return kind == "service" and name.removesuffix(".sh") == stem
        made, _, quadlet = name.rpartition(".")
        if kind != "service" or quadlet not in _QUADLETS:
            return False
        text = self.config.files[path].content.decode(errors="replace")
        names = {made + _QUADLETS[quadlet], *(value for _, key, value in assignments(text) if key == "ServiceName")}
        return bool({stem, template_of(unit).rpartition(".")[0]} & names)


def unit_files(config: MachineConfig) -> set[str]:
    """Return the names of the unit files that a config brings."""
    files = {path.rpartition("/")[2] for path in config.files if _directory(path) in UNIT_DIRS}
    return files | {name for name, unit in config.units.items() if unit.contents is not None and not unit.mask}


def read_at_daemon_reload(path: str) -> bool:
    """Return whether systemd or one of its generators reads this file with a daemon-reload only."""
    return path.startswith((*_BELOW, *GENERATED))


def names_no_instance(template: str, texts: Sequence[str]) -> bool:
    """Return whether systemd refuses to enable this template: a unit wants it, and it has no DefaultInstance=."""
    wanted = [word for key in ("WantedBy", "RequiredBy", "UpheldBy") for word in _words(texts, key)]
    default = any(True for _ in _words(texts, "DefaultInstance"))
    return is_template(template) and not default and any(not is_template(word) for word in wanted)


def origin_of(unit: str, old: Brought, new: Brought, *, load: str, file: str, other_os: bool) -> Origin:
    """Return the origin of a unit after the update from ``old`` to ``new``. ``load`` and ``file`` are its states on
    this host before it; ``other_os``: the update brings another operating system, or packages."""
    if new.has(unit):
        return Origin.CONFIG
    # A file that leaves with the update makes room for a generated unit of the same name.
    if new.generator_of(unit) and (load == "not-found" or old.has(unit)):
        return Origin.GENERATOR
    if load != "not-found":
        return Origin.GENERATOR if file in MADE else Origin.HOST
    return Origin.NEXT_OS if other_os else Origin.NOWHERE


def unit_of_dropin(path: str) -> str:
    """Return the unit of a drop-in, "" for another path. A drop-in for a type or a prefix has no single unit."""
    # Most files of a config are elsewhere, and this is asked for each of them.
    if not path.startswith(_BELOW):
        return ""
    directory = _directory(path)
    unit = directory.rpartition("/")[2].removesuffix(".d")
    is_dropin = directory.endswith(".d") and _directory(directory) in UNIT_DIRS and path.endswith(".conf")
    # A prefix ends with a dash, and a type is no name: systemd.unit(5).
    return unit if is_dropin and unit_name_problem(unit) is None and not unit.rpartition(".")[0].endswith("-") else ""


def _directory(path: str) -> str:
    return posixpath.dirname(path)


def _words(texts: Sequence[str], key: str) -> Iterator[str]:
    """Yield the words of a key of [Install]. An empty value resets it."""
    listed: list[str] = []
    for text in texts:
        for section, name, value in assignments(text):
            if (section, name) == ("Install", key):
                listed = [*listed, *words(value)] if value else []
    yield from listed
