# SPDX-License-Identifier: Apache-2.0
"""The command line of a program such as the kubelet, from its unit, the drop-ins of that and their environment files.

systemd.exec(5), systemd.service(5). Specifiers and patterns in the names of environment files are not expanded.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.validate.unit_file import assignments

KUBELET: Final = "kubelet.service"
# From the weakest to the strongest: systemd.unit(5).
UNIT_DIRS: Final = ("/lib/systemd/system", "/usr/lib/systemd/system", "/run/systemd/system", UNIT_DIR)
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
WHOLE_WORD: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
# Characters before a command that change how systemd runs it: systemd.service(5).
PREFIXES: Final = "-@:+!|"


@dataclass(frozen=True, slots=True)
class KubeletUnit:
    """``program`` is "" if there is no unit, or none that starts a kubelet. ``flags`` are without the dashes.

    ``directives`` has everything of the unit but the arguments of the kubelet and its environment.
    """

    program: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    directives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    environment_files: tuple[str, ...] = ()


def unit_paths(files: Mapping[str, bytes], unit: str = KUBELET) -> Sequence[str]:
    """Return the unit file that counts and its drop-ins, in the order in which systemd reads them."""
    units = [path for directory in UNIT_DIRS if (path := f"{directory}/{unit}") in files]
    dropins: dict[str, str] = {}
    for directory in UNIT_DIRS:
        prefix = f"{directory}/{unit}.d/"
        dropin_paths = (path for path in files if path.startswith(prefix) and path.endswith(".conf"))
        dropins |= {path.removeprefix(prefix): path for path in dropin_paths}
    # Only the strongest unit file counts, with the drop-ins of all directories.
    return [*units[-1:], *(path for _, path in sorted(dropins.items()))]


def read_unit(files: Mapping[str, bytes], unit: str = KUBELET, program: str = "kubelet") -> KubeletUnit:
    commands: list[str] = []
    inline: dict[str, str] = {}
    sources: list[str] = []
    directives: dict[str, tuple[str, ...]] = {}
    for path in unit_paths(files, unit):
        for section, key, value in assignments(files[path].decode(errors="replace")):
            # An empty assignment clears the list of those before it: systemd.service(5).
            match section, key:
                case "Service", "ExecStart":
                    commands = [*commands, value] if value else []
                case "Service", "Environment":
                    inline = inline | dict(_variables(_words(value))) if value else {}
                case "Service", "EnvironmentFile":
                    sources = [*sources, value.removeprefix("-")] if value else []
                case _:
                    name = f"[{section}] {key}"
                    directives[name] = (*directives.get(name, ()), value)
    # Environment files override Environment=: systemd.exec(5).
    environment = inline | {
        name: value for source in sources for name, value in _file_variables(files.get(source, b""))
    }
    for command in commands:
        words = _words(command.lstrip(PREFIXES))
        # Another program may start it, such as env, or kubenswrapper of OpenShift.
        place = next((index for index, word in enumerate(words) if word.rpartition("/")[2] == program), None)
        if place is None:
            directives["[Service] ExecStart"] = (*directives.get("[Service] ExecStart", ()), command)
            continue
        directives["[Service] ExecStart"] = (*directives.get("[Service] ExecStart", ()), *words[: place + 1])
        flags = _flags(_expanded(words[place + 1 :], environment))
        return KubeletUnit(words[place], flags, environment, directives, tuple(sources))
    return KubeletUnit("", {}, environment, directives, tuple(sources))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        # A quotation without an end, which systemd rejects as well.
        return text.split()


def _variables(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            yield name, value


def _file_variables(content: bytes) -> Iterator[tuple[str, str]]:
    lines = content.decode(errors="replace").splitlines()
    for name, value in _variables(line for line in lines if not line.lstrip().startswith(("#", ";"))):
        yield name.strip(), " ".join(_words(value))


def _expanded(words: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Expand ``${NAME}`` in a word, and a word ``$NAME`` to any number of words; an unknown name is empty."""
    expanded: list[str] = []
    for word in words:
        if whole := WHOLE_WORD.fullmatch(word):
            expanded += environment.get(whole[1], "").split()
        else:
            expanded.append(VARIABLE.sub(lambda name: environment.get(name[1], ""), word))
    return expanded


def _flags(words: Sequence[str]) -> dict[str, str]:
    """Return name to value; the values of a flag that is repeated are joined by commas. A kubelet takes no arguments
    without a flag, so a word without dashes is the value of the flag before it."""
    flags: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            # The kubelet accepts underscores in the names of flags (WordSepNormalizeFunc).
            name = name.replace("_", "-")
            if equals and flags.get(name):
                value = f"{flags[name]},{value}"
            flags[name] = value if equals else flags.get(name, "")
            name = "" if equals else name
        elif name:
            flags[name] = f"{flags[name]},{word}" if flags[name] else word
            name = ""
    return flags
