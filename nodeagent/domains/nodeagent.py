"""nodeagent's own configuration and its requirements: its unit, the bus, and the first targets of a boot.

If a config breaks one of these, the agent can neither verify nor revert it. ``agent.own_config`` checks settings and
policy, merged with those of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from nodeagent.core.config.file_tree import RegularFile, SymbolicLink, expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.units import OWN_UNIT
from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.policy import DAEMON_RELOAD, NONE, reload, restart
from nodeagent.core.plan.sides import Sides
from nodeagent.core.update.ports.checks import CheckStage
from nodeagent.core.validate.unit_file import assignments
from nodeagent.errors import Problem

CHECKS: Final = "/etc/nodeagent/checks"
SETTINGS: Final = "/etc/nodeagent/config.d"
POLICY: Final = "/etc/nodeagent/policy.yaml"
POLICY_DIR: Final = "/etc/nodeagent/policy.d"
BUS_NAME: Final = "org.nodeagent.Agent1"

# Units that the agent needs to start or to be reached.
ESSENTIAL: Final = frozenset(
    {
        OWN_UNIT,
        "basic.target",
        "dbus-broker.service",
        "dbus-daemon.service",
        "dbus.service",
        "dbus.socket",
        "default.target",
        "local-fs.target",
        "multi-user.target",
        "sockets.target",
        "sysinit.target",
    }
)

# Names that nodeagent owns or calls as root.
_NEEDED_NAMES: Final = (BUS_NAME, "org.freedesktop.DBus", "org.freedesktop.login1", "org.freedesktop.systemd1")
# Attributes of a rule that choose no particular service, path or member: dbus-daemon(1).
_NOT_PARTICULAR: Final = frozenset({"log", "max_fds", "min_fds", "receive_type", "send_broadcast", "send_type"})
_BUS_PROGRAMS: Final = frozenset({"dbus-broker", "dbus-broker-launch", "dbus-daemon"})
_BUS_SOCKETS: Final = frozenset({"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket"})
_BUS_DIRS: Final = ("/etc/dbus-1/system.d/", "/etc/dbus-1/system.conf", "/etc/dbus-1/system-local.conf")
# A drop-in in service.d applies to every service: systemd.unit(5).
_DROPIN_DIRS: Final = (f"{UNIT_DIR}/{OWN_UNIT}.d/", f"{UNIT_DIR}/service.d/")
# Drop-ins of a whole type, with a unit of it that nodeagent needs.
_OTHER_DROPINS: Final = {
    **{f"{UNIT_DIR}/{unit}.d": unit for unit in ESSENTIAL - {OWN_UNIT}},
    f"{UNIT_DIR}/socket.d": "dbus.socket",
    f"{UNIT_DIR}/target.d": "basic.target",
}
_POLKIT_ACTIONS: Final = "/etc/polkit-1/actions"
_COMMAND: Final = "nodeagent daemon"
_Check = Callable[[RegularFile | SymbolicLink], Iterator[str]]


class NodeagentDomain(Domain):
    """What the agent itself needs is found by comparing all paths, because any unit may break it."""

    def validate(self, sides: Sides, changed: Mapping[str, bytes]) -> Iterator[Problem]:
        yield from _problems_of(sides.old, sides.new)
        yield from super().validate(sides, changed)


DOMAIN: Final = NodeagentDomain(
    name="nodeagent's own settings, policy and unit",
    files={
        SETTINGS: (reload(OWN_UNIT),),
        # Read for each plan.
        POLICY: (NONE,),
        POLICY_DIR: (NONE,),
        # Read for each update.
        CHECKS: (NONE,),
    },
    units={OWN_UNIT: (DAEMON_RELOAD, restart(OWN_UNIT))},
    joined=(OWN_UNIT,),
)


def _problems_of(old: MachineConfig, new: MachineConfig) -> Iterator[Problem]:
    """Yield the problems of ``new`` that would prevent the agent from starting, or clients from reaching it.

    Unchanged contents are not checked.
    """
    had = expand(old)
    for path, node in expand(new).items():
        if had.get(path) == node:
            continue
        check = _check_of(path)
        if check is not None:
            yield from (Problem(path, message) for message in check(node))


def _check_of(path: str) -> _Check | None:
    directory, _, name = path.rpartition("/")
    if path.startswith(f"{CHECKS}/"):
        return partial(_admin_check, directory)
    if directory == UNIT_DIR and name == OWN_UNIT:
        return partial(_whole_unit, _own_dropin, "ExecStart", f"/usr/bin/{_COMMAND}")
    if directory == UNIT_DIR and name in ESSENTIAL:
        needed = {"service": "ExecStart", "socket": "ListenStream"}.get(name.rpartition(".")[2], "")
        return partial(_whole_unit, partial(_essential_dropin, name, whole=True), needed, "")
    if directory in _OTHER_DROPINS and name.endswith(".conf"):
        return partial(_essential_dropin, _OTHER_DROPINS[directory])
    if directory == _POLKIT_ACTIONS and name.endswith(".policy"):
        return _polkit_policy
    if path.startswith(_DROPIN_DIRS) and name.endswith(".conf"):
        return _own_dropin
    if directory.startswith(f"{UNIT_DIR}/") and directory.endswith(".wants") and name == OWN_UNIT:
        return _enablement
    return _bus_policy if path.startswith(_BUS_DIRS) else None


def _admin_check(directory: str, node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield why nodeagent would refuse to run a check: its update would be held, or reverted."""
    stages = [f"{CHECKS}/{stage}.d/{folder}" for stage in CheckStage for folder in ("required.d", "wanted.d")]
    if directory not in stages:
        yield f"is in none of the directories {CHECKS}/STAGE.d/required.d and wanted.d; STAGE: {', '.join(CheckStage)}"
    elif isinstance(node, RegularFile) and (not node.mode & 0o100 or node.mode & 0o022):
        yield "must be executable, and writable for root only (mode: 493, which is 0755)"


