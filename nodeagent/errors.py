"""The kinds of error that code above the adapters distinguishes.

An adapter translates every foreign error (D-Bus, errno, SQLite, HTTP) to one of these, once. ``reason`` is a stable
word (``nodeagent.reasons``). The message is for operators and never contains a secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nodeagent.reasons import Reason


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One finding in an input: ``path`` is like ``spec.config.storage.files[3].mode``, or a path on the host.

    A ``warning`` is worth a note and refuses nothing.
    """

    path: str
    message: str
    warning: bool = False


class AgentError(Exception):
    """The base of all expected errors. ``exit_code`` is the exit status of a command that fails with the error."""

    exit_code = 1
    default_reason: Reason = Reason.AGENT_FAILED

    def __init__(
        self, message: str, *, reason: Reason | None = None, hint: str = "", problems: Iterable[Problem] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.hint = hint
        self.problems = tuple(problems)


def full_text(error: AgentError, limit: int | None = None) -> str:
    """Return the message and at most ``limit`` problems."""
    # The message often contains the first problem already.
    lines = [f"{found.path}: {found.message}" if found.path else found.message for found in error.problems[:limit]]
    return "; ".join([error.message, *(line for line in lines if line not in error.message)])


class InvalidInput(AgentError):
    """The input cannot be read or breaks a rule. Nothing was changed, and a repetition gives the same result."""

    exit_code = 2
    default_reason = Reason.INVALID_INPUT


class Unreconcilable(AgentError):
    """The input is valid, but the change cannot be applied to a running host."""

    exit_code = 3
    default_reason = Reason.UNRECONCILABLE


class Refused(AgentError):
    """Another holder has the lease, a window is closed, or etcd would lose its quorum. Waiting may help."""

    exit_code = 4
    default_reason = Reason.REFUSED
    # What refuses, where the message differs each time.
    subject: str = ""


class Unreachable(AgentError):
    """The daemon, or a service that the agent needs, does not answer."""

    exit_code = 5
    default_reason = Reason.UNREACHABLE


class Retryable(AgentError):
    """A transient fault: the same call may succeed later. The executor bounds the number of attempts."""

    default_reason = Reason.TRY_AGAIN


class ServiceUnavailable(AgentError):
    """A service of this host could not be reached or did not answer, so the outcome of the call is unknown.

    It says nothing about what was requested: an update waits for the service, and draws no other conclusion.
    ``service`` is the name of the service for people.
    """

    default_reason = Reason.SERVICE_UNAVAILABLE
    service: str = ""

    def __init__(self, message: str, *, reason: Reason | None = None, service: str = "") -> None:
        super().__init__(message, reason=reason)
        self.service = service


class Terminal(AgentError):
    """A permanent fault of the host: no space, a read-only file system, a corrupt store."""

    default_reason = Reason.HOST_FAULT
