# SPDX-License-Identifier: Apache-2.0
"""Units whose entry is new, enabled, disabled, masked or leaves: a start or a stop in place of a reboot.

Only where the host is afterwards as after a boot, as far as the files of the unit show: a unit that the boot orders
before others, one whose effect outlasts it, and one that carries workloads keep the reboot, with the reason. A changed
text of a unit that exists does, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile
from nodeagent.core.config.machineconfig import UnitEntry
from nodeagent.core.config.unit_names import is_template, template_of
from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.change import Action, Change
from nodeagent.core.plan.diff import differing
from nodeagent.core.plan.domain import ByContent, Checker, Domain
from nodeagent.core.plan.enablement.unit_files import SEARCH_PATH, source_of
from nodeagent.core.plan.policy import DAEMON_RELOAD, UNLISTED, Verdict, start, stop
from nodeagent.core.plan.sides import Sides
from nodeagent.core.plan.unit_abilities import of_texts
from nodeagent.core.plan.unit_types import TYPES, type_of
from nodeagent.core.validate import unit_file
from nodeagent.core.validate.unit_file import assignments, words
from nodeagent.domains.own_units import ESSENTIAL, OWN
from nodeagent.domains.tables import UNIT_PATHS

# Units of which the host is asked for files. The units of an update beyond that keep the reboot.
MAX_UNITS: Final = 50

# Stopping one of them may end workloads, or take the network or the disks from them.
CARRIERS: Final = frozenset(
    f"{name}.service"
    for name in (
        *("containerd", "crio", "docker", "etcd", "kubelet"),
        *("NetworkManager", "openvswitch", "ovs-vswitchd", "ovsdb-server", "systemd-networkd", "wpa_supplicant"),
        *("iscsid", "multipathd", "nfs-client", "rpcbind"),
    )
)
# Targets that every unit of the boot may be ordered before: nothing of the boot waits for them.
LATE: Final = frozenset(
    f"{name}.target"
    for name in (
        *("multi-user", "graphical", "default", "boot-complete", "sockets", "timers", "paths"),
        *("shutdown", "umount", "final", "reboot", "poweroff", "halt", "kexec", "soft-reboot", "sleep"),
    )
)
_WANTS: Final = ("WantedBy", "RequiredBy", "UpheldBy")
SUMMARY: Final = (
    "Start or Stop of a unit that is new, enabled, disabled, masked or leaves, if a boot would do the same; otherwise "
    "Drain and Reboot"
)


class _Keep(Exception):
    """The change keeps the reboot."""


class UnitsDomain(Domain):
    def reads(self, sides: Sides) -> Collection[str]:
        names = {name for unit in _changed(sides)[:MAX_UNITS] for name in (unit, template_of(unit)) if name}
        return [f"{directory}/{name}{end}" for directory in SEARCH_PATH for name in names for end in ("", ".d/")]

    def actions(self, change: Change, sides: Sides) -> Verdict:
        was, now = sides.old.units.get(change.key), sides.new.units.get(change.key)
        try:
            return Verdict(self._actions(change.key, was, now, sides), "")
        except _Keep as why:
            return Verdict(UNLISTED, str(why))

    def _actions(self, unit: str, was: UnitEntry | None, now: UnitEntry | None, sides: Sides) -> tuple[Action, ...]:
        if now is not None and now.mask and not (was is not None and was.mask):
            return self._stopped(unit, sides, disabled=False)
        if now is None:
            if unit in sides.host.disabled_again:
                # The file of the unit must stay.
                _texts(unit, sides, sides.after)
                return self._stopped(unit, sides, disabled=True)
            if was is None or was.mask or was.contents is None or unit in sides.host.other_unit_files:
                raise _Keep("what the host has of the unit takes its place")
            return self._stopped(unit, sides, disabled=False)
        # A unit behind a mask does not run, whatever text it had.
        fresh = was is None or was.mask
        # It may run, with a text that no config has.
        if was is None and now.contents is not None and _has_file(unit, sides):
            raise _Keep("the host has another unit of this name")
        # The text behind a mask has no effect.
        if now.mask:
            return (DAEMON_RELOAD,)
        if not _same_text(None if fresh else was, now):
            raise _Keep("the text of the unit changes")
        if now.enabled is False:
            # A new or masked unit does not run.
            runs = not fresh or (was is None and now.contents is None)
            return self._stopped(unit, sides, disabled=True) if runs else (DAEMON_RELOAD,)
        if now.enabled or (fresh and now.contents is not None):
            return self._started(unit, now, sides)
        if fresh and was is None:
            return (DAEMON_RELOAD,)
        raise _Keep("what the host has of its enablement comes back")

    def _started(self, unit: str, entry: UnitEntry, sides: Sides) -> tuple[Action, ...]:
        if is_template(unit):
            if entry.enabled:
                raise _Keep("a boot starts the instance that the template names")
            return (DAEMON_RELOAD,)
        texts = _texts(unit, sides, sides.after)
        if not _install(texts, *_WANTS):
            # No boot starts it, but an alias makes it another unit.
            return (DAEMON_RELOAD,)
        _check_type(unit)
        _check_others(texts, sides)
        # What it prepares has been used by then.
        if before := sorted(set(_unit(texts, "Before")) - LATE):
            raise _Keep(f"a boot starts it before {enumerated(before, 3)}")
        if not of_texts(unit, texts).can_start:
            raise _Keep("RefuseManualStart= rejects a start on a running host")
        return (DAEMON_RELOAD, start(unit))

    def _stopped(self, unit: str, sides: Sides, *, disabled: bool) -> tuple[Action, ...]:
        if unit in ESSENTIAL | OWN:
            raise _Keep("nodeagent needs it until the boot")
        # Without a drain: the plan would have none.
        if unit in CARRIERS:
            raise _Keep("workloads may need it")
        # Those that an admin started have no link, and a boot would not start them either.
        if disabled and is_template(unit):
            raise _Keep("instances of the template may run")
        _check_type(unit)
        texts = _texts(unit, sides, sides.before)
        # A unit that leaves or is masked has no links that another one could share.
        if disabled:
            _check_others(texts, sides)
        if unit.endswith(".service") and _is_oneshot(texts):
            raise _Keep("what a oneshot has done stays until a boot")
        if not of_texts(unit, texts).can_stop:
            raise _Keep("RefuseManualStop= rejects a stop on a running host")
        # A unit that leaves or is masked is stopped by the general rule.
        return (DAEMON_RELOAD, stop(unit)) if disabled else (DAEMON_RELOAD,)


def _changed(sides: Sides) -> list[str]:
    return sorted({*differing(sides.old.units, sides.new.units), *(sides.old.units.keys() - sides.new.units.keys())})


def _same_text(was: UnitEntry | None, now: UnitEntry) -> bool:
    if was is None:
        # Drop-ins alone belong to a unit that may run.
        return now.contents is not None or not now.dropins
    return (was.contents, was.dropins) == (now.contents, now.dropins)


def _has_file(unit: str, sides: Sides) -> bool:
    return any(f"{directory}/{unit}" in sides.before for directory in SEARCH_PATH)


def _texts(unit: str, sides: Sides, side: Mapping[str, bytes]) -> Sequence[str]:
    """Return the file of a unit and its drop-ins on one side."""
    key = f"unit files {'before' if side is sides.before else 'after'}"
    if key not in sides.kept:
        places = tuple(f"{directory}/" for directory in SEARCH_PATH)
        files: dict[str, FileTreeEntry] = {
            path: RegularFile(text) for path, text in side.items() if path.startswith(places)
        }
        sides.kept[key] = files
    # Links are not read, so an alias is either found by its name, or not at all.
    source = source_of(unit, sides.kept[key])
    if source is None:
        raise _Keep("its unit file is not known")
    if source.name != unit:
        raise _Keep(f"it is an alias of {source.name}")
    return source.texts


def _check_type(unit: str) -> None:
    if reason := type_of(unit).only_at_boot:
        raise _Keep(reason)


def _check_others(texts: Sequence[str], sides: Sides) -> None:
    """Check what both a start and a stop of a unit need."""
    # These units are ordered against the first and the last steps of systemd.
    if list(_values(texts, "Unit", "DefaultDependencies"))[-1:] in (["no"], ["false"], ["0"]):
        raise _Keep("it belongs to the early boot or to the shutdown")
    # The links of those are made or removed with this unit, and no step of this change is about them.
    also = [
        word
        for word in _install(texts, "Also")
        if (other := sides.new.units.get(word)) is None or other.enabled is None
    ]
    if also:
        raise _Keep(f"[Install] also names {enumerated(sorted(also), 3)}")


def _is_oneshot(texts: Sequence[str]) -> bool:
    kinds = list(_values(texts, "Service", "Type"))
    return kinds[-1:] == ["oneshot"] or (not kinds and not any(_values(texts, "Service", "ExecStart")))


def _unit(texts: Sequence[str], key: str) -> list[str]:
    # Relations add up over all lines, and an empty value does not reset them: systemd.unit(5).
    return [word for value in _values(texts, "Unit", key) for word in words(value)]


def _install(texts: Sequence[str], *keys: str) -> list[str]:
    return [word for key in keys for value in _values(texts, "Install", key) for word in words(value)]


def _values(texts: Sequence[str], section: str, key: str) -> Iterator[str]:
    for text in texts:
        yield from (value for where, name, value in assignments(text) if (where, name) == (section, key))


# The policy has the actions of units. Without the recommended one, it is only checked that systemd can load them.
DOMAIN: Final = UnitsDomain(
    name="systemd units",
    contents=dict.fromkeys(UNIT_PATHS, unit_file.check),
    # Only the installed systemd knows which directives it has.
    checkers=dict.fromkeys(UNIT_PATHS, Checker.SYSTEMD_ANALYZE),
    opt_in={f"*.{kind}": ByContent(SUMMARY) for kind in TYPES},
)
