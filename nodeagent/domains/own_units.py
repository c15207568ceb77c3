# SPDX-License-Identifier: Apache-2.0
"""The units that nodeagent needs: itself, the one that reports a boot without it, the bus, the first targets of a boot.

A file at any place of systemd's search path may mask, replace or change a unit, a generator makes units at each boot,
and each unit may conflict with another one: systemd.unit(5), systemd.generator(7), podman-systemd.unit(5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from nodeagent.core.config.file_tree import RegularFile, SymbolicLink
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.units import OWN_UNIT
from nodeagent.core.validate.unit_file import assignments

Check = Callable[[RegularFile | SymbolicLink], Iterator[str]]

# They report on the console and in the journal that a boot has no agent, and change nothing.
REPORTING: Final = frozenset({"nodeagent-absent.service", "nodeagent-absent.timer"})
OWN: Final = frozenset({OWN_UNIT, *REPORTING})

_BUS: Final = frozenset({"dbus-broker.service", "dbus-daemon.service", "dbus.service", "dbus.socket"})
# Units that the agent needs to start or to be reached.
ESSENTIAL: Final = frozenset(
    {
        OWN_UNIT,
        *_BUS,
        "basic.target",
        "default.target",
        "local-fs.target",
        "multi-user.target",
        "sockets.target",
        "sysinit.target",
    }
)

# ``systemd-analyze unit-paths``. ostree hosts have /usr/local in /var, and older ones /lib beside /usr/lib.
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
    "/var/usrlocal/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
_GENERATORS: Final = re.compile(
    r"/(etc|run|usr/local/lib|var/usrlocal/lib|usr/lib|lib)/systemd/system-(?:environment-)?generators/[^/]+"
)
_QUADLETS: Final = re.compile(r"/(?:etc|run|usr/share)/containers/systemd/(?:.*/)?([^/]+)\.(?:container|kube)")
# A drop-in of one of these directories applies to more than one unit.
_OF_ALL: Final = {"service.d", "timer.d", "socket.d", "target.d", "nodeagent-.service.d", "nodeagent-.timer.d"}

_BUS_PROGRAMS: Final = frozenset({"dbus-broker", "dbus-broker-launch", "dbus-daemon"})
_BUS_SOCKETS: Final = frozenset({"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket"})
_COMMAND: Final = "nodeagent daemon"


def check_of(path: str) -> Iterator[Check]:
    """Yield the checks of a file at ``path``."""
    if _GENERATORS.fullmatch(path):
        yield _generator
    if quadlet := _QUADLETS.fullmatch(path):
        yield partial(_quadlet, f"{quadlet[1]}.service")
    for directory in SEARCH_PATH:
        if path.startswith(f"{directory}/"):
            yield from _unit_checks(path.removeprefix(f"{directory}/"))


def kernel_argument(token: str) -> str:
    """Return why a kernel argument keeps nodeagent from starting, "" if it does not: systemd-debug-generator(8)."""
    key, _, value = token.partition("=")
    if key == "systemd.mask" and value in OWN | ESSENTIAL:
        return f"would mask {value}, which nodeagent needs"
    if key == "systemd.unit" and value in ("rescue.target", "emergency.target"):
        return f"would boot into {value}, without nodeagent"
    return ""


def _unit_checks(name: str) -> Iterator[Check]:
    """``name`` is a path below a directory of units."""
    directory, _, last = name.rpartition("/")
    unit = directory.removesuffix(".d") if directory else last
    yield partial(_of_another, unit)
    if not directory and unit == OWN_UNIT:
        yield partial(_whole_unit, _own_dropin, "ExecStart", f"/usr/bin/{_COMMAND}")
    elif not directory and unit in ESSENTIAL:
        needed = {"service": "ExecStart", "socket": "ListenStream"}.get(unit.rpartition(".")[2], "")
        yield partial(_whole_unit, partial(_essential_dropin, unit, whole=True), needed, "")
    elif unit in REPORTING and (not directory or directory.endswith(".d")):
        yield _reporting
    elif directory.endswith((".wants", ".requires")) and last == OWN_UNIT:
        yield _enablement
    elif directory.endswith(".d") and last.endswith(".conf"):
        yield from _dropin_checks(directory, unit)


def _dropin_checks(directory: str, unit: str) -> Iterator[Check]:
    if directory in ("service.d", f"{OWN_UNIT}.d"):
        yield _own_dropin
    elif directory in _OF_ALL:
        yield partial(_essential_dropin, {"socket.d": "dbus.socket", "target.d": "basic.target"}.get(directory, unit))
    elif unit in ESSENTIAL:
        yield partial(_essential_dropin, unit)


def _generator(node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield the units of nodeagent that a generator names. What else it makes at the boot is not known."""
    text = "" if isinstance(node, SymbolicLink) else node.content.decode(errors="replace")
    if "nodeagent" in text:
        yield f"is a generator that could mask or change {OWN_UNIT} at each boot"


