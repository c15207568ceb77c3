# SPDX-License-Identifier: Apache-2.0
"""Which links an update makes, replaces and removes, from all entries of the config together.

A link that an entry decides about is *claimed*: what was there before is kept together with the name of the entry.
When the entry leaves, or demands other links, the one from before comes back. No other link is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from nodeagent.core.config.file_tree import FileTreeEntry, expand
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import is_template
from nodeagent.core.plan.enablement.install import Install, installs, taken
from nodeagent.core.plan.enablement.links import LinkChanges, Links, belongs, fulfils, links_of
from nodeagent.core.plan.enablement.presets import Preset, preset_of
from nodeagent.core.plan.enablement.unit_files import EnablementFacts, overlaid


@dataclass(frozen=True, slots=True)
class LinkClaim:
    """``entry`` is the unit whose entry decides about a link, ``before`` the target from before (None: no link)."""

    entry: str
    before: str | None


LinkClaims = Mapping[str, LinkClaim]


@dataclass(frozen=True, slots=True)
class UnitSteps:
    """The units that an update changes, by the names of their entries.

    ``changed``: the entry, the unit file or a drop-in is new, changes or leaves. ``preset``: those of them about which
    the presets decide. ``new``: no config has decided about them before. ``left``: entries that another program has
    changed, and that are left as they are.
    """

    changed: Collection[str] = ()
    preset: Collection[str] = ()
    new: Collection[str] = ()
    left: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """``changes`` are made, and ``claims`` are kept from then on."""

    changes: LinkChanges = field(default_factory=dict)
    claims: LinkClaims = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Demand:
    """A link that has to exist. Without ``make``, an existing link stays and a missing link is not made."""

    entry: str
    target: str
    make: bool = True


def link_plan(
    config: MachineConfig,
    steps: UnitSteps,
    facts: EnablementFacts,
    writes: Mapping[str, FileTreeEntry | None],
    claims: LinkClaims,
) -> LinkPlan:
    """Return the changes of the links for ``config``.

    ``facts`` are those of the host before the paths ``writes`` get their new content (None: the path is removed).
    """
    # Unit files and masks of the config are paths of their own. An alias may take the place of one that leaves.
    paths = (*expand(config), *(path for path, node in writes.items() if node is not None))
    ours = {path.removeprefix(f"{UNIT_DIR}/") for path in paths}
    others = ours | {path.removeprefix(f"{UNIT_DIR}/") for path in writes}
    before = replace(facts, links={path: target for path, target in facts.links.items() if path not in others})
    after = replace(before, files=overlaid(facts.files, writes))
    decided = _Decisions(config, steps, after)
    put, removed = decided.put(), decided.removed(claims)
    stale = _stale(steps, before, after)
    new_claims = dict(claims)
    changes: dict[str, str | None] = {path: None for path in stale if path not in claims}
    for path, claim in claims.items():
        if claim.entry not in config.units or claim.entry in steps.changed:
            del new_claims[path]
            # A link to a unit file that leaves as well would lead nowhere.
            gone = claim.before is not None and claim.before in writes and writes[claim.before] is None
            changes[path] = None if gone else claim.before
    for path, entry in removed.items():
        if path not in put:
            changes[path] = None
            new_claims[path] = _claim(entry, path, before.links, claims, stale)
    for path, demand in put.items():
        there = fulfils(path, before.links.get(path), demand.target)
        if not there and not demand.make:
            continue
        changes.pop(path, None)
        # The unit file that an own link leads to may have another place now.
        ours_before = path in claims and before.links.get(path) != claims[path].before
        if not there or ours_before:
            changes[path] = demand.target
        if path not in new_claims and (path in changes or path in claims or demand.entry in steps.new):
            new_claims[path] = _claim(demand.entry, path, before.links, claims, stale)
    return LinkPlan(
        {
            path: to
            for path, to in changes.items()
            if path not in ours and before.links.get(path) != to and not taken(path, after.files)
        },
        {path: claim for path, claim in new_claims.items() if path not in ours},
    )


def disabled_without(unit: str, links: Links, claims: LinkClaims) -> bool:
    """Return whether the entry of ``unit`` made the links that enable it, and none is left when the entry leaves."""
    given_back = {path: claim.before for path, claim in claims.items() if claim.entry == unit}
    after = {path: target for path, target in {**links, **given_back}.items() if target is not None}
    return bool(given_back) and not links_of(after, unit)


def _claim(entry: str, path: str, links: Links, claims: LinkClaims, stale: Collection[str]) -> LinkClaim:
    if path in claims:
        return LinkClaim(entry, claims[path].before)
    return LinkClaim(entry, None if path in stale else links.get(path))


def _stale(steps: UnitSteps, before: EnablementFacts, after: EnablementFacts) -> set[str]:
    """Return the links that the [Install] section of a changed unit named, and names no more.

    They have no claim if another agent made them that managed this host before.
    """
    stale: set[str] = set()
    for unit in steps.changed:
        if unit in steps.new:
            continue
        named = {path for install in installs(unit, after)[:1] for path in install.links}
        for install in installs(unit, before)[:1]:
            for path, target in install.links.items():
                if path not in named and fulfils(path, before.links.get(path), target):
                    stale.add(path)
    return stale


@dataclass(frozen=True, slots=True)
class _Decisions:
    """The links that the entries of a config demand."""

    config: MachineConfig
    steps: UnitSteps
    facts: EnablementFacts

    def _entries(self) -> Iterator[tuple[str, UnitEntry]]:
        for name, unit in sorted(self.config.units.items()):
            if name not in self.steps.left:
                yield name, unit

    def _off(self, unit: str) -> bool:
        entry = self.config.units.get(unit)
        return entry is not None and (entry.mask or entry.enabled is False)

    def _on(self, unit: str) -> bool:
        entry = self.config.units.get(unit)
        return entry is not None and not entry.mask and entry.enabled is True

    def put(self) -> dict[str, _Demand]:
        demands: dict[str, _Demand] = {}
        for name, unit in self._entries():
            changed = name in self.steps.changed
            if self._on(name):
                for install in installs(name, self.facts):
                    # A unit that is enabled along with another one may have been disabled by an admin since.
                    self._add(demands, name, install, make=changed or install.unit == name)
            elif name in self.steps.preset and not unit.mask:
                verdict, instances = preset_of(name, self.facts.presets)
                for instance in instances or (name,):
                    for install in installs(instance, self.facts) if verdict is not Preset.DISABLE else ():
                        self._add(demands, name, install, make=verdict is Preset.ENABLE)
        return demands

    def _add(self, demands: dict[str, _Demand], entry: str, install: Install, *, make: bool) -> None:
        if install.unit != entry and self._off(install.unit):
            return
        for path, target in install.links.items():
            demand = demands.get(path)
            if demand is None or (make and not demand.make):
                demands[path] = _Demand(entry, target, make)

    def removed(self, claims: LinkClaims) -> dict[str, str]:
        """Return the links that changed entries switch off, with the entry."""
        off = dict(self._switched_off())
        removed: dict[str, str] = {}
        previous_targets = {path: claim.before for path, claim in claims.items() if claim.before is not None}
        # In the place of a link of a changed entry is the one from before, which may be that of another unit.
        given_back = {path for path, claim in claims.items() if claim.entry in self.steps.changed}
        links = {path: target for path, target in self.facts.links.items() if path not in given_back}
        for path, target in {**previous_targets, **links}.items():
            entry = next((off[unit] for unit in off if belongs(path, target, unit)), "")
            switched_off = path in previous_targets and path not in self.facts.links
            if not entry and switched_off and (owner := claims[path].entry) in off.values():
                # The unit is known by an alias only, which is gone as well.
                entry = owner
            if entry:
                removed[path] = entry
        return removed

    def _switched_off(self) -> Iterator[tuple[str, str]]:
        """Yield the units that changed entries switch off, each with the entry."""
        for name, unit in self._entries():
            if name not in self.steps.changed:
                continue
            if unit.mask:
                yield name, name
            elif unit.enabled is False:
                yield name, name
                for install in installs(name, self.facts):
                    if not self._on(install.unit):
                        yield install.unit, name
            elif self._preset_off(name):
                yield name, name

    def _preset_off(self, name: str) -> bool:
        # The instances of a template are not its own: an admin may have enabled them.
        fresh = name in self.steps.preset and name in self.steps.new and not is_template(name)
        return fresh and preset_of(name, self.facts.presets)[0] is Preset.DISABLE
