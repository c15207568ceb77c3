# SPDX-License-Identifier: Apache-2.0
"""Ports to this host: files, units, users, static pods, the bus of events and the clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Protocol

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.machineconfig import MachineConfig, UserEntry
from nodeagent.core.plan.change import KeyChange
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.enablement.unit_files import EnablementFacts
from nodeagent.core.plan.unit_abilities import UnitAbilities
from nodeagent.core.plan.unit_relations import Relations
from nodeagent.errors import AgentError, Problem
from nodeagent.update.ports.events import Event

# Bytes of replaced files that one update keeps for a revert, in the store and for a moment in memory. The service has 1
# GiB.
MAX_KEPT = 256 << 20


@dataclass(frozen=True, slots=True)
class Survey:
    """``obstacles``: each path at which nothing can be written, or would not stay, and why. ``kept``: bytes that a
    revert has to keep. ``new_tops``: directories of / that would be created, with the end of a message that names the
    existing one that was meant, if any."""

    obstacles: Mapping[str, str] = field(default_factory=dict)
    kept: int = 0
    new_tops: Mapping[str, str] = field(default_factory=dict)


class Clock(Protocol):
    def now(self) -> str:
        """Return the wall clock as RFC 3339 in UTC with milliseconds."""
        ...

    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set; only differences are meaningful."""
        ...


class Files(Protocol):
    """Paths of this host. Symlinks that other users can change are never followed."""

    # Numbers, because the name of an owner may be gone when the entry is restored.
    async def capture(self, path: str) -> FileTreeEntry | None:
        """Return the current entry with numeric owners, None if it is missing.

        Raises ``Terminal`` for anything but a file, a link or a directory.
        """
        ...

    async def missing_dirs(self, paths: Sequence[str]) -> Sequence[str]:
        """Return the directories that installing ``paths`` would create, outermost first."""
        ...

    async def install(self, path: str, node: FileTreeEntry) -> Sequence[str]:
        """Write ``node`` atomically and durably. Returns the new directories, outermost first.

        A directory that exists gets mode and owner, and keeps what is in it.
        """
        ...

    async def remove(self, path: str, made_dirs: Sequence[str], *, directory: bool = False) -> None:
        """Remove the path, if it exists, and then the empty directories of ``made_dirs`` above it.

        With ``directory`` it may be one, which stays if anything is in it.
        """
        ...

    async def resolved(self, paths: Sequence[str]) -> Sequence[str]:
        """Return these paths as ``missing_dirs`` names them, without those that cannot be followed."""
        ...

    async def survey(self, writes: Sequence[str], removes: Sequence[str], directories: Sequence[str] = ()) -> Survey:
        """Find the obstacles of ``writes`` after ``removes``. Reads no content and changes nothing.

        ``directories`` are those of the paths that are directories.
        """
        ...

    async def owner_problem(self, node: FileTreeEntry) -> str:
        """Return why the owner of an entry is none on this host, "" if it is one."""
        ...

    async def contested(self, path: str) -> str:
        """Describe the directory above ``path`` that users other than root can write, "" if there is none.

        Its owner can change it at any time, so a fault there is reported and never a verdict on a config.
        """
        ...

    async def sweep(self, paths: Sequence[str]) -> Sequence[Problem]:
        """Remove temporary files of a killed process beside ``paths``, and return the problems with the remaining ones.

        Never raises an ``AgentError``.
        """
        ...

    async def differs(self, path: str, node: FileTreeEntry | None) -> str:
        """Describe how the path differs, without content; "" if it does not."""
        ...


# Active states of units, as systemd names them (org.freedesktop.systemd1).
UP: Final = frozenset({"active", "reloading", "refreshing"})
DOWN: Final = frozenset({"inactive", "failed"})


@dataclass(frozen=True, slots=True)
class UnitState:
    """The state of a unit. ``load`` is not-found for an unknown unit; ``file`` is the output of ``is-enabled``."""

    name: str
    load: str
    active: str
    sub: str
    # Type of a service: simple, notify, oneshot, ...; empty for other units.
    type: str
    # Result of the last run: success, exit-code, timeout, ...
    result: str
    invocation_id: str
    restarts: int
    file: str
    # The condition that prevented the last start; "" if none.
    condition: str = ""
    # Sockets, timers and paths that start it on demand.
    triggered_by: tuple[str, ...] = ()
    # The name on the bus that starts a service on demand.
    bus_name: str = ""
    # How the main program of a service failed in the last run, as in ``exit status 203``; "" if another one failed.
    end: str = ""

    @property
    def how(self) -> str:
        """The result of the last run, and how its program ended, for a message."""
        return ", ".join(filter(None, (self.result, self.end)))


