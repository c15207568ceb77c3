# SPDX-License-Identifier: Apache-2.0
"""Settings of NetworkManager: those that it reads when it starts, and that change no connection, need no reboot.

NetworkManager takes over the active connections of most types after a restart, with their addresses. For the same
reason a restart is not as a boot for all settings of devices and connections: an active connection, the file
resolv.conf of a running pod and an interface that NetworkManager leaves alone from now on keep what they have.
Connections of other types, such as those of Open vSwitch, end when NetworkManager stops.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.config.machineconfig import FileEntry
from nodeagent.core.plan.change import HIDDEN, KeyChange, shortened
from nodeagent.core.plan.diff import differing
from nodeagent.core.plan.domain import ByContent, Domain, UnitFailure
from nodeagent.core.plan.layers import by_name
from nodeagent.core.plan.policy import DRAIN, REBOOT, restart
from nodeagent.core.plan.program import SCRATCH, TREE, ProgramCheck, ProgramResult
from nodeagent.core.plan.sides import Sides
from nodeagent.errors import Problem

UNIT: Final = "NetworkManager.service"
RESTART: Final = (restart(UNIT),)
STRONGEST: Final = (DRAIN, REBOOT)
RULE: Final = (
    f"Restart {UNIT}, if only logging, connectivity checks and auth-polkit change and no connection ends with it; "
    "otherwise Drain and Reboot"
)

MAIN: Final = "/etc/NetworkManager/NetworkManager.conf"
DIRECTORY: Final = "/etc/NetworkManager/conf.d"
# The strongest last: a file in it replaces those of the same name, see NetworkManager.conf(5).
DIRECTORIES: Final = ("/usr/lib/NetworkManager/conf.d", "/run/NetworkManager/conf.d", DIRECTORY)
SUFFIX: Final = ".conf"

# Sections and their keys that NetworkManager keeps in memory only, and uses for no device and no connection.
AT_START: Final[Mapping[str, Collection[str]]] = {
    "connectivity": ("enabled", "interval", "response", "timeout", "uri"),
    "logging": ("audit", "backend", "domains", "domains+", "domains-", "level"),
    "main": ("auth-polkit",),
}
# Profiles of connections, also those that are not saved. The older form of RHEL is in the last directory.
PROFILES: Final = tuple(f"{top}/NetworkManager/system-connections" for top in ("/usr/lib", "/run", "/etc"))
OLD_PROFILES: Final = "/etc/sysconfig/network-scripts"
# NetworkManager-dispatcher(8).
SCRIPTS: Final = "/etc/NetworkManager/dispatcher.d/"
# Of these the places are known. The last one has connections only if it manages them.
PLUGINS: Final = frozenset({"keyfile", "ifcfg-rh", "ifupdown"})
# Types whose interfaces NetworkManager keeps when it stops (unmanaged_on_quit of its devices). Left out are those that
# end then, such as wifi, vpn and ovs-interface, and some of which that is not certain.
KEPT: Final = frozenset(
    {
        *("802-3-ethernet", "bond", "bridge", "dummy", "ethernet", "infiniband", "loopback", "macvlan", "veth", "vlan"),
        *("vrf", "vxlan"),
    }
)
BLANK: Final = " \t\r\v\f"
# The exit status of NetworkManager if it cannot read its configuration.
UNREADABLE: Final = 7
FAILED: Final = "Failed to read configuration: "


@dataclass(frozen=True, slots=True)
class Setting:
    """A key with its value; an empty ``key`` is the line that begins a section which is not of ``AT_START``."""

    section: str
    key: str
    value: str

    @property
    def name(self) -> str:
        return f"[{self.section}] {self.key}".rstrip()

    @property
    def at_start(self) -> bool:
        return self.key in AT_START.get(self.section, ())


# The settings of a file in order, None for a file that NetworkManager cannot read.
Settings = Sequence[Setting] | None


class NetworkManagerDomain(Domain):
    def reads(self, sides: Sides) -> Collection[str]:
        if not _changed(sides):
            return ()
        return (*(f"{directory}/" for directory in (*DIRECTORIES, *PROFILES, OLD_PROFILES)), MAIN)

    def changes(self, sides: Sides) -> Sequence[KeyChange]:
        if not (changed := _changed(sides)):
            return ()
        before, after = _read_files(sides.before), _read_files(sides.after)
        ended = _ended(sides, before)
        key_changes: list[KeyChange] = []
        for path in sorted(before.keys() | after.keys()):
            if sides.before.get(path) == sides.after.get(path) and (path in before) == (path in after):
                continue
            # A changed file replaces those of its name in other directories.
            name = path.rpartition("/")[2]
            document = path if path in changed else next(other for other in changed if other.endswith(f"/{name}"))
            left = "" if document in sides.new.files else "the host may have another file in its place, not known here"
            key_changes += _keys(document, before.get(path, ()), after.get(path, ()), left, ended)
        return key_changes

    def programs(self, sides: Sides) -> Sequence[ProgramCheck]:
        return (_check(sides.after, _check(sides.before, None)),) if _changed(sides) else ()

    def warnings(self, sides: Sides) -> Iterator[Problem]:
        for path in differing(sides.old.files, sides.new.files):
            entry = sides.new.files[path]
            # Other files beside the scripts, such as a README, are not meant to be run.
            if path.startswith(SCRIPTS) and entry.content.startswith(b"#!") and (problem := _not_run(entry)):
                yield Problem(path, f"{problem}, so that NetworkManager does not run it")

    def curable(self, failure: UnitFailure) -> bool:
        """It reads the same files after a boot, and the host has no network then."""
        return failure.unit != UNIT or not any(_is_read(key.document) for key in failure.keys)


def _not_run(script: FileEntry) -> str:
    """Return why the dispatcher leaves out a script, "" if it does not: nm-dispatcher.c."""
    if script.user not in (0, "root"):
        return f"belongs to {script.user}, not to root"
    if not script.mode & 0o100:
        return f"has mode 0{script.mode:03o}, without an x bit"
    return f"has mode 0{script.mode:03o}, with which others may change it" if script.mode & 0o022 else ""


def _check_profile(content: bytes) -> Iterator[str]:
    if not _parse(content):
        yield "is no keyfile of NetworkManager, which ignores it: sections and lines of key=value are needed"


def _changed(sides: Sides) -> list[str]:
    paths = {path for config in (sides.old, sides.new) for path in config.files if _is_read(path)}
    return sorted(
        path for path in paths if sides.before.get(path) != sides.after.get(path) or path not in sides.new.files
    )


def _is_read(path: str) -> bool:
    directory, _, name = path.rpartition("/")
    # Hidden files are read as well.
    return path == MAIN or (directory == DIRECTORY and name.endswith(SUFFIX))


def _read_files(files: Mapping[str, bytes]) -> dict[str, Settings]:
    """Return the settings of the files that NetworkManager reads of these, path to content."""
    paths = [*by_name(files, DIRECTORIES, SUFFIX), MAIN]
    return {path: _parse(files[path]) for path in paths if path in files}


def _ended(sides: Sides, files: Mapping[str, Settings]) -> str:
    """Return why a restart may interrupt connections, "" if it does not."""
    if not sides.host.files:
        return "the connections of the host are not known"
    for path, settings in files.items():
        if any(map(_names_others, settings or ())):
            return f"{path} names other places of connections"
    for path, content in sides.before.items():
        directory, _, name = path.rpartition("/")
        if directory == OLD_PROFILES and name.startswith("ifcfg-") and name != "ifcfg-lo":
            return f"{path} is a connection of a type that is not known here"
        is_profile = directory in PROFILES and not name.startswith(".") and not name.endswith(".nmmeta")
        if is_profile and (problem := _profile_problem(_parse(content))):
            return f"{path} {problem}"
    return ""


def _names_others(setting: Setting) -> bool:
    match setting.name:
        case "[keyfile] path":
            return True
        case "[main] plugins" | "[main] plugins+":
            return not PLUGINS.issuperset(re.findall(r"[^,;\s]+", setting.value))
        case "[ifupdown] managed":
            return setting.value.rstrip(BLANK) != "false"
        case _:
            return False


def _profile_problem(profile: Settings) -> str:
    values = {setting.name: setting.value.rstrip(BLANK) for setting in profile or ()}
    if (kind := values.get("[connection] type", "")) not in KEPT:
        return f"is a connection of the type {json.dumps(kind)}, which may end with a restart"
    if "[802-1x]" in values or "shared" in (values.get("[ipv4] method"), values.get("[ipv6] method")):
        return "is a connection that ends with a restart, because it is shared or has a login"
    return ""


def _parse(content: bytes) -> Settings:
    """Read a file as GLib does."""
    settings: list[Setting] = []
    section: str | None = None
    for line in content.decode(errors="backslashreplace").split("\n"):
        text = line.strip(BLANK)
        if not text or text[0] == "#":
            continue
        if "\0" in text:
            return None
        if text[0] == "[" and text.find("]") == len(text) - 1:
            section = text[1:-1]
            # A section without a key may have a meaning.
            if section not in AT_START:
                settings.append(Setting(section, "", ""))
            continue
        key, equals, value = text.partition("=")
        if not equals or not key or section is None:
            return None
        settings.append(Setting(section, key.rstrip(BLANK), value.lstrip(BLANK)))
    return settings


def _keys(document: str, before: Settings, after: Settings, left: str, ended: str) -> Iterator[KeyChange]:
    """Yield the differences of two files. ``left`` and ``ended`` are reasons for the strongest actions, "" if there
    are none: for a file that leaves the config, and for a restart of any file."""
    if before is None or after is None:
        yield KeyChange(document, "(all)", "", "", STRONGEST, "a line is no setting")
        return
    # The last value of a key counts.
    was, now = ({setting.name: setting for setting in settings} for settings in (before, after))
    differing = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    at_start = {name: (was.get(name) or now[name]).at_start for name in differing}
    for name in differing:
        problem = left or ("" if at_start[name] else "is not known to take effect with a restart") or ended
        actions = STRONGEST if problem else RESTART
        yield KeyChange(document, name, _shown(was.get(name)), _shown(now.get(name)), actions, problem)
    if all(at_start.values()) and _others(before) != _others(after):
        # Of the sections for devices and connections the first one that matches counts.
        yield KeyChange(document, "(all)", "", "", STRONGEST, "its keys are in another order")
    elif not differing and (left or list(before) != list(after)):
        problem = left or ended
        yield KeyChange(document, "(all)", "", "", STRONGEST if problem else RESTART, problem)


def _others(settings: Iterable[Setting]) -> list[Setting]:
    return [setting for setting in settings if not setting.at_start]


def _shown(setting: Setting | None) -> str:
    if setting is None or not setting.key:
        return ""
    # The address of a server may have a password.
    if "@" in setting.value:
        return HIDDEN
    return json.dumps(shortened(setting.value))


def _check(files: Mapping[str, bytes], control: ProgramCheck | None) -> ProgramCheck:
    ours = {path: content for path, content in files.items() if _is_read(path)}
    # Its own file, which it may write again, is none of this check.
    options = (f"--config={TREE}{MAIN}", f"--config-dir={TREE}{DIRECTORY}", f"--intern-config={SCRATCH}/intern.conf")
    # The file of --config must exist, and NetworkManager needs none.
    return ProgramCheck("NetworkManager", ("--print-config", *options), {MAIN: b"", **ours}, _judge, control=control)


def _judge(result: ProgramResult) -> Iterator[Problem]:
    if result.status != UNREADABLE:
        return
    failed = next((line.partition(FAILED)[2] for line in result.lines if FAILED in line), "")
    path = failed.partition(":")[0]
    # The rest of the message quotes the line.
    yield Problem(path if _is_read(path) else MAIN, "NetworkManager cannot read it, and would not start")


DOMAIN: Final = NetworkManagerDomain(
    name="NetworkManager",
    opt_in={MAIN: ByContent(RULE), DIRECTORY: ByContent(RULE)},
    contents={f"{PROFILES[-1]}/*.nmconnection": _check_profile},
    # A file replaces others, and a key of one file those of others.
    joined=(),
)
