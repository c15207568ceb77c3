"""Write the files, users and unit states of a config, and restore the previous ones.

The previous state is saved in one transaction before the first write. Each write is atomic and idempotent. After a kill
at any point, all of it is done again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile, SymbolicLink, expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.plan.enablement.link_plan import LinkPlan
from nodeagent.core.plan.enablement.presets import PRESETS
from nodeagent.core.plan.steps import (
    DisableUnit,
    EnableUnit,
    LockUser,
    PresetUnit,
    RemovePath,
    RestoreUnit,
    SetPassword,
    WritePath,
    WriteStep,
    decides_enablement,
)
from nodeagent.errors import AgentError, ServiceUnavailable, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.events import StepDone, StepStarted, Warned
from nodeagent.update.legs import Apply
from nodeagent.update.ports.host import MAX_KEPT
from nodeagent.update.ports.store import Snapshot
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.stages.admission import check_still_held
from nodeagent.update.stages.contested import left_alone
from nodeagent.update.stages.own_arguments import ended_arguments, original_arguments
from nodeagent.update.steps.next_os_units import next_os_units
from nodeagent.update.steps.unit_links import (
    KEY,
    link_paths,
    links_before,
    plan_links,
    plan_of,
    put_links,
    restore_claims,
    snapshot_of,
)


# The key of a step in the store. Steps about units share the key, because their links are one state.
def _key(step: WriteStep) -> str:
    match step:
        case WritePath(path) | RemovePath(path):
            return f"path:{path}"
        case DisableUnit() | EnableUnit() | PresetUnit() | RestoreUnit():
            return KEY
        case SetPassword(user) | LockUser(user):
            return f"password:{user}"


async def _snapshot(ports: Ports, key: str, leaving: Sequence[str]) -> Snapshot:
    """Return the present state of ``key``. ``leaving`` are the paths that this update removes."""
    kind, _, name = key.partition(":")
    match kind:
        case "path":
            try:
                return Snapshot(key, node=await ports.files.capture(name))
            except AgentError as error:
                # The directory disappears with its last file, so that a file of the same name can take its place.
                if error.reason != Reason.NOT_A_FILE or not any(path.startswith(f"{name}/") for path in leaving):
                    raise
                return Snapshot(key)
        case _:
            return Snapshot(key, text=await ports.users.password_hash(name) or "")


async def _save_snapshots(ports: Ports, update: Update) -> Sequence[Snapshot]:
    """Save the state before the update, once, and return it. Raises ``Terminal`` (``RevertTooLarge``)."""
    operation = update.record.update_id
    known = await ports.store.remembered(operation)
    repaired = isinstance(update.record.leg, Apply) and update.record.leg.etc_merge_repaired
    if known or not update.writes or repaired:
        # After a kill, a second snapshot would contain the new files. After a repair of the merge of /etc, the new
        # deployment is booted, but a revert goes back to the old one.
        return known
    links = await _plan_links(ports, update)
    keys = [key for key in dict.fromkeys(_key(step) for step in update.writes) if key != KEY]
    # An alias may take the place of a unit file that leaves.
    keys += [key for path in link_paths(links) if (key := f"path:{path}") not in keys]
    leaving = [step.path for step in update.writes if isinstance(step, RemovePath)]
    snapshots: list[Snapshot] = []
    kept = 0
    for key in keys:
        update.progressed()
        path = key.partition(":")[2]
        try:
            snapshot = await _snapshot(ports, key, leaving)
            kept += _size(snapshot)
            if kept > MAX_KEPT:
                kept -= _size(snapshot)
                raise Terminal(
                    f"no room to keep {path} for a revert beside {kept} bytes of other files",
                    reason=Reason.REVERT_TOO_LARGE,
                )
        except AgentError as error:
            if not key.startswith("path:") or not await left_alone(ports, update, path, error):
                raise
        else:
            snapshots.append(snapshot)
    if any(_key(step) == KEY for step in update.writes):
        snapshots.append(await snapshot_of(ports, links))
    # One transaction: either all snapshots exist or nothing was written yet.
    await ports.store.remember(operation, snapshots)
    return snapshots


async def _plan_links(ports: Ports, update: Update) -> LinkPlan:
    tree = expand(update.new)
    writes: dict[str, FileTreeEntry | None] = {}
    for step in update.writes:
        match step:
            case WritePath(path):
                writes[path] = tree[path]
            case RemovePath(path) if path.startswith(f"{UNIT_DIR}/") or path.rpartition("/")[0] in PRESETS:
                writes[path] = (await original_of(ports, path)).node
            case _:
                pass
    record = update.record
    new, left = record.newly_managed, record.drifted
    next_os = await next_os_units(ports, update)
    return await plan_links(ports, update.new, update.writes, writes, new=new, left=left, next_os=next_os)


def _size(snapshot: Snapshot) -> int:
    return len(snapshot.node.content) if isinstance(snapshot.node, RegularFile) else 0


async def _shipped(ports: Ports, snapshot: Snapshot) -> bool:
    """Return whether a path in /etc is as the OS ships it."""
    # No original is kept of such a path: another image may be booted when the path leaves the config, and its own
    # default is right then.
    kind, _, path = snapshot.key.partition(":")
    return kind == "path" and path.startswith("/etc/") and not await ports.files.differs(f"/usr{path}", snapshot.node)


async def original_of(ports: Ports, path: str) -> Snapshot:
    """Return the state that a path gets when it leaves the config: the one from before it was managed.

    Without a saved original, that is the default of the OS in /usr/etc, where an ostree host keeps its version of /etc.
    """
    key = f"path:{path}"
    if (known := await ports.store.original(key)) is not None:
        return known
    shipped = await ports.files.capture(f"/usr{path}") if path.startswith("/etc/") else None
    return Snapshot(key, node=shipped)


async def write(run: Run) -> None:
    """Do all write steps in order. Raises the error of the adapter; the caller restores the previous state."""
    ports, update = run.ports, run.update
    snapshots = await _save_snapshots(ports, update)
    repaired = isinstance(update.record.leg, Apply) and update.record.leg.etc_merge_repaired
    # After the repair another OS is booted, whose default files differ.
    if not repaired:
        newly_managed = frozenset(update.record.newly_managed)
        originals = []
        own = await links_before(ports, snapshots)
        for snapshot in [_original(s, own) for s in snapshots if s.key in newly_managed]:
            if not await _shipped(ports, snapshot):
                originals.append(snapshot)
            update.progressed()
        await ports.store.keep_originals([*originals, *await original_arguments(run)])
    kept = {snapshot.key for snapshot in snapshots}
    # After the repair, the links are those of another deployment's /etc.
    links = (None if repaired else plan_of(snapshots)) or await _plan_links(ports, update)
    # The snapshots have up to MAX_KEPT bytes, and are in the store now.
    del snapshots
    # A path without a snapshot is not written, because it could not be reverted. After a repair of the merge of /etc no
    # snapshot is needed: a revert goes back to the old deployment, which has its own /etc.
    later = _written_later(ports, update)
    writes = [step for step in update.writes if (repaired or _key(step) in kept) and _key(step) not in later]
    tree = expand(update.new)
    paths = [step.path for step in writes if isinstance(step, WritePath)]
    paths += link_paths(links)
    # The directories are recorded before they exist, so that a revert after a kill removes them.
    await ports.store.add_made_dirs(await ports.files.missing_dirs(paths))
    made = await ports.store.made_dirs()
    update.index, linked = 0, False
    # An inhibitor delays a shutdown between two files. It cannot prevent a power cut.
    async with ports.power.inhibit(f"applying {update.record.to_name}"):
        for step in writes:
            update.index += 1
            run.narrate(StepStarted, update.progress(step))
            await check_still_held(run)
            started = ports.clock.monotonic()
            match step:
                case WritePath(path):
                    await _unless_contested(ports, update, path, ports.files.install(path, tree[path]))
                case RemovePath(path):
                    original = await original_of(ports, path)
                    await _unless_contested(ports, update, path, _put(ports, original, made))
                case SetPassword(user):
                    # "!" is the hash of a locked password, for a user whose config has none.
                    await ports.users.set_password_hash(user, update.new.users[user].password_hash or "!")
                case LockUser(user):
                    await ports.users.lock(user)
                case EnableUnit() | DisableUnit() | PresetUnit() | RestoreUnit():
                    # The links of all units, with the first of these steps.
                    if not linked:
                        await put_links(ports, links, made)
                    linked = True
                case _:
                    assert_never(step)
            update.progressed()
            seconds = ports.clock.monotonic() - started
            run.narrate(StepDone, update.progress(step), seconds)


def _original(snapshot: Snapshot, own: Mapping[str, SymbolicLink | None]) -> Snapshot:
    """Return what a path gets back when it leaves the config. A link of a unit of the config (``own``) is no original:
    the unit file takes its place."""
    path = snapshot.key.partition(":")[2]
    return replace(snapshot, node=own[path]) if path in own and isinstance(snapshot.node, SymbolicLink) else snapshot


def _written_later(ports: Ports, update: Update) -> Collection[str]:
    """Return the keys of manifests of static pods that an action replaces: their write is the restart of the pod."""
    pods = update.static_pods if ports.static_pods is not None else ()
    return frozenset(f"path:{step.path}" for step in pods)


# Another owner may hold a path, for example a mount. Such a path is left alone and reported.
async def _unless_contested(ports: Ports, update: Update, path: str, work: Awaitable[object]) -> None:
    try:
        await work
    except AgentError as error:
        if not await left_alone(ports, update, path, error):
            raise


async def _put(ports: Ports, snapshot: Snapshot, made_dirs: Sequence[str]) -> None:
    """Restore the state of a snapshot. Directories of ``made_dirs`` are removed with their last file."""
    kind, _, name = snapshot.key.partition(":")
    match kind:
        case "path":
            if snapshot.node is None:
                await ports.files.remove(name, made_dirs)
            elif await ports.files.differs(name, snapshot.node):
                await ports.files.install(name, snapshot.node)
        case "password":
            # An account that had no password before stays locked: an empty hash would let every user in.
            if not snapshot.text:
                await ports.users.lock(name)
            elif await ports.users.password_hash(name) != snapshot.text:
                await ports.users.set_password_hash(name, snapshot.text)
        case _:
            # The plan of the links: each link has a snapshot of its own.
            pass


async def restore(ports: Ports, update: Update) -> None:
    """Restore the state before this update.

    Continues after an error, so that one path does not prevent the others. Raises ``Terminal`` (``RevertFailed``) with
    all errors at the end.
    """
    later = _written_later(ports, update)
    snapshots = [each for each in await ports.store.remembered(update.record.update_id) if each.key not in later]
    failed: list[AgentError] = []
    made = await ports.store.made_dirs()
    await restore_claims(ports, snapshots)
    # The reverse order removes a file before the directory entry that replaced it is restored.
    for snapshot in [each for each in reversed(snapshots) if each.key != KEY]:
        work = _put_back(ports, snapshot, made)
        kind, _, path = snapshot.key.partition(":")
        await _attempt(failed, _unless_contested(ports, update, path, work) if kind == "path" else work)
        update.progressed()
    if failed:
        raise Terminal("; ".join(str(error) for error in failed), reason=Reason.REVERT_FAILED) from failed[0]


async def compare_links(run: Run) -> list[str]:
    """Compare the links with those from before this update, at the end of its revert. Return those that differ.

    A program that runs during a revert may change a link that is already restored, so each is corrected once.
    """
    ports, update = run.ports, run.update
    snapshots = await ports.store.remembered(update.record.update_id)
    plan = plan_of(snapshots)
    keys = {f"path:{path}" for path in link_paths(plan)} if plan is not None else set()
    made = await ports.store.made_dirs()
    found = []
    for snapshot in [each for each in snapshots if each.key in keys]:
        path = snapshot.key.partition(":")[2]
        try:
            if not await ports.files.differs(path, snapshot.node):
                continue
            await _put_back(ports, snapshot, made)
            why = await ports.files.differs(path, snapshot.node)
        except AgentError as error:
            why = error.message
        if why:
            found.append(f"{path} is not as before the update: {why}")
            run.narrate(Warned, found[-1])
    return found


async def _put_back(ports: Ports, snapshot: Snapshot, made_dirs: Sequence[str]) -> None:
    try:
        await _put(ports, snapshot, made_dirs)
    except AgentError as error:
        # The path is a directory and was no file before. The agent never replaces a file by a directory, so another
        # program made it.
        if error.reason != Reason.NOT_A_FILE or snapshot.node is not None:
            raise


async def _attempt(failed: list[AgentError], work: Awaitable[None]) -> None:
    try:
        await work
    except ServiceUnavailable:
        # The order matters, so nothing else is restored before the service answers.
        raise
    except AgentError as error:
        failed.append(error)


def managed_keys(config: MachineConfig) -> set[str]:
    """Return the keys of what a config decides about: paths with an original to restore, and units."""
    units = {f"unit:{unit.name}" for unit in config.units.values() if decides_enablement(unit)}
    return {f"path:{path}" for path in expand(config)} | units


async def forget_originals(ports: Ports, update: Update) -> None:
    """Delete the originals that this update restored, so that they are not restored a second time."""
    if update.record.reverting:
        gone = list(update.record.newly_managed)
    else:
        gone = [_key(step) for step in update.writes if isinstance(step, RemovePath)]
    await ports.store.forget_originals([*gone, *ended_arguments(update)])
