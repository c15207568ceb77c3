"""Writing a config to the disk, and taking it back.

What is about to be changed is remembered in one transaction before the first byte is written; every single write is
atomic and gives the same result when it is done twice. So a kill at any point is answered by doing it all again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import assert_never

from nodeagent.agent.update.admission import check_still_held
from nodeagent.agent.update.contested import left_alone
from nodeagent.agent.update.run import Ports, Update, narrate
from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.machineconfig import MachineConfig
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
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.legs import Apply
from nodeagent.core.update.ports.store import Snapshot
from nodeagent.core.update.survey import MAX_KEPT
from nodeagent.errors import AgentError, ServiceUnavailable, Terminal
from nodeagent.reasons import Reason

__all__ = ["forget_originals", "managed_keys", "restore", "write"]

# The states of systemctl is-enabled for a unit that starts at boot; units in other states are restored by disabling.
ENABLED_STATES = frozenset({"enabled", "enabled-runtime"})
NOT_A_FILE = Reason.NOT_A_FILE


def _key(step: WriteStep) -> str:
    match step:
        case WritePath(path) | RemovePath(path):
            return f"path:{path}"
        case DisableUnit(unit) | EnableUnit(unit) | PresetUnit(unit) | RestoreUnit(unit):
            return f"unit:{unit}"
        case SetPassword(user) | LockUser(user):
            return f"password:{user}"


async def _snapshot(ports: Ports, key: str, leaving: Sequence[str]) -> Snapshot:
    """``leaving`` are the paths that this update removes."""
    kind, _, name = key.partition(":")
    match kind:
        case "path":
            try:
                return Snapshot(key, node=await ports.files.capture(name))
            except AgentError as error:
                # A directory that goes with the last file in it, and makes room for one of its name.
                if error.reason != NOT_A_FILE or not any(path.startswith(f"{name}/") for path in leaving):
                    raise
                return Snapshot(key)
        case "unit":
            return Snapshot(key, text=(await ports.units.state(name)).file)
        case _:
            return Snapshot(key, text=await ports.users.password_hash(name) or "")


async def _remember(ports: Ports, update: Update) -> Sequence[Snapshot]:
    operation = update.record.update_id
    known = await ports.store.remembered(operation)
    repaired = isinstance(update.record.leg, Apply) and update.record.leg.etc_merge_repaired
    if known or not update.writes or repaired:
        # A second look would see what we wrote before we were killed, and the new deployment is not what we go back to.
        return known
    keys = list(dict.fromkeys(_key(step) for step in update.writes))
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
    await ports.store.remember(operation, snapshots)
    return snapshots


def _size(snapshot: Snapshot) -> int:
    return len(snapshot.node.content) if isinstance(snapshot.node, RegularFile) else 0


async def _shipped(ports: Ports, snapshot: Snapshot) -> bool:
    """It is a path in /etc as the OS ships it, which comes back as the OS ships it by then: another image may be
    booted."""
    kind, _, path = snapshot.key.partition(":")
    return kind == "path" and path.startswith("/etc/") and not await ports.files.differs(f"/usr{path}", snapshot.node)


async def _original(ports: Ports, path: str) -> Snapshot:
    """What comes back when a path leaves the config: what was there before we managed it. No original is kept of what
    was ours when we first looked, or is the OS's own; on an ostree host that has its version of /etc in /usr/etc."""
    key = f"path:{path}"
    if (known := await ports.store.original(key)) is not None:
        return known
    shipped = await ports.files.capture(f"/usr{path}") if path.startswith("/etc/") else None
    return Snapshot(key, node=shipped)


async def write(ports: Ports, update: Update) -> None:
    """All write steps, in order. Raises the adapter's error; the caller takes back what was written."""
    snapshots = await _remember(ports, update)
    repaired = isinstance(update.record.leg, Apply) and update.record.leg.etc_merge_repaired
    if not repaired:  # after that another OS is booted, which ships something else
        newly_managed = frozenset(update.record.newly_managed)
        originals = []
        for snapshot in [s for s in snapshots if s.key in newly_managed]:
            if not await _shipped(ports, snapshot):
                originals.append(snapshot)
            update.progressed()
        await ports.store.keep_originals(originals)
    kept = {snapshot.key for snapshot in snapshots}
    del snapshots  # up to MAX_KEPT bytes, which are in the store now
    # What could not be kept is left alone: nothing is written that could not be reverted. After a merge of /etc a
    # revert goes back to the old deployment, which has its own.
    writes = [step for step in update.writes if repaired or _key(step) in kept]
    tree = expand(update.new)
    paths = [step.path for step in writes if isinstance(step, WritePath)]
    await ports.store.add_made_dirs(await ports.files.missing_dirs(paths))
    made = await ports.store.made_dirs()
    update.index = 0
    async with ports.power.inhibit(f"applying {update.record.to_name}"):
        for step in writes:
            update.index += 1
            narrate(ports, update, EventKind.STEP_STARTED, step=step)
            await check_still_held(ports, update)
            started = ports.clock.monotonic()
            match step:
                case WritePath(path):
                    await _unless_contested(ports, update, path, ports.files.install(path, tree[path]))
                case RemovePath(path):
                    original = await _original(ports, path)
                    await _unless_contested(ports, update, path, _put(ports, original, made))
                case SetPassword(user):
                    await ports.users.set_password_hash(user, update.new.users[user].password_hash or "!")
                case LockUser(user):
                    await ports.users.lock(user)
                case EnableUnit(unit):
                    await ports.units.enable(unit)
                case DisableUnit(unit):
                    await ports.units.disable(unit)
                case PresetUnit(unit):
                    await ports.units.preset(unit)
                case RestoreUnit(unit):
                    # Without an original no config of ours ever decided about it.
                    if (before := await ports.store.original(f"unit:{unit}")) is not None:
                        await _put(ports, before, made)
                case _:
                    assert_never(step)
            update.progressed()
            narrate(ports, update, EventKind.STEP_DONE, step=step, seconds=ports.clock.monotonic() - started)