class Units(Protocol):
    """The manager of systemd. A job is done when its result arrives, not when the call returns."""

    async def state(self, unit: str) -> UnitState: ...

    async def abilities(self, unit: str) -> UnitAbilities:
        """Return the own name of a unit, and what systemd can do with it."""
        ...

    def outages(self) -> int:
        """Return how often the connection to systemd was lost. Units that use the bus may fail with it."""
        ...

    # Until then a unit may be inactive because its turn has not come.
    async def boot_finished(self) -> bool:
        """Return whether all start jobs of this boot have ended, with any result."""
        ...

    async def daemon_reload(self, deadline: float) -> None: ...

    async def reload(self, unit: str, deadline: float) -> None: ...

    async def restart(self, unit: str, deadline: float, *, since: str | None = None) -> str:
        """Restart a unit. Returns the condition that prevented the start, "" if the unit was started.

        ``since`` is the invocation ID before an attempt with an unknown result: then a pending job is waited for, and
        a unit that was restarted since then is not restarted again. Raises for a unit that has not started again.
        """
        ...

    # ``Requires=`` passes a restart on: where the kubelet requires CRI-O, a restart of both would start the kubelet
    # twice.
    async def relations(self, unit: str) -> Relations:
        """Return what systemd does to other units with a job of this unit, as far as it is direct."""
        ...

    async def start_jobs(self) -> Mapping[str, Sequence[str]]:
        """Return the units that are being started, each with those whose start waits for it."""
        ...

    async def start(self, unit: str, deadline: float) -> None:
        """Start a unit. Returns at once if it is active."""
        ...

    async def instances(self, template: str) -> Collection[str]:
        """Return the instances of a template that systemd has loaded."""
        ...

    async def stop(self, unit: str, deadline: float) -> None:
        """Stop a unit, or all instances of a template."""
        ...

    async def files(self) -> Collection[str]:
        """Return the names of all unit files of this host, including aliases and templates."""
        ...

    async def reset_failed(self, unit: str) -> None:
        """Forget that a unit, or an instance of a template, has failed. systemd lists one without a file until then."""
        ...


class UnitFiles(Protocol):
    """Unit files and the links below /etc/systemd/system that enable units."""

    # systemd follows Also= and Alias= and has no dry run, so the links are computed, and written as other paths are.
    async def facts(
        self, units: Collection[str], changes: Mapping[str, FileTreeEntry | None] | None = None
    ) -> EnablementFacts:
        """Return all links, and the files of ``units`` and of those that they name in Also=.

        ``changes`` are paths with the content that they get (None: they are removed), which may name more units. The
        files of the answer are those of the host, and the presets those after ``changes``.
        """
        ...

    async def shipped(self, deployment: Deployment, units: Collection[str]) -> Mapping[str, FileTreeEntry]:
        """Return the files of ``units`` below /usr of a deployment, which may be staged."""
        ...


class HealthChecks(Protocol):
    """The health checks that domains declare for units."""

    async def check(self, unit: str) -> str | None:
        """Return the problem of a unit, "" if it is healthy, None without a check. Takes a few seconds."""
        ...

    async def lasting(self, unit: str) -> bool:
        """Return whether the problem of a unit that runs stays until its next start."""
        ...

    # The job of a unit whose ExecReload= only sends a signal succeeds before the program has read anything (CRI-O).
    async def reload_problem(self, unit: str, since: str, keys: Sequence[KeyChange] = ()) -> str | None:
        """Return why the program of ``unit`` rejected its configuration at the reload after ``since`` (RFC 3339).

        ``keys`` are those that the reload changes, with their values before and after it.
        "" if it took it over, or if its job is the proof; None if that cannot be known.
        """
        ...

    async def values_problem(self, values: Mapping[str, str]) -> str:
        """Return which files of the kernel (``/proc/sys``) have another value than in ``values``, "" if none has."""
        ...

    async def kept_back(self, keys: Sequence[KeyChange]) -> Mapping[str, Decimal]:
        """Return what the files of this host keep back from pods if ``keys`` change that, see ``Domain.kept_back``."""
        ...


