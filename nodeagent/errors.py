# SPDX-License-Identifier: Apache-2.0
"""The errors. An adapter translates every foreign error (D-Bus, errno, SQLite, HTTP) to one of these, once.

``reason`` is a stable word (``nodeagent.reasons``); the kind, and with it the exit status, come from it alone. The
class is for code that catches it: what the agent does about the error. ``kinds`` has the kinds of reasons that fit a
class, which a test checks for each place that makes an error. The message is for operators and never contains a secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from nodeagent.kinds import AnyReason, Kind
from nodeagent.reasons import Reason


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One finding in an input: ``path`` is like ``spec.config.storage.files[3].mode``, or a path on the host.

    A ``warning`` is worth a note and refuses nothing.
    """

    path: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something failed, was refused or waits. The message is for operators."""

    reason: AnyReason
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class AgentError(Exception):
    """The base of all expected errors.

    ``curable``: a reboot of the host may help. ``unit`` is the unit that failed, "" if it is about none.
    """

    kinds: ClassVar[frozenset[Kind]] = frozenset(Kind)
    default_reason: AnyReason = Reason.AGENT_FAILED
    curable: bool = False
    unit: str = ""

    def __init__(
        self, message: str, *, reason: AnyReason | None = None, hint: str = "", problems: Iterable[Problem] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.hint = hint
        self.problems = tuple(problems)

    @property
    def cause(self) -> Cause:
        return Cause(self.reason, self.message)

    @property
    def exit_code(self) -> int:
        """The exit status of a command that fails with the error."""
        return self.reason.kind.exit_code


def full_text(error: AgentError, limit: int | None = None) -> str:
    """Return the message and at most ``limit`` problems."""
    # The message often contains the first problem already.
    lines = [
        f"{problem.path}: {problem.message}" if problem.path else problem.message for problem in error.problems[:limit]
    ]
    return "; ".join([error.message, *(line for line in lines if line not in error.message)])


class InvalidInput(AgentError):
    """The input cannot be read or breaks a rule. Nothing was changed, and a repetition gives the same result."""

    kinds = frozenset({Kind.INPUT})
    default_reason = Reason.INVALID_INPUT


class Unreconcilable(AgentError):
    """The input is valid, but the change cannot be applied to a running host."""

    kinds = frozenset({Kind.UNRECONCILABLE})
    default_reason = Reason.UNRECONCILABLE


class Refused(AgentError):
    """Another holder has the lease, a window is closed, or etcd would lose its quorum. Waiting may help."""

    kinds = frozenset({Kind.REFUSED, Kind.REJECTED})
    default_reason = Reason.REFUSED
    # What refuses, where the message differs each time.
    subject: str = ""


class OutOfTurn(Refused):
    """It is the turn of other hosts. Not even a part of the config is applied before that of this one.

    What follows the first ": " of the message changes with each of those hosts, so only the status shows the changes.
    """

    @property
    def brief(self) -> str:
        return self.message.partition(": ")[0]


class SoftObstacle(Enum):
    """Why no soft reboot is possible, which starts the services again and no kernel."""

    # systemd, logind or libostree of this host does not know it.
    UNSUPPORTED = "unsupported"
    ANOTHER_SYSTEM = "another system"
    # The new OS has another kernel, or other files that only a starting kernel reads.
    KERNEL = "kernel"
    NOT_PREPARED = "not prepared"


class NoSoftReboot(Refused):
    """A soft reboot is not possible, so that a full one takes its place.

    ``obstacle`` is for the feature that chooses soft reboots, which gives it a reason; None: it has one.
    """

    def __init__(self, message: str, obstacle: SoftObstacle | None = None, *, reason: AnyReason | None = None) -> None:
        super().__init__(message, reason=reason)
        self.obstacle = obstacle


class Unreachable(AgentError):
    """The daemon, or a service that the agent needs, does not answer."""

    kinds = frozenset({Kind.UNREACHABLE})
    default_reason = Reason.UNREACHABLE


class Retryable(AgentError):
    """A transient fault: the same call may succeed later. The executor bounds the number of attempts."""

    kinds = frozenset({Kind.RETRY, Kind.FAULT})
    default_reason = Reason.TRY_AGAIN


class ServiceUnavailable(AgentError):
    """A service of this host could not be reached or did not answer, so the outcome of the call is unknown.

    It says nothing about what was requested: an update waits for the service, and draws no other conclusion.
    ``service`` is the name of the service for people.
    """

    kinds = frozenset({Kind.UNREACHABLE, Kind.RETRY})
    default_reason = Reason.SERVICE_UNAVAILABLE
    service: str = ""

    def __init__(self, message: str, *, reason: AnyReason | None = None, service: str = "") -> None:
        super().__init__(message, reason=reason)
        self.service = service


class Terminal(AgentError):
    """A permanent fault of the host: no space, a read-only file system, a corrupt store, an invalid kubeconfig."""

    kinds = frozenset({Kind.FAULT, Kind.INPUT})
    default_reason = Reason.HOST_FAULT


_CLASSES: dict[Kind, type[AgentError]] = {
    Kind.INPUT: InvalidInput,
    Kind.UNRECONCILABLE: Unreconcilable,
    Kind.REFUSED: Refused,
    Kind.REJECTED: Refused,
    Kind.UNREACHABLE: Unreachable,
    Kind.RETRY: Retryable,
    Kind.FAULT: Terminal,
}


def error_of(reason: AnyReason, message: str, *, hint: str = "", problems: Iterable[Problem] = ()) -> AgentError:
    """Return an error of the class that fits ``reason``."""
    return _CLASSES[reason.kind](message, reason=reason, hint=hint, problems=problems)
