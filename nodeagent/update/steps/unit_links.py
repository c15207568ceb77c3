# SPDX-License-Identifier: Apache-2.0
"""Make the links that enable units: planned from all entries once, before the first write.

Each link that changes is a path with a snapshot of its own, so a revert restores it as any other path. The plan is
stored beside the snapshots: after a kill it is carried out again, and never computed from a half-changed host.

The links of a unit that the next OS brings are made in the running /etc, before the reboot, from the unit file in the
tree of the staged deployment. The merge of /etc carries them over, so the unit starts in the first boot of that OS.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from nodeagent.core.config.file_tree import FileTreeEntry, SymbolicLink
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.text import plain_json
from nodeagent.core.plan.enablement.install import installs, taken_aliases
from nodeagent.core.plan.enablement.link_plan import LinkClaims, LinkPlan, UnitSteps, disabled_without, link_plan
from nodeagent.core.plan.enablement.links import fulfils
from nodeagent.core.plan.enablement.presets import PRESETS
from nodeagent.core.plan.enablement.stored import claims_from_text, claims_to_text
from nodeagent.core.plan.enablement.unit_files import source_of
from nodeagent.core.plan.steps import EnableUnit, PresetUnit, RemovePath, UnitStep, WritePath, WriteStep
from nodeagent.core.plan.unit_entries import dropins_of
from nodeagent.core.plan.unit_origin import Brought
from nodeagent.errors import AgentError
from nodeagent.update.next.unit_checks import missing_warnings
from nodeagent.update.ports.events import Warned
from nodeagent.update.ports.store import Snapshot
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.steps.originals import original_of
from nodeagent.update.steps.paths import Paths

# The snapshot of the plan, and the claims in the store.
KEY: Final = "links"
NOTE: Final = "unit-links"
NO_FILES: Final[Mapping[str, FileTreeEntry]] = MappingProxyType({})


@dataclass(slots=True)
class UnitLinks:
    """The links of all units, which are made with the first of the steps about units."""

    ports: Ports
    plan: LinkPlan
    made_dirs: Sequence[str] = ()
    made: bool = False

    async def do(self) -> None:
        if not self.made:
            await put_links(self.ports, self.plan, self.made_dirs)
        self.made = True


async def plan_update_links(ports: Ports, update: Update, tree: Mapping[str, FileTreeEntry]) -> LinkPlan:
    """Return the links after an update. ``tree`` is that of its config."""
    writes: dict[str, FileTreeEntry | None] = {}
    for step in update.writes:
        match step:
            case WritePath(path):
                writes[path] = tree[path]
            case RemovePath(path) if path.startswith(f"{UNIT_DIR}/") or path.rpartition("/")[0] in PRESETS:
                writes[path] = (await original_of(ports, path)).node
            case _:
                pass
    record, next_os = update.record, await _next_os_units(ports, update)
    new, left = record.newly_managed, record.drifted
    return await plan_links(ports, update.new, update.writes, writes, new=new, left=left, next_os=next_os)


async def plan_links(
    ports: Ports,
    config: MachineConfig,
    steps: Sequence[WriteStep],
    writes: Mapping[str, FileTreeEntry | None],
    *,
    new: Collection[str] = (),
    left: Collection[str] = (),
    next_os: Mapping[str, FileTreeEntry] = NO_FILES,
) -> LinkPlan:
    """Return the links after these steps. ``writes`` are the paths that they change, with their content.

    ``new`` are keys of snapshots that no config managed before, ``left`` the entries that are left as they are,
    ``next_os`` the unit files of the staged OS that this host lacks.
    """
    units = [step for step in steps if isinstance(step, UnitStep)]
    if not units:
        return LinkPlan()
    changed = {step.unit for step in units}
    # A unit of an entry that is left alone may lack its file, and nothing is known about its links.
    about = UnitSteps(
        changed,
        {step.unit for step in units if isinstance(step, PresetUnit)},
        {unit for unit in changed if f"unit:{unit}" in new},
        {entry.partition(":")[2] for entry in left if entry.startswith("unit:")},
    )
    ours = {path: node for path, node in writes.items() if path.startswith(f"{UNIT_DIR}/")}
    presets = {path: node for path, node in writes.items() if path.rpartition("/")[0] in PRESETS}
    facts = await ports.unit_files.facts(config.units.keys() | changed, {**ours, **presets})
    facts = replace(facts, files={**next_os, **facts.files})
    return link_plan(config, about, facts, ours, await _claims(ports))


async def _claims(ports: Ports) -> LinkClaims:
    try:
        return claims_from_text(await ports.store.note(NOTE))
    except ValueError:
        # Without claims no link comes back when its entry leaves, and everything else works.
        return {}


async def disabled_again(ports: Ports, units: Collection[str]) -> frozenset[str]:
    """Return those of ``units`` that no link enables any more when their entries leave."""
    claims = await _claims(ports)
    made = {claim.entry for claim in claims.values()} & set(units)
    if not made:
        return frozenset()
    links = (await ports.unit_files.facts(made)).links
    return frozenset(unit for unit in made if disabled_without(unit, links, claims))


async def snapshot_of(ports: Ports, plan: LinkPlan) -> Snapshot:
    """Return the snapshot of a plan, with the claims from before it."""
    stored = {"changes": plan.changes, "claims": claims_to_text(plan.claims), "before": await ports.store.note(NOTE)}
    return Snapshot(KEY, text=json.dumps(stored))


def plan_of(snapshots: Sequence[Snapshot]) -> LinkPlan | None:
    """Return the plan that was kept with the snapshots."""
    stored = _stored(snapshots)
    return None if stored is None else LinkPlan(stored["changes"], claims_from_text(stored["claims"]))


def _stored(snapshots: Sequence[Snapshot]) -> dict[str, Any] | None:
    text = next((snapshot.text for snapshot in snapshots if snapshot.key == KEY), "")
    return plain_json.loads(text) if text else None


def link_paths(plan: LinkPlan) -> list[str]:
    """Return the paths of the links that change."""
    return [f"{UNIT_DIR}/{path}" for path in plan.changes]


async def put_links(ports: Ports, plan: LinkPlan, made_dirs: Sequence[str]) -> None:
    """Carry out a plan. The claims come first: what was there before must be known when a link has changed."""
    await ports.store.keep_note(NOTE, claims_to_text(plan.claims))
    for path, target in plan.changes.items():
        if target is None:
            await ports.files.remove(f"{UNIT_DIR}/{path}", made_dirs)
        else:
            await ports.files.install(f"{UNIT_DIR}/{path}", SymbolicLink(target))


async def links_before(ports: Ports, snapshots: Sequence[Snapshot]) -> Mapping[str, SymbolicLink | None]:
    """Return what was in the place of each link that a config had made before the update, by path."""
    stored = _stored(snapshots)
    claims = await _claims(ports) if stored is None else claims_from_text(stored["before"])
    return {
        f"{UNIT_DIR}/{path}": SymbolicLink(claim.before) if claim.before is not None else None
        for path, claim in claims.items()
    }


async def restore_claims(ports: Ports, snapshots: Sequence[Snapshot]) -> None:
    if (stored := _stored(snapshots)) is not None:
        await ports.store.keep_note(NOTE, stored["before"])


async def compare_links(run: Run) -> list[str]:
    """Compare the links with those from before this update, at the end of its revert. Return those that differ.

    A program that runs during a revert may change a link that is already restored, so each is corrected once.
    """
    ports, update = run.ports, run.update
    snapshots = await ports.store.remembered(update.record.update_id)
    plan = plan_of(snapshots)
    keys = {f"path:{path}" for path in link_paths(plan)} if plan is not None else set()
    paths = Paths(ports, update, NO_FILES, await ports.store.made_dirs())
    differing = []
    for snapshot in [snapshot for snapshot in snapshots if snapshot.key in keys]:
        path = snapshot.key.partition(":")[2]
        try:
            if not await ports.files.differs(path, snapshot.node):
                continue
            await paths.put_back(path, snapshot.node)
            difference = await ports.files.differs(path, snapshot.node)
        except AgentError as error:
            difference = error.message
        if difference:
            differing.append(f"{path} is not as before the update: {difference}")
            run.narrate(Warned, differing[-1])
    return differing


async def follow_install(ports: Ports, config: MachineConfig, left: Collection[str]) -> None:
    """Make the links that the unit files of a new OS demand, and those of the previous one did not.

    Only for units that have started, because other links of them are there. A unit that is not enabled is left to the
    repair of the merge of /etc. ``left`` as in ``plan_links``.
    """
    lacking = [unit for unit, links in (await missing_links(ports, config)).items() if links]
    started = {unit for unit in lacking if (await ports.units.state(unit)).file in ("enabled", "enabled-runtime")}
    if not started:
        return
    others = {unit for unit in config.units if unit not in started}
    facts = await ports.unit_files.facts(started)
    steps = UnitSteps(left=others | {entry.partition(":")[2] for entry in left})
    plan = link_plan(config, steps, facts, {}, await _claims(ports))
    await put_links(ports, plan, ())


async def missing_links(ports: Ports, config: MachineConfig) -> Mapping[str, Sequence[str] | None]:
    """Return for each unit that ``config`` enables the links that it lacks; None where [Install] names none."""
    enabled = [name for name, unit in config.units.items() if unit.enabled is True and not unit.mask]
    if not enabled:
        return {}
    facts = await ports.unit_files.facts(enabled)
    links_lacking: dict[str, Sequence[str] | None] = {}
    for name in enabled:
        wanted = next((install.links for install in installs(name, facts)), {})
        lacking = [path for path, target in wanted.items() if not fulfils(path, facts.links.get(path), target)]
        # Where the only link is an alias that cannot be made, systemd calls the unit disabled.
        links_lacking[name] = lacking if wanted or taken_aliases(name, facts) else None
    return links_lacking


async def _next_os_units(ports: Ports, update: Update) -> Mapping[str, FileTreeEntry]:
    """Return the unit files of the staged OS for units that this update enables and this host lacks.

    A unit that the next OS lacks as well is a note, also if the config has only a drop-in of it. Without an answer,
    such units are enabled after the boot.
    """
    brought, own = Brought(update.new), update.record.os.staged
    if ports.os is None or not own:
        return {}
    units = [step.unit for step in update.writes if isinstance(step, EnableUnit) and not brought.has(step.unit)]
    entries = {f"unit:{unit}": unit for unit in units}
    dropins = await asyncio.to_thread(_dropins, brought)
    try:
        here = await ports.unit_files.facts(units)
        missing = {entry: unit for entry, unit in entries.items() if source_of(unit, here.files) is None}
        missing |= {path: unit for path, unit in dropins.items() if (await ports.units.state(unit)).load == "not-found"}
        deployment = next((deployment for deployment in await ports.os.list() if deployment.id == own), None)
        if not missing or deployment is None:
            return {}
        shipped = await ports.unit_files.shipped(deployment, {*missing.values()})
    except AgentError as error:
        update.add_notes(f"units of the next OS are enabled after the boot: {error}")
        return {}
    missing = {entry: unit for entry, unit in missing.items() if source_of(unit, shipped) is None}
    warnings = missing_warnings(missing, {}, "on this host, in the config or in the next OS")
    update.add_notes(*(f"warning: {warning.path} {warning.message}" for warning in warnings))
    return shipped


def _dropins(brought: Brought) -> dict[str, str]:
    """Return the drop-ins of units that the config does not bring, each with its unit."""
    return {
        path: unit
        for path, unit in dropins_of(brought.config).items()
        if not brought.has(unit) and not brought.generator_of(unit)
    }