@dataclass(frozen=True, slots=True)
class HostAccount:
    """An account of this host. ``expired``: it was retired, or its creation was not finished.

    ``groups`` are those of which it is a member by name.
    """

    uid: int
    home: str
    expired: bool = False
    groups: frozenset[str] = frozenset()


class Users(Protocol):
    """Local users: accounts and passwords."""

    async def account(self, user: str) -> HostAccount | None: ...

    async def problem(self, user: UserEntry) -> str:
        """Return why the account of ``user`` cannot be created or managed on this host, "" if it can."""
        ...

    async def create(self, user: UserEntry) -> None:
        """Create the account. Of one that exists, nothing changes but that it works again after ``retire``.

        One whose creation was killed or failed is created again. Its home stays, unless it is empty.
        """
        ...

    async def reinstate(self, user: str) -> None:
        """Let an account work again after ``retire``. Does nothing if it is missing."""
        ...

    async def retire(self, user: str) -> None:
        """Let the account expire, so that no login works. Does nothing if it is missing."""
        ...

    async def set_member(self, user: str, group: str, *, member: bool) -> None: ...

    async def password_hash(self, user: str) -> str | None:
        """Return the hash in the shadow file, None if the user is missing."""
        ...

    async def set_password_hash(self, user: str, value: str) -> None: ...

    async def lock(self, user: str) -> None:
        """Lock the password of a user; SSH keys remain valid."""
        ...


class Validator(Protocol):
    """Programs of this host that check configs."""

    async def check(self, old: MachineConfig, new: MachineConfig) -> Sequence[Problem]:
        """Check changed entries with programs of this host (systemd-analyze, sshd, visudo). Changes nothing.

        The result has the warnings as well.
        """
        ...


class Reporter(Protocol):
    """The receiver of events."""

    def emit(self, event: Event) -> None: ...

    def bug(self, words: str, error: Exception) -> None:
        """Log ``words`` with the traceback of an unexpected exception."""

    def problem(self, topic: str, error: AgentError) -> None:
        """Report a problem that an admin has to solve while the agent continues. The same problem is reported once."""

    def solved(self, topic: str, message: str) -> None:
        """Report that the problem of ``topic`` is solved, if there was one."""


@dataclass(frozen=True, slots=True)
class StaticPodState:
    """``pod`` is namespace/name, "" if the manifest is missing or invalid, or there is no kubelet.

    ``uid`` identifies the instance: another one after each change of the manifest. ``problem`` is "" if it works.
    """

    pod: str
    uid: str = ""
    restarts: int = 0
    problem: str = ""
    etcd: bool = False


class StaticPods(Protocol):
    """Static pods, by the path of their manifest."""

    # While the manifest is away the kubelet runs no such pod, so a kill in that time must not be the end of it.
    async def recover(self) -> str:
        """Put back the manifest that a killed agent took away. Returns its path, "" if there is none."""
        ...

    # A new manifest that is renamed over the old one waits in the back-off of the kubelet for the pod of the same
    # name, 10 to 15 s. If the old pod has ended first, the new one starts at once.
    async def replace(self, path: str, node: FileTreeEntry | None, operation: str) -> None:
        """Replace the pod: take the manifest away, wait for the end of the pod, put ``node`` (None: nothing).

        Returns when the containers of the new pod have started. Doing it again is harmless, also for the way back of
        the same ``operation``. Raises ``Refused`` and
        ``Unreconcilable`` before anything is changed, and ``Terminal``.
        """
        ...

    async def has_member(self) -> bool:
        """Return whether a member of etcd answers on this host, unit or pod."""
        ...

    async def save_keyspace(self) -> None:
        """Save a snapshot of the member of etcd on this host, unit or pod. One that does not answer is left out."""
        ...

    async def listing(self) -> float:
        """Return the seconds between two full listings of the manifests by the kubelet, within bounds."""
        ...

    # The mirror pod is ready for seconds after the pod has ended, and the API server may need this very pod.
    async def state(self, path: str) -> StaticPodState:
        """Return the state of the pod as the host has it, and that of a member of etcd; no API server is queried."""
        ...
