"""What the executor needs from the world, as Protocols. Adapters in ``host`` and ``kube`` fulfil them.

All methods raise only ``AgentError`` kinds. ``Terminal`` means that trying again is pointless; ``Retryable`` that it
is not; ``ServiceUnavailable`` that a service of this host gave no answer at all.
Every method that waits for another program takes a deadline in seconds or has a bounded one of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.machineconfig import ConfigSource, MachineConfig
from nodeagent.core.plan.deployment import Deployment, OsTarget, StageProgress
from nodeagent.core.update.apply_request import ApplyRequest
from nodeagent.core.update.events import Event
from nodeagent.core.update.fence_view import FenceEvent
from nodeagent.core.update.record import Record
from nodeagent.core.update.survey import Survey
from nodeagent.errors import Problem

__all__ = [
    "Clock",
    "Confirm",
    "Deployments",
    "EtcdQuorum",
    "Fence",
    "Files",
    "Gates",
    "HealthChecks",
    "HistoryEntry",
    "Holder",
    "Inhibitor",
    "Lease",
    "NodeDrainer",
    "Power",
    "Reporter",
    "Slots",
    "Snapshot",
    "Store",
    "Swept",
    "UnitState",
    "Units",
    "Users",
    "Validator",
]


class Clock(Protocol):
    def now(self) -> str:
        """Wall clock as RFC 3339 in UTC with milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that is never set; only differences mean something."""
        ...


@dataclass(frozen=True, slots=True)
class Swept:
    """``removed`` are temporary files that are gone; ``left`` is what could not be removed or read, and why."""

    removed: Sequence[str] = ()
    left: Sequence[Problem] = ()


class Files(Protocol):
    """Paths of this host. Never follows a symlink below the root into another place."""

    async def capture(self, path: str) -> FileTreeEntry | None:
        """What is there now, with numeric owners; None if nothing is. Anything but a file or link is ``Terminal``."""
        ...

    async def missing_dirs(self, paths: Sequence[str]) -> Sequence[str]:
        """The directories that installing ``paths`` would have to create, outermost first."""
        ...

    async def install(self, path: str, node: FileTreeEntry) -> Sequence[str]:
        """Puts ``node`` there atomically and durably. Returns the directories it had to create, outermost first."""
        ...

    async def remove(self, path: str, made_dirs: Sequence[str]) -> None:
        """Removes the path, if it is there, and then those of ``made_dirs`` above it that are empty."""
        ...

    async def survey(self, writes: Sequence[str], removes: Sequence[str]) -> Survey:
        """What is in the way of ``writes`` once ``removes`` are gone. Reads no content and changes nothing."""
        ...

    async def contested(self, path: str) -> str:
        """The directory on the way to ``path`` that others than root can write, and whose it is; "" without one.

        Its owner can change what is there at any time, so a fault there is reported and never a verdict on a config.
        """
        ...

    async def sweep(self, paths: Sequence[str]) -> Swept:
        """Removes what a killed process left half-written beside ``paths``. Never raises an ``AgentError``."""
        ...

    async def differs(self, path: str, node: FileTreeEntry | None) -> str:
        """ "" if the path is exactly that, else what is wrong, in words and without content."""
        ...


@dataclass(frozen=True, slots=True)
class UnitState:
    """``load`` is not-found for a unit systemd does not know; ``file`` is what ``is-enabled`` prints, "" if none."""

    name: str
    load: str
    active: str
    sub: str
    type: str  # of a service: simple, notify, oneshot, ...; "" for other units
    result: str  # of the last run: success, exit-code, timeout, ...
    invocation_id: str
    restarts: int
    file: str
    remain_after_exit: bool = False
    condition: str = ""  # the start condition that was not met when systemd last tried to start it; "" if none
    triggered_by: tuple[str, ...] = ()  # sockets, timers and paths that start it when it is needed


class Units(Protocol):
    """systemd's manager. Jobs are done when their result says so, not when the call returns."""

    async def state(self, unit: str) -> UnitState: ...

    def outages(self) -> int:
        """How often the connection to systemd was lost so far. Units that use the bus may go down with it."""
        ...

    async def boot_finished(self) -> bool:
        """Whether everything that belongs to this boot was started, whatever came of it."""
        ...

    async def daemon_reload(self, deadline: float) -> None: ...

    async def reload(self, unit: str, deadline: float) -> None: ...

    async def restart(self, unit: str, deadline: float, *, since: str | None = None) -> str:
        """With ``since``, the invocation ID from before an attempt whose result is not known: waits for a job that is
        pending, and does nothing if the unit was restarted since then.

        Returns the start condition that is not met: systemd then starts nothing, and the job is done. "" if the unit
        was started."""
        ...

    async def stop(self, unit: str, deadline: float) -> None:
        """Of a template, its instances."""
        ...

    async def files(self) -> Collection[str]:
        """The names of all unit files of this host, aliases and templates included."""
        ...

    async def enable(self, unit: str) -> None: ...

    async def disable(self, unit: str) -> None: ...

    async def preset(self, unit: str) -> None: ...