def _quadlet(unit: str, node: RegularFile | SymbolicLink) -> Iterator[str]:
    if isinstance(node, SymbolicLink):
        return
    named = [value for section, key, value in _lines(node) if key == "ServiceName" and section in ("Container", "Kube")]
    made = f"{named[-1]}.service" if named and named[-1] else unit
    if made in OWN | ESSENTIAL:
        yield f"would make a unit {made} in the place of the one that nodeagent needs"
    yield from _of_another(made, node)


def _of_another(unit: str, node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield the lines of any unit, or drop-in, that would stop a unit which nodeagent needs, or take its name."""
    if isinstance(node, SymbolicLink):
        return
    # A bus has the name of another one as an alias, and any target may be the default one.
    taken = (OWN | ESSENTIAL) - {unit, "default.target"} - (_BUS if unit in _BUS else frozenset())
    for section, key, value in _lines(node):
        named = set(value.split())
        if section == "Unit" and key in ("Conflicts", "PropagatesStopTo") and (units := named & (OWN | _BUS) - {unit}):
            yield f"{key}= would stop {min(units)}, which nodeagent needs"
        elif section == "Install" and key == "Alias" and (units := named & taken):
            yield f"Alias= would replace {min(units)}, which nodeagent needs"


def _reporting(_node: RegularFile | SymbolicLink) -> Iterator[str]:
    yield "would change the unit that reports a boot without nodeagent"


def _enablement(_node: RegularFile | SymbolicLink) -> Iterator[str]:
    yield f"would replace the link that enables {OWN_UNIT}"


def _whole_unit(lines: Check, needed: str, value: str, node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield the problems of a unit by its ``lines``. It must set the key ``needed``, as to ``value``."""
    # systemd takes a link to /dev/null and an empty file for a mask.
    if isinstance(node, SymbolicLink) or not node.content.strip():
        yield "would mask a unit that nodeagent needs"
        return
    yield from lines(node)
    if needed and not any(key == needed and assigned for _, key, assigned in _lines(node)):
        yield f"must have {needed}={value}"


def _essential_dropin(name: str, node: RegularFile | SymbolicLink, *, whole: bool = False) -> Iterator[str]:
    """Yield the lines with which the unit may not start, or not be the bus. ``whole``: it is the unit, no drop-in."""
    if isinstance(node, SymbolicLink):
        return
    # Without an empty assignment, a drop-in only adds to what the unit has.
    assignments: dict[str, list[str]] = {}
    replaced = whole
    for section, key, value in _lines(node):
        if value and _hinders_start(section, key):
            yield f"{key}= could keep {name} from starting"
        elif (section, key) in (("Service", "ExecStart"), ("Socket", "ListenStream")):
            replaced = replaced or not value
            assignments[key] = [*assignments.get(key, ()), value] if value else []
    commands, sockets = assignments.get("ExecStart"), assignments.get("ListenStream")
    programs = [_program(command) for command in commands or ()]
    if commands is not None and (not programs or not _BUS_PROGRAMS.issuperset(programs)):
        yield f"ExecStart= of {name} must be one of {', '.join(sorted(_BUS_PROGRAMS))}"
    if sockets == []:
        yield f"{name} would listen nowhere"
    elif sockets and replaced and not _BUS_SOCKETS.intersection(sockets):
        yield f"ListenStream= of {name} must be {min(_BUS_SOCKETS)}"


def _hinders_start(section: str, key: str) -> bool:
    if section == "Service":
        return key in ("ExecCondition", "ExecStartPre")
    return section == "Unit" and (key.startswith(("Condition", "Assert")) or key in ("Requisite", "BindsTo"))


def _own_dropin(node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield the lines with which the unit would not start the daemon as root on each host."""
    if isinstance(node, SymbolicLink):
        return
    commands = None
    for section, key, value in _lines(node):
        if section == "Unit" and value and key in ("Requires", "Requisite", "BindsTo", "Conflicts"):
            yield f"{key}= could keep {OWN_UNIT} from starting, or stop it in an update"
        elif value and _hinders_start(section, key):
            yield f"{key}= could keep {OWN_UNIT} from starting"
        elif section == "Service" and value and key in ("User", "DynamicUser", "RootDirectory", "RootImage"):
            yield f"{key}= would keep nodeagent from managing this host"
        elif section == "Service" and key == "ExecStart":
            # An empty assignment clears the commands before it, as systemd does.
            commands = [*(commands or ()), value] if value else []
    if commands is not None and (not commands or any(not _is_daemon(command) for command in commands)):
        yield f"ExecStart= must be /usr/bin/{_COMMAND}"


def _is_daemon(command: str) -> bool:
    return f"{_program(command)} {command.partition(' ')[2].strip()}" == _COMMAND


def _program(command: str) -> str:
    # The characters are systemd's prefixes of a command: systemd.service(5).
    return command.lstrip("-:+!@").partition(" ")[0].rpartition("/")[2]


def _lines(node: RegularFile) -> Iterator[tuple[str, str, str]]:
    return assignments(node.content.decode(errors="replace"))
