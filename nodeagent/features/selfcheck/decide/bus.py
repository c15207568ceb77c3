# SPDX-License-Identifier: Apache-2.0
"""Judge the unit of the daemon, its name on the bus, and its actions in polkit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from nodeagent.core.enumerated import enumerated
from nodeagent.core.self_check import NotRead, SelfCheck, failed, ok, skipped, unread

UNIT: Final = "nodeagent.service"
UNIT_FILE: Final = f"/usr/lib/systemd/system/{UNIT}"
# /lib is a link to /usr/lib, and systemd may name a file by either.
UNIT_FILES: Final = (UNIT_FILE, UNIT_FILE.removeprefix("/usr"))
UNIT_CHECKS: Final = ("unit.file", "unit.enabled", "unit.preset", "unit.active")


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """``path`` is the unit file in use, "" if there is none. ``enabled`` and ``preset`` are the words of systemd, "" if
    unknown. ``active`` is the ActiveState, "" where systemd does not run. ``outdated``: its files have changed since
    systemd read them. ``wanted``: a link in /usr starts it, which systemd does not call enabled."""

    path: str
    enabled: str
    preset: str = ""
    active: str = ""
    outdated: bool = False
    pid: int = 0
    masked: bool = False
    wanted: bool = False

    @property
    def running(self) -> bool:
        return self.active in ("active", "reloading")


def unit_checks(unit: UnitFacts | NotRead) -> Iterator[SelfCheck]:
    if isinstance(unit, NotRead):
        yield from (unread(name, unit) for name in UNIT_CHECKS)
        return
    yield _file(unit)
    if not unit.path:
        yield from (skipped(name, f"{UNIT} is not installed") for name in UNIT_CHECKS[1:])
        return
    yield _enabled(unit)
    yield _preset(unit)
    yield _active(unit)


def _file(unit: UnitFacts) -> SelfCheck:
    name = "unit.file"
    if unit.masked:
        return failed(name, f"{UNIT} is masked by {unit.path}", f"systemctl unmask {UNIT}")
    if not unit.path:
        return failed(name, f"{UNIT} is not installed", "install the package again; a wheel has no unit")
    if unit.path not in UNIT_FILES:
        remedy = (
            f"remove {unit.path}, keep own settings in a drop-in (systemctl edit {UNIT}), then systemctl daemon-reload"
        )
        return failed(name, f"{unit.path} replaces the unit of the package", remedy)
    # systemd starts the unit as it has read it, so the file on the disk proves nothing.
    if unit.outdated:
        return failed(name, f"{UNIT} has changed since systemd read it", "systemctl daemon-reload")
    return ok(name, unit.path)


def _enabled(unit: UnitFacts) -> SelfCheck:
    name, word = "unit.enabled", unit.enabled
    if word == "enabled":
        return ok(name, "it starts at each boot")
    if unit.wanted and not unit.masked:
        return ok(name, f"the image of the OS starts it at each boot; systemctl mask {UNIT} prevents that")
    if word == "enabled-runtime":
        return failed(name, "it is enabled until the next boot only", f"systemctl enable {UNIT}")
    return failed(name, f"{UNIT} is {word or 'not enabled'}", f"systemctl enable --now {UNIT}")


def _preset(unit: UnitFacts) -> SelfCheck:
    name = "unit.preset"
    if not unit.preset:
        return skipped(name, "the preset is not known without systemd", "run it on the booted host")
    # Presets are applied at the first boot and by `systemctl preset-all`, which builds of images run.
    if unit.preset == "enabled":
        return ok(name, "the presets of this host enable it")
    remedy = f"enable {UNIT} in a file of /etc/systemd/system-preset that sorts before the one which disables it"
    return failed(name, f"a preset of this host disables {UNIT}: an image or `preset-all` would", remedy)


def _active(unit: UnitFacts) -> SelfCheck:
    name = "unit.active"
    if not unit.active:
        return skipped(name, "systemd does not run here, as in the build of an image", "run it on the booted host")
    if unit.running:
        return ok(name, f"it runs as process {unit.pid}" if unit.pid else "it runs")
    # systemd shows a unit that waits for its next automatic restart as activating, too.
    if unit.active == "activating":
        return failed(name, f"{UNIT} is still starting, or starts again and again", f"journalctl -u {UNIT}")
    remedy = f"systemctl start {UNIT}" if unit.active == "inactive" else f"journalctl -u {UNIT}"
    return failed(name, f"{UNIT} is {unit.active}", remedy)


BUS_NAME: Final = "org.nodeagent.Agent1"
BUS_POLICY: Final = f"/usr/share/dbus-1/system.d/{BUS_NAME}.conf"
POLKIT_ACTIONS: Final = "/usr/share/polkit-1/actions/org.nodeagent.agent1.policy"
ACTIONS: Final = frozenset(
    f"org.nodeagent.agent1.{word}"
    for word in (
        "apply", "cancel", "diff", "etcd-member", "keep", "maintenance", "power-off", "read-secrets", "reboot",
        "reload", "rollback", "verify",
    )
)  # fmt: skip

# For callers without a session, in an inactive one, and in an active one.
Defaults = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class NameFacts:
    """``pid`` and ``uid`` are those of the owner; the pid is 0 if the name has none. ``version`` is the answer of the
    daemon, "" if there is none."""

    pid: int = 0
    uid: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class PolkitDecision:
    """The decision about an action of this user. ``challenge``: a password is needed."""

    allowed: bool
    challenge: bool


@dataclass(frozen=True, slots=True)
class PolkitFacts:
    """``installed`` is the content of the file of the package, ``known`` what polkit has read."""

    installed: Mapping[str, Defaults]
    known: Mapping[str, Defaults]
    decisions: Mapping[str, PolkitDecision]


def bus_checks(
    policy: bool | NotRead,
    name: NameFacts | NotRead,
    polkit: PolkitFacts | NotRead,
    unit: UnitFacts | NotRead,
    *,
    root: bool,
) -> Iterator[SelfCheck]:
    """``policy``: whether the policy file of the bus is in place and is the package's."""
    yield _policy(policy)
    yield unread("dbus.name", name) if isinstance(name, NotRead) else _name(name, unit)
    if isinstance(polkit, NotRead):
        yield from (unread(check, polkit) for check in ("polkit.actions", "polkit.decisions"))
    else:
        yield _actions(polkit)
        yield _decisions(polkit, root=root)