async def _unless_contested(ports: Ports, update: Update, path: str, work: Awaitable[object]) -> None:
    try:
        await work
    except AgentError as error:
        if not await left_alone(ports, update, path, error):
            raise


async def _put(ports: Ports, snapshot: Snapshot, made_dirs: Sequence[str]) -> None:
    """Make the host what the snapshot says. Directories of ``made_dirs`` go with the last file in them."""
    kind, _, name = snapshot.key.partition(":")
    match kind:
        case "path":
            if snapshot.node is None:
                await ports.files.remove(name, made_dirs)
            elif await ports.files.differs(name, snapshot.node):
                await ports.files.install(name, snapshot.node)
        case "unit":
            state = (await ports.units.state(name)).file
            if snapshot.text in ENABLED_STATES:
                if state not in ENABLED_STATES:
                    await ports.units.enable(name)
            elif state in ENABLED_STATES:
                await ports.units.disable(name)
        case _:
            # An account that had no password before stays locked: an empty hash would let anybody in.
            if not snapshot.text:
                await ports.users.lock(name)
            elif await ports.users.password_hash(name) != snapshot.text:
                await ports.users.set_password_hash(name, snapshot.text)


async def restore(ports: Ports, update: Update) -> None:
    """Everything as it was before this update. Goes on after an error, so that one bad path does not keep the rest;
    raises ``Terminal`` with all errors at the end.
    """
    snapshots = list(await ports.store.remembered(update.record.update_id))
    # Units last: enabling needs the old unit file with its [Install] section on the disk again. But links that the
    # new file asked for are named by the new file, so they go while it is still there.
    failed: list[AgentError] = []
    made = await ports.store.made_dirs()
    units = [s for s in snapshots if s.key.startswith("unit:")]
    others = [s for s in reversed(snapshots) if not s.key.startswith("unit:")]
    for unit in units:
        await _attempt(failed, _disable_if_enabled(ports, unit.key.partition(":")[2]))
        update.progressed()
    for snapshot in [*others, *units]:
        work = _put_back(ports, snapshot, made)
        kind, _, path = snapshot.key.partition(":")
        await _attempt(failed, _unless_contested(ports, update, path, work) if kind == "path" else work)
        update.progressed()
    if failed:
        raise Terminal("; ".join(str(error) for error in failed), reason=Reason.REVERT_FAILED) from failed[0]


async def _put_back(ports: Ports, snapshot: Snapshot, made_dirs: Sequence[str]) -> None:
    try:
        await _put(ports, snapshot, made_dirs)
    except AgentError as error:
        # A directory where no file was before: we never make one in the place of a file, so it is not ours.
        if error.reason != NOT_A_FILE or snapshot.node is not None:
            raise


async def _attempt(failed: list[AgentError], work: Awaitable[None]) -> None:
    try:
        await work
    except ServiceUnavailable:
        raise  # the order matters, so nothing more is restored before the service answers
    except AgentError as error:
        failed.append(error)


async def _disable_if_enabled(ports: Ports, unit: str) -> None:
    if (await ports.units.state(unit)).file in ENABLED_STATES:
        await ports.units.disable(unit)


def managed_keys(config: MachineConfig) -> set[str]:
    """Snapshot keys that have an original to come back to."""
    units = {f"unit:{unit.name}" for unit in config.units.values() if decides_enablement(unit)}
    return {f"path:{path}" for path in expand(config)} | units


async def forget_originals(ports: Ports, update: Update) -> None:
    """Originals that were put back are of no more use, and must not come back a second time."""
    if update.record.reverting:
        gone = list(update.record.newly_managed)
    else:
        gone = [_key(step) for step in update.writes if isinstance(step, RemovePath | RestoreUnit)]
    await ports.store.forget_originals(gone)