class HealthChecks(Protocol):
    """What domains know about a unit beyond what systemd says of it."""

    async def check(self, unit: str) -> str | None:
        """ "" if it is well, else what is wrong; None if there is no check for it. Bounded by a few seconds."""
        ...


class Users(Protocol):
    async def password_hash(self, user: str) -> str | None:
        """The hash in the shadow file; None if there is no such user."""
        ...

    async def set_password_hash(self, user: str, value: str) -> None: ...

    async def lock(self, user: str) -> None:
        """No password lets this user in any more; keys and the rest stay."""
        ...


@dataclass(frozen=True, slots=True)
class Inhibitor:
    who: str
    why: str
    process: str  # name and pid, as far as they can be found out


Confirm = Callable[[], Awaitable[None]]


class Power(Protocol):
    """logind, as far as going down goes."""

    def boot_id(self) -> str:
        """The identity of this boot (``core.boot``): another one after a reboot, soft ones included."""
        ...

    async def blockers(self) -> Sequence[Inhibitor]:
        """Others' inhibitors in ``block`` mode against a shutdown; ours is not among them."""
        ...

    def inhibit(self, why: str) -> AbstractAsyncContextManager[None]:
        """Keep other programs from shutting this host down. Without logind it only warns."""
        ...

    async def reboot(
        self, why: str, *, warn: float, force: bool, confirm: Confirm | None = None, direct: bool = False
    ) -> None:
        """Warns logged-in users, gives them ``warn`` seconds if there are any, awaits ``confirm`` and calls logind.

        Returns when the reboot was accepted. ``force`` overrides blockers. What ``confirm`` raises cancels the reboot
        and the warning of it, as cancelling the call does. ``direct`` starts systemd's target instead, for a logind
        that does not answer; then no user is warned.
        """
        ...

    async def power_off(
        self, why: str, *, warn: float, force: bool, confirm: Confirm | None = None, direct: bool = False
    ) -> None:
        """As ``reboot``; the host stays off until it is switched on."""
        ...


