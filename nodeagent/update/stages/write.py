# SPDX-License-Identifier: Apache-2.0
"""Write the files, users and unit states of a config, and restore the previous ones.

The previous state is saved in one transaction before the first write. Each write is atomic and idempotent. After a kill
at any point, all of it is done again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

from nodeagent.core.config.file_tree import FileTreeEntry, expand
from nodeagent.core.config.paths import home_path
from nodeagent.core.plan.steps import (
    CreateUser,
    DisableUnit,
    EnableUnit,
    JoinGroup,
    LeaveGroup,
    LockUser,
    PresetUnit,
    RemovePath,
    RestoreUnit,
    RetireUser,
    SetPassword,
    WritePath,
    WriteStep,
)
from nodeagent.errors import AgentError, ServiceUnavailable, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.ports.store import Snapshot
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.stages.admission import check_still_held
from nodeagent.update.states import Apply, Phase, Transition
from nodeagent.update.steps.accounts import Accounts, key_of_account
from nodeagent.update.steps.originals import keep_originals
from nodeagent.update.steps.passwords import Passwords
from nodeagent.update.steps.paths import Paths
from nodeagent.update.steps.step import StepInProgress
from nodeagent.update.steps.unit_links import (
    KEY,
    UnitLinks,
    link_paths,
    links_before,
    plan_of,
    plan_update_links,
    restore_claims,
    snapshot_of,
)


async def do(run: Run) -> Transition:
    """Do all write steps in order. Raises the error of the adapter; the caller restores the previous state."""
    ports, update = run.ports, run.update
    tree = expand(update.new)
    snapshots = await _save_snapshots(ports, update, tree)
    repaired = _merge_repaired(update)
    # After the repair another OS is booted, whose default files differ.
    if not repaired:
        own_links = await links_before(ports, snapshots) if snapshots else {}
        await keep_originals(run, snapshots, own_links)
    # After the repair, the links are those of another deployment's /etc.
    plan = (None if repaired else plan_of(snapshots)) or await plan_update_links(ports, update, tree)
    saved = {snapshot.key for snapshot in snapshots}
    # The snapshots have up to MAX_KEPT bytes, and are in the store now.
    del snapshots
    # A path without a snapshot is not written, because it could not be reverted. After a repair of the merge of /etc no
    # snapshot is needed: a revert goes back to the old deployment, which has its own /etc.
    later = _written_later(ports, update)
    writes = [step for step in update.writes if (repaired or key_of(step) in saved) and key_of(step) not in later]
    new_paths = [step.path for step in writes if isinstance(step, WritePath)] + link_paths(plan)
    # The directories are recorded before they exist, so that a revert after a kill removes them.
    made = await ports.files.missing_dirs(new_paths)
    stay = await _staying(ports, update)
    await ports.store.add_made_dirs([path for path in made if path not in stay])
    made_dirs = await _made_dirs(ports, update)
    paths, links = Paths(ports, update, tree, made_dirs), UnitLinks(ports, plan, made_dirs)
    passwords, accounts = Passwords(ports, update), Accounts(ports, update)
    update.index = 0
    # An inhibitor delays a shutdown between two files. It cannot prevent a power cut.
    async with ports.power.inhibit(f"applying {update.record.to_name}"):
        for planned in writes:
            with StepInProgress(run, planned) as step:
                step.started()
                await check_still_held(run)
                match planned:
                    case WritePath() | RemovePath():
                        await paths.do(planned)
                    case SetPassword() | LockUser():
                        await passwords.do(planned)
                    case CreateUser() | RetireUser() | JoinGroup() | LeaveGroup():
                        await accounts.do(planned)
                    case EnableUnit() | DisableUnit() | PresetUnit() | RestoreUnit():
                        await links.do()
                    case _:
                        assert_never(planned)
                update.progressed()
    return Transition(Phase.ACTING)


async def undo(run: Run) -> None:
    """Restore the state before this update.

    Continues after an error, so that one path does not prevent the others. Raises ``Terminal`` (``RevertFailed``) with
    all errors at the end.
    """
    ports, update = run.ports, run.update
    later = _written_later(ports, update)
    remembered = await ports.store.remembered(update.record.update_id)
    snapshots = [snapshot for snapshot in remembered if snapshot.key not in later]
    paths = Paths(ports, update, expand(update.new), await _made_dirs(ports, update))
    failed: list[AgentError] = []
    await restore_claims(ports, snapshots)
    # The reverse order removes a file before the directory entry that replaced it is restored. The links have snapshots
    # of their own.
    for snapshot in [snapshot for snapshot in reversed(snapshots) if snapshot.key != KEY]:
        try:
            await _work_of(snapshot.key, paths).undo(snapshot)
        except ServiceUnavailable:
            # The order matters, so nothing else is restored before the service answers.
            raise
        except AgentError as error:
            failed.append(error)
        update.progressed()
    if failed:
        raise Terminal("; ".join(str(error) for error in failed), reason=Reason.REVERT_FAILED) from failed[0]


async def _made_dirs(ports: Ports, update: Update) -> Sequence[str]:
    """Return the directories that are removed with their last file: those of the config stay, even if empty."""
    # One may have been made for a file before an entry named it.
    stay = await _staying(ports, update)
    return [path for path in await ports.store.made_dirs() if path not in stay]


async def _staying(ports: Ports, update: Update) -> frozenset[str]:
    """Return the directories of the config, and the homes of its users, which stay with the accounts."""
    homes = [home_path(user.name, user.home) for user in update.new.users.values() if user.account is not None]
    return frozenset(await ports.files.resolved([*update.new.directories, *homes]))


def key_of(step: WriteStep) -> str:
    """Return the key of a step in the store. Steps about units share one, because their links are one state."""
    match step:
        case WritePath(path) | RemovePath(path):
            return f"path:{path}"
        case DisableUnit() | EnableUnit() | PresetUnit() | RestoreUnit():
            return KEY
        case SetPassword(user) | LockUser(user):
            return f"password:{user}"
        case _:
            return key_of_account(step)


def _work_of(key: str, paths: Paths) -> Paths | Passwords | Accounts:
    """Return what saves and restores the state behind a key of ``key_of``, except that of the links of units."""
    match key.partition(":")[0]:
        case "path":
            return paths
        case "password":
            return Passwords(paths.ports, paths.update)
        case "user" | "member":
            return Accounts(paths.ports, paths.update)
        case _:
            raise KeyError(key)


def _merge_repaired(update: Update) -> bool:
    return isinstance(update.record.leg, Apply) and update.record.leg.etc_merge_repaired


def _written_later(ports: Ports, update: Update) -> Collection[str]:
    """Return the keys of manifests of static pods that an action replaces: their write is the restart of the pod."""
    pods = update.static_pods if ports.static_pods is not None else ()
    return frozenset(f"path:{step.path}" for step in pods)


async def _save_snapshots(ports: Ports, update: Update, tree: Mapping[str, FileTreeEntry]) -> Sequence[Snapshot]:
    """Save the state before the update, once, and return it. Raises ``Refused`` (``RevertTooLarge``)."""
    operation = update.record.update_id
    remembered = await ports.store.remembered(operation)
    if remembered or not update.writes or _merge_repaired(update):
        # After a kill, a second snapshot would contain the new files. After a repair of the merge of /etc, the new
        # deployment is booted, but a revert goes back to the old one.
        return remembered
    plan = await plan_update_links(ports, update, tree)
    paths = Paths(ports, update, tree)
    keys = [key_of(step) for step in update.writes]
    # An alias may take the place of a unit file that leaves.
    keys += [f"path:{path}" for path in link_paths(plan)]
    snapshots: list[Snapshot] = []
    for key in dict.fromkeys(keys):
        if key == KEY:
            continue
        update.progressed()
        snapshot = await _work_of(key, paths).snapshot(key)
        if snapshot is not None:
            snapshots.append(snapshot)
    if KEY in keys:
        snapshots.append(await snapshot_of(ports, plan))
    # One transaction: either all snapshots exist or nothing was written yet.
    await ports.store.remember(operation, snapshots)
    return snapshots
