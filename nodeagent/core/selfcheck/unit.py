"""Judge the unit of the daemon: its file, whether it is enabled, and whether it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nodeagent.core.selfcheck.result import NotRead, SelfCheck, failed, ok, skipped, unread

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
