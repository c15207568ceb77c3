"""The links that enable units, for the executor: planned from all entries once, before the first write.

Each link that changes is a path with a snapshot of its own, so a revert restores it as any other path. The plan is kept
beside the snapshots: after a kill it is carried out again, and never computed from a half-changed host.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from nodeagent.core.config.file_tree import FileTreeEntry, SymbolicLink
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.text import plain_json
from nodeagent.core.plan.enablement.install import installs, taken_aliases
from nodeagent.core.plan.enablement.link_plan import LinkClaims, LinkPlan, UnitSteps, link_plan
from nodeagent.core.plan.enablement.links import fulfils
from nodeagent.core.plan.enablement.presets import PRESETS
from nodeagent.core.plan.enablement.stored import claims_from_text, claims_to_text
from nodeagent.core.plan.steps import PresetUnit, UnitStep, WriteStep
from nodeagent.update.ports.store import Snapshot
from nodeagent.update.run import Ports

# The snapshot of the plan, and the claims in the store.
KEY: Final = "links"
NOTE: Final = "unit-links"
NO_FILES: Final[Mapping[str, FileTreeEntry]] = MappingProxyType({})


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


async def snapshot_of(ports: Ports, plan: LinkPlan) -> Snapshot:
    """Return the snapshot of a plan, with the claims from before it."""
    kept = {"changes": plan.changes, "claims": claims_to_text(plan.claims), "before": await ports.store.note(NOTE)}
    return Snapshot(KEY, text=json.dumps(kept))


def plan_of(snapshots: Sequence[Snapshot]) -> LinkPlan | None:
    """Return the plan that was kept with the snapshots."""
    kept = _kept(snapshots)
    return None if kept is None else LinkPlan(kept["changes"], claims_from_text(kept["claims"]))


def _kept(snapshots: Sequence[Snapshot]) -> dict[str, Any] | None:
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
    kept = _kept(snapshots)
    claims = await _claims(ports) if kept is None else claims_from_text(kept["before"])
    return {
        f"{UNIT_DIR}/{path}": SymbolicLink(claim.before) if claim.before is not None else None
        for path, claim in claims.items()
    }


async def restore_claims(ports: Ports, snapshots: Sequence[Snapshot]) -> None:
    if (kept := _kept(snapshots)) is not None:
        await ports.store.keep_note(NOTE, kept["before"])


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
    found: dict[str, Sequence[str] | None] = {}
    for name in enabled:
        wanted = next((install.links for install in installs(name, facts)), {})
        lacking = [path for path, target in wanted.items() if not fulfils(path, facts.links.get(path), target)]
        # Where the only link is an alias that cannot be made, systemd calls the unit disabled.
        found[name] = lacking if wanted or taken_aliases(name, facts) else None
    return found