class Deployments(Protocol):
    """The OS deployments of this host, and the daemon that makes them. None on a host that is not image-based."""

    async def list(self) -> Sequence[Deployment]:
        """In boot order, read again: the first is what boots next (a staged one only if it is not locked then)."""
        ...

    async def check_stageable(self, target: OsTarget) -> None:
        """Before staging, and cheap: ``Refused`` if another driver updates this host (``OtherDriver``) or there is too
        little room (``NoSpace``, ``BootFull``); ``Unreconcilable`` (``BootcHost``, ``NoDeployments``) if we cannot."""
        ...

    async def stage(
        self, target: OsTarget, *, credentials: bytes | None, replace: str, tell: Callable[[StageProgress], None]
    ) -> Deployment:
        """Leaves a staged and locked deployment that has all of ``target``, and returns it. Returns at once if there
        is one. Cancelling it cancels the transaction.

        ``credentials`` is the text of a pull secret, None for that of the host. ``replace`` is the id of a deployment
        that is ours; any other one that boots next is ``Refused`` (``StagedByOther``), never overwritten.

        Raises ``Retryable`` (``RegistryUnreachable``, ``TransactionStuck``, ...), ``Terminal`` (``ImageNotFound``,
        ``Unauthorized``, ``SignatureInvalid``, ``NoSpace``, ``StageIncomplete``) and ``Refused`` (``TransactionBusy``:
        a transaction of another program, for longer than we wait).
        """
        ...

    async def unlock(self, deployment: str) -> None:
        """The staged deployment with this id will be finalized at the next shutdown, and systemd is ready to do it.
        Does nothing if it is unlocked. ``Refused`` (``StagedLost``) if another one, or none, is staged."""
        ...

    async def discard(self) -> None:
        """Removes what is staged or pending. The booted and the rollback deployment stay."""
        ...

    async def rollback(self) -> str:
        """The deployment that was booted before the present one boots next, unattended. The id of the one that does: a
        new one of the same tree where the boot loader would ask for a password. ``Terminal`` if there is none
        (``NoRollback``), or it cannot be made (``RollbackAsksPassword``). Does nothing if the first in boot order is
        neither booted nor staged."""
        ...

    async def unmerged_soft_reboot(self) -> str:
        """Id of a locked deployment that is prepared for a soft reboot, which would start it unmerged; "" if
        there is none. Cheap."""
        ...

    async def reset_soft_reboot(self) -> None:
        """Clears that preparation. ``Refused`` (``LockedSoftReboot``) if it cannot be cleared."""
        ...

    async def finalize_failure(self) -> str:
        """What went wrong when the last shutdown finalized a deployment, "" if nothing did."""
        ...


