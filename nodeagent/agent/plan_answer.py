# SPDX-License-Identifier: Apache-2.0
"""The answer to a request for a plan of this host: the plan with values, notes, the drift, and diffs on request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from nodeagent.core.config.file_tree import FileTreeEntry, expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.deployment import OsTarget, staged, unmet
from nodeagent.core.plan.entries import entries_by_path
from nodeagent.core.plan.os_changes import os_changes_to_dict
from nodeagent.core.plan.plan_json import plan_to_dict
from nodeagent.core.plan.plan_values import with_values
from nodeagent.core.plan.reboot_kind import ChosenKind, chosen_to_dict, may_fall_back
from nodeagent.core.plan.removal import LOOKS_LIKE_PART
from nodeagent.errors import AgentError, ServiceUnavailable
from nodeagent.features import plan_parts
from nodeagent.reasons import Reason
from nodeagent.report.plan_diff import diffs
from nodeagent.report.plan_groups import groups_to_dict
from nodeagent.update.history.lasting import Rejection, matching
from nodeagent.update.next.desired import DesiredSource
from nodeagent.update.next.unreadable import load_or_half_way
from nodeagent.update.run import Basis, Ports, Update
from nodeagent.update.stages.admission import operation_now, other_boots
from nodeagent.update.stages.fallback import kind_of_planned
from nodeagent.update.stages.os_deployments import HostDeployments
from nodeagent.update.steps.units_before import notes_along, units_along

REJECTED = Reason.CONFIG_REJECTED


async def plan_answer(
    ports: Ports,
    update: Update,
    *,
    diff: bool,
    private: bool,
    source: DesiredSource | None = None,
    rollback: bool = False,
) -> dict[str, Any]:
    """Return the ``nodeagent/plan/v1`` object of an update that has not begun.

    ``source`` says what is desired on this host; None: commands do. ``rollback``: it returns to the previous config.
    """
    assert update.basis is not None
    disk = await _replaced(ports, update.basis, update.new)
    # difflib needs seconds for large files that have little in common, so the loop must not wait for it.
    answer = await asyncio.to_thread(_plan, update, update.basis, disk, diff=diff, private=private)
    record = update.record
    drift = [
        {"entry": entry, "why": difference, "then": then} for entry, difference, then in _drift(update, update.basis)
    ]
    deployment = ""
    if update.target is not None and ports.os is not None:
        deployment = await _staged_for(ports.os, update.target)
        if deployment and (changes := await ports.os.inspect(expand(update.new))) is not None:
            answer["os"] = os_changes_to_dict(changes)
            for guard in ports.guards:
                answer |= await guard.staged_plan(update, ports.os)
        for guard in ports.guards:
            answer |= await guard.os_plan(update)
    for guard in ports.guards:
        answer |= await guard.files_plan(update)
    if may_fall_back(update.plan):
        answer["fallback"] = chosen_to_dict(await ports.reboots.for_fallback(ports, update.plan))
    if update.plan.reboot:
        answer["reboot"] = chosen_to_dict(await _kind_of_planned(ports, update, deployment))
    notes = [*record.notes, *await notes_along(ports, await units_along(ports, update))]
    notes += [*update.target_notes, *await _guard_notes(ports, update)]
    if (rejected := await _rejected(ports, update)) is not None:
        answer["rejected"] = {"since": rejected.since, "why": rejected.brief, "reason": rejected.reason or REJECTED}
        words = rejected.words(record.to_name)
        again = source.retry(record.to_name) if source is not None else "nodeagent apply"
        notes.insert(0, f"warning: {words}" if rollback else f"warning: {words}; {again} tries it again")
    # An operator rolls back to a config that the host had.
    if rollback:
        pass
    elif update.removal.needs_confirmation and source is None:
        part = f"{LOOKS_LIKE_PART}; " if update.removal.part else ""
        notes.append(f"warning: {part}nodeagent apply refuses it without --remove {update.removal.removed}")
    elif update.removal.needs_confirmation and source is not None and not source.complete(record.to_name):
        notes.append("warning: it waits, because it removes more than half of the entries at once")
    if other := await _boots_of_other(ports, update):
        waits = f"the update waits ({Reason.STAGED_BY_OTHER})"
        waits += "" if source is not None else ", unless it is applied with --boot-staged"
        notes.append(f"{other_boots(other)}: {waits}")
    answer["removal"] = {
        "removed": update.removal.removed,
        "total": update.removal.total,
        "part": update.removal.part,
    }
    answer |= {"by_cluster": source is not None, "in_cluster": ports.node is not None}
    units = [{"entry": problem.path, "message": problem.message} for problem in update.unit_warnings]
    answer |= {"notes": notes, "drifted": list(record.drifted), "drift": drift, "unit_warnings": units}
    return {**answer, "daemon": "running"}


async def _rejected(ports: Ports, update: Update) -> Rejection | None:
    """Return why the config of ``update`` is applied on request only, None if it is not rejected."""
    # If this text is the current config, another text of the same meaning failed.
    meaning = "" if update.digest == await ports.store.current() else update.record.to_meaning
    lasting = (await load_or_half_way(ports)).lasting
    if (rejection := matching(lasting.rejections, update.digest, meaning)) is not None:
        return rejection
    # A config with another name and the same meaning would undo the rollback as well.
    if update.digest == lasting.rolled_back_digest or (meaning and meaning == lasting.rolled_back_meaning):
        return Rejection(update.digest, meaning, why="rolled back by an operator", reason=Reason.ROLLED_BACK)
    return None


async def _boots_of_other(ports: Ports, update: Update) -> str:
    """Return what another program prepared for the planned reboot. An update of the OS stages its own deployment."""
    if ports.os is None or update.target is not None or not update.plan.reboot:
        return ""
    return await ports.os.boots_of_other(await ports.store.load())


async def _guard_notes(ports: Ports, update: Update) -> list[str]:
    """Return what the guards of the features add to a plan."""
    if not (update.writes or update.acts or update.target):
        return []
    notes: list[str] = []
    stops_node = (await operation_now(ports, update)).stops_node
    for guard in ports.guards:
        notes += await guard.planned(update, stops_node=stops_node)
    return notes


async def _kind_of_planned(ports: Ports, update: Update, deployment: str) -> ChosenKind:
    try:
        return await kind_of_planned(ports, update, deployment)
    # A plan is an answer to an operator, so it names the doubt instead of waiting for the service.
    except ServiceUnavailable as error:
        return ChosenKind(None, error.message, error.reason)


async def _staged_for(os: HostDeployments, target: OsTarget) -> str:
    """Return the id of the deployment that an earlier attempt has staged for the target, "" if there is none."""
    try:
        deployment = staged(await os.list())
    except AgentError:
        return ""
    return deployment.id if deployment is not None and not unmet(target, deployment) else ""


async def _replaced(ports: Ports, basis: Basis, new: MachineConfig) -> dict[str, FileTreeEntry]:
    """Return the entries of the host that the old config lacks, or that drifted. The survey has bounded their size."""
    entries: dict[str, FileTreeEntry] = {}
    owners = entries_by_path(basis.config)
    drifted = {path for path, entry in owners.items() if entry in basis.drift}
    for path in (expand(new).keys() - owners.keys()) | drifted:
        # An entry that cannot be read has no values to show. The pre-flight has judged it.
        with suppress(AgentError):
            if (entry := await ports.files.capture(path)) is not None:
                entries[path] = entry
    return entries


def _plan(
    update: Update, basis: Basis, disk: Mapping[str, FileTreeEntry], *, diff: bool, private: bool
) -> dict[str, Any]:
    plan = with_values(update.plan, basis.config, update.new, disk, basis.restored, private=private)
    answer = plan_to_dict(plan)
    answer |= plan_parts(plan)
    if groups := groups_to_dict(plan):
        answer["groups"] = groups
    if diff:
        texts = diffs(plan, basis.config, update.new, disk, basis.restored)
        for change in answer["changes"]:
            if text := texts.get(f"{change['domain']}:{change['key']}"):
                change["diff"] = text
    return answer


def _drift(update: Update, basis: Basis) -> Iterator[tuple[str, str, str]]:
    """Yield each entry that differs from the current config, how, and what becomes of it: kept, overwritten, wanted."""
    changed = {planned.change.id for planned in update.plan.changes}
    for entry, difference in sorted(basis.drift.items()):
        if entry in basis.wanted:
            yield entry, difference, "wanted"
        else:
            yield entry, difference, "overwritten" if entry in changed else "kept"