def _policy(permitted: bool | NotRead) -> SelfCheck:
    name = "dbus.policy"
    if isinstance(permitted, NotRead):
        return unread(name, permitted)
    if not permitted:
        return failed(name, f"{BUS_POLICY} does not let root own {BUS_NAME}", "install the package again")
    return ok(name, BUS_POLICY)


def _name(owner: NameFacts, unit: UnitFacts | NotRead) -> SelfCheck:
    name = "dbus.name"
    if not owner.pid:
        if isinstance(unit, UnitFacts) and unit.running:
            remedy = f"systemctl reload dbus && systemctl restart {UNIT}"
            return failed(name, f"the daemon runs without the name {BUS_NAME}: the bus has not read its policy", remedy)
        return skipped(name, "the daemon does not run", f"systemctl start {UNIT}")
    # Only the policy of the bus keeps other users from the name.
    if owner.uid != 0:
        return failed(name, f"process {owner.pid} of user {owner.uid} has the name {BUS_NAME}", "stop that process")
    # systemd reports 0 as long as it knows no main process.
    if isinstance(unit, UnitFacts) and unit.running and unit.pid not in (0, owner.pid):
        return failed(name, f"process {owner.pid}, not {UNIT}, has the name {BUS_NAME}", "stop that process")
    if not owner.version:
        return failed(name, "the daemon does not answer", f"systemctl status {UNIT}")
    return ok(name, f"{BUS_NAME} answers")


def _actions(polkit: PolkitFacts) -> SelfCheck:
    name = "polkit.actions"
    if missing := sorted(ACTIONS - polkit.installed.keys()):
        return failed(name, f"{POLKIT_ACTIONS} lacks {enumerated(missing)}", "install the package again")
    # polkit watches its directories. If it missed a change there, a restart makes it read them.
    if missing := sorted(polkit.installed.keys() - polkit.known.keys()):
        return failed(name, f"polkit does not know {enumerated(missing)}", "systemctl restart polkit")
    if other := sorted(key for key, defaults in polkit.installed.items() if polkit.known[key] != defaults):
        message = f"polkit has other defaults than {POLKIT_ACTIONS} for {enumerated(other)}"
        return failed(name, message, "systemctl restart polkit")
    return ok(name, f"polkit knows {len(polkit.installed)} actions")


def _decisions(polkit: PolkitFacts, *, root: bool) -> SelfCheck:
    name = "polkit.decisions"
    relevant = ACTIONS & polkit.known.keys()
    if missing := sorted(relevant - polkit.decisions.keys()):
        return failed(name, f"polkit makes no decision about {enumerated(missing)}", "journalctl -u polkit")
    allowed = sorted(key for key in relevant if polkit.decisions[key].allowed)
    if root:
        if refused := sorted(relevant - set(allowed)):
            return failed(name, f"polkit refuses root {enumerated(refused)}", "check /etc/polkit-1/rules.d")
        return ok(name, "root may do everything")
    challenged = [key for key in relevant if not polkit.decisions[key].allowed and polkit.decisions[key].challenge]
    refused_count = len(relevant) - len(allowed) - len(challenged)
    # Rules of the host may grant or refuse more than the defaults; both are decisions of its admin.
    return ok(
        name,
        f"this user: {len(allowed)} allowed, {len(challenged)} with a password of an admin, {refused_count} refused",
    )