class Fence(Protocol):
    """Keeps what is staged from hurting others on the same disk."""

    def around(self, tell: Callable[[FenceEvent], None]) -> AbstractAsyncContextManager[None]:
        """Up inside, gone afterwards, whatever ends it. Raises nothing of its own: without a fence the block runs
        all the same."""
        ...


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the right to disrupt this node. Times are RFC 3339; ``expires`` is "" where nothing expires."""

    name: str
    operation: str
    reason: str
    since: str
    expires: str = ""


class Lease(Protocol):
    """The exclusive right to disrupt this node. Re-entrant for the same holder and operation."""

    backend: str

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        """Raises ``Refused`` with reason ``LeaseHeld`` and the holder in the message if another operation has it."""
        ...

    async def check(self, operation: str, *, need: float = 0.0, offline: bool = False) -> None:
        """Before anything that cannot be undone. Raises ``Refused`` with reason ``LeaseLost``; where others are asked,
        also ``LeaseGivenBack`` (the former holder deleted ours), ``LeaseExpired``, and what not reaching them raises.
        ``need`` is the longest that the step takes, in seconds. With ``offline``, the time that is left is enough
        without an answer."""
        ...

    async def before_reboot(self, operation: str, cover: float) -> None:
        """What is held lasts ``cover`` seconds from now, also while this host is down. Raises what ``check`` raises."""
        ...

    async def extend(self, operation: str, seconds: float | None) -> None:
        """What is held for this operation lasts for so long from now, also while this host is off; None: until it is
        released. Raises what ``check`` raises."""
        ...

    async def release(self, operation: str) -> None:
        """Does nothing if it is not ours."""
        ...

    async def holder(self) -> Holder | None: ...


class NodeDrainer(Protocol):
    """The node as the cluster sees it. None on a host without a cluster."""

    async def drain(self, operation: str, deadline: float) -> None: ...

    async def uncordon(self, operation: str) -> None:
        """Only if the cordon is ours."""
        ...

    async def advice(self) -> str:
        """What an admin has to do with a node that stays cordoned before it can get another config; "" for nothing.
        Raises nothing."""
        ...


class Slots(Protocol):
    """One of a number of slots of the fleet. Re-entrant; does not expire: a host that failed in the middle keeps it."""

    async def acquire(self, holder: str, operation: str, reason: str) -> object:
        """Raises ``Refused`` with reason ``SlotHeld`` if there is none."""
        ...

    async def check(self, operation: str) -> None:
        """Raises ``Refused`` with reason ``SlotLost`` if it was freed."""
        ...

    async def release(self, operation: str) -> None:
        """Does nothing if there is none of ours."""
        ...


class Gates(Protocol):
    """Who works on this node without a lease."""

    async def check(self) -> None:
        """Raises ``Refused`` with who and what."""
        ...

    async def hold_machine(self) -> None:
        """The machine below this node is not deleted before ``free_machine``. Raises ``Refused`` (``NodeLeaving``)."""
        ...

    async def free_machine(self) -> None: ...


class EtcdQuorum(Protocol):
    """The quorum of the etcd cluster that has a member on this host."""

    async def check(self) -> None:
        """Raises ``Refused`` if the cluster would lose its quorum without this host. Without a member it passes."""
        ...

    async def move_leader(self) -> None:
        """``check``, and the member on this host is not the leader when it returns."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Something as it was before we changed it. ``key`` is ``path:/etc/x``, ``unit:x.service`` or ``password:core``;
    ``node`` is for paths (None: nothing was there), ``text`` for the others."""

    key: str
    node: FileTreeEntry | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    update_id: str
    from_name: str
    to_name: str
    started: str
    finished: str
    outcome: str  # a value of ``core.outcome.UpdateOutcome``
    disruption: str  # none, reload, restart, drain, reboot: as planned
    reboots: int
    reboot_avoided: bool
    seconds: float
    reason: str = ""
    message: str = ""
    fallback: bool = False  # a reboot that the plan had not, because an action failed
    to_digest: str = ""  # of the config that the update was to; "" in entries of older agents
    successor: str = ""  # of a superseded one: the name of the config that took its place
    etcd_disk: Mapping[str, Any] = field(default_factory=dict)  # see core.etcd.disk_latency; {} without a fence


class Store(Protocol):
    """The one database. Everything is durable when the call returns."""

    async def load(self) -> Record: ...

    async def save(self, record: Record) -> None: ...

    async def request(self) -> ApplyRequest | None:
        """What an operator asked for and what has not begun yet."""
        ...

    async def keep_request(self, request: ApplyRequest) -> None:
        """Instead of the one before."""
        ...

    async def drop_request(self, digest: str) -> None:
        """If it is for that config."""
        ...

    async def begin(self, record: Record) -> None:
        """In one transaction: the record of an update, and the request for that config is dropped."""
        ...

    async def set_record_aside(self, reason: str, message: str) -> Record:
        """Instead of a record that ``load`` cannot give: keeps it as a note, and returns a degraded one."""
        ...

    async def put_config(self, source: ConfigSource) -> None: ...

    async def get_config(self, digest: str) -> ConfigSource: ...

    async def current(self) -> str:
        """Digest of the current config, "" if there never was one."""
        ...

    async def previous(self) -> str:
        """Digest of the config that was current before; "" if there was only one. Kept as long as it is the one."""
        ...

    async def remember(self, update_id: str, snapshots: Sequence[Snapshot]) -> None:
        """Keeps what is not kept yet for this update. What was remembered first wins: a second look, after a crash,
        would see our own writes."""
        ...

    async def remembered(self, update_id: str) -> Sequence[Snapshot]:
        """In the order they were remembered."""
        ...

    async def keep_originals(self, snapshots: Sequence[Snapshot]) -> None:
        """The state before we first managed these keys, for the day when they leave the config. The first one wins."""
        ...

    async def original(self, key: str) -> Snapshot | None: ...

    async def forget_originals(self, keys: Sequence[str]) -> None: ...

    async def made_dirs(self) -> Sequence[str]: ...

    async def add_made_dirs(self, paths: Sequence[str]) -> None: ...

    async def promote(self, record: Record, current: str, entry: HistoryEntry) -> None:
        """In one transaction: the new record, the current config, the history, and the snapshots are dropped."""
        ...

    async def close_update(self, record: Record, entry: HistoryEntry) -> None:
        """Like ``promote`` for an update that did not end well: the current config stays what it was."""
        ...

    async def history(self, limit: int) -> Sequence[HistoryEntry]: ...


class Validator(Protocol):
    async def check(self, old: MachineConfig, new: MachineConfig) -> Sequence[Problem]:
        """Checks of changed entries that need this host (systemd-analyze, sshd, visudo). Touches nothing."""
        ...


class Reporter(Protocol):
    def emit(self, event: Event) -> None: ...