def _enablement(_node: RegularFile | SymbolicLink) -> Iterator[str]:
    yield f"would replace the link that enables {OWN_UNIT}"


def _whole_unit(lines: _Check, needed: str, value: str, node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield the problems of a unit by its ``lines``. It must set the key ``needed``, as to ``value``."""
    # systemd takes a link to /dev/null and an empty file for a mask.
    if isinstance(node, SymbolicLink) or not node.content.strip():
        yield "would mask a unit that nodeagent needs"
        return
    yield from lines(node)
    if needed and not any(key == needed and found for _, key, found in _lines(node)):
        yield f"must have {needed}={value}"


def _essential_dropin(name: str, node: RegularFile | SymbolicLink, *, whole: bool = False) -> Iterator[str]:
    """Yield the lines with which the unit may not start, or not be the bus. ``whole``: it is the unit, no drop-in."""
    if isinstance(node, SymbolicLink):
        return
    # Without an empty assignment, a drop-in only adds to what the unit has.
    found: dict[str, list[str]] = {}
    replaced = whole
    for section, key, value in _lines(node):
        if value and _hinders_start(section, key):
            yield f"{key}= could keep {name} from starting"
        elif (section, key) in (("Service", "ExecStart"), ("Socket", "ListenStream")):
            replaced = replaced or not value
            found[key] = [*found.get(key, ()), value] if value else []
    commands, sockets = found.get("ExecStart"), found.get("ListenStream")
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


def _bus_policy(node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield the problems of a policy that the bus rejects, or that denies nodeagent its name."""
    if isinstance(node, SymbolicLink):
        yield "would remove the policy of the bus"
        return
    found: list[str] = []
    decisive = False

    def begin(element: str, attributes: dict[str, str]) -> None:
        nonlocal decisive
        if element == "policy":
            # No other rule overrides these for root.
            decisive = attributes.get("context") == "mandatory" or attributes.get("user") in ("root", "0")
        elif element == "deny" and any(
            _covers(attributes.get(name, "")) for name in ("own", "own_prefix", "send_destination")
        ):
            found.append(f"would deny {BUS_NAME} to nodeagent or its clients")
        elif element == "deny" and decisive and _denies_needed(attributes):
            found.append("would keep nodeagent from the services that it needs")

    yield from _xml_problems(node.content, "busconfig", begin)
    yield from dict.fromkeys(found)


def _denies_needed(rule: Mapping[str, str]) -> bool:
    """Return whether a rule for root denies everything, or a service that nodeagent calls."""
    if any(rule.get(name) in _NEEDED_NAMES for name in ("send_destination", "receive_sender")):
        return True
    if any(rule.get(name) in ("root", "0") for name in ("user", "group")):
        return True
    return all(value == "*" for name, value in rule.items() if name not in _NOT_PARTICULAR)


def _polkit_policy(node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield why polkit would not read the actions of this file."""
    if isinstance(node, RegularFile):
        yield from _xml_problems(node.content, "policyconfig", lambda _element, _attributes: None)


def _xml_problems(content: bytes, root: str, begin: Callable[[str, dict[str, str]], None]) -> Iterator[str]:
    """Yield the problems of an XML document; ``begin`` gets each element."""
    # Half a megabyte with ElementTree, for a file that few configs have.
    from xml.parsers import expat

    roots: list[str] = []
    entities: list[str] = []

    def each(element: str, attributes: dict[str, str]) -> None:
        if not roots:
            roots.append(element)
        begin(element, attributes)

    parser = expat.ParserCreate()
    parser.StartElementHandler = each
    # Nested entities could expand to gigabytes, in the program as well as here.
    parser.EntityDeclHandler = lambda *_: entities.append("must not declare entities")
    try:
        # expat reads no external entity: for that it would need a handler.
        parser.Parse(content, True)
    except expat.ExpatError as error:
        yield f"line {error.lineno}: {expat.ErrorString(error.code)}"
        return
    if roots != [root]:
        yield f"must be a {root}"
    yield from dict.fromkeys(entities)


def _covers(name: str) -> bool:
    return bool(name) and (name == BUS_NAME or BUS_NAME.startswith(f"{name}."))
