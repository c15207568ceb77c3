# SPDX-License-Identifier: Apache-2.0
"""Maps HTTP statuses of an API server, and faults on the way to it, to the agent's kinds of error.

``detail`` is the ``Status`` object of the answer, for callers that distinguish causes, such as a 429 of a disruption
budget and a 429 of an overloaded server. Messages repeat the server's text, which contains no secret of the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.core.coordination.kube_objects import ApiStatus
from nodeagent.errors import AgentError, Refused, Retryable, Terminal, Unreachable
from nodeagent.reasons import Reason

NO_DETAIL: Final[ApiStatus] = {}


class KubeFault(AgentError):
    """Base of the kinds below. ``status`` is 0 without an answer."""

    status: int = 0
    detail: ApiStatus = NO_DETAIL
    # Seconds, if the server sent them.
    retry_after: float | None = None


class NoAnswer(KubeFault, Unreachable):
    """No connection, or no answer in time. The request may have been carried out."""

    default_reason = Reason.KUBE_UNREACHABLE


class ServerFault(KubeFault, Retryable):
    """A 5xx: etcd does not answer, a webhook failed. The request may have been carried out."""

    default_reason = Reason.KUBE_SERVER_FAULT


class Throttled(KubeFault, Retryable):
    default_reason = Reason.KUBE_THROTTLED


class Unauthorized(KubeFault, Unreachable):
    """The token or certificate is not accepted, not even after it was read again."""

    default_reason = Reason.KUBE_UNAUTHORIZED


class Forbidden(KubeFault, Refused):
    """The message names the missing permission, or the policy that refused the request."""

    default_reason = Reason.KUBE_FORBIDDEN


class NotFound(KubeFault, Terminal):
    default_reason = Reason.KUBE_NOT_FOUND


class Gone(KubeFault, Retryable):
    """The position in the list or the watch is too old: list again."""

    default_reason = Reason.KUBE_EXPIRED


class Conflict(KubeFault, Retryable):
    """The object was changed or replaced since it was read. The caller must read it again."""

    default_reason = Reason.KUBE_CONFLICT


class AlreadyExists(Conflict):
    default_reason = Reason.KUBE_ALREADY_EXISTS


class Rejected(KubeFault, Terminal):
    """Any other 4xx: the request is wrong, so it is not repeated."""

    default_reason = Reason.KUBE_REJECTED


_KINDS: Mapping[int, type[KubeFault]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    # The server gave up on a request that it may have begun.
    408: ServerFault,
    409: Conflict,
    410: Gone,
    429: Throttled,
}


def from_answer(status: int, detail: ApiStatus, what: str, retry_after: str = "") -> KubeFault:
    """``what`` is the request, as ``PATCH /path``; ``detail`` is {} if the body was no ``Status``."""
    kind = _KINDS.get(status, ServerFault if status >= 500 else Rejected)
    # Both are a 409, and only the reason distinguishes a lost race from a taken name.
    if kind is Conflict and detail.get("reason") == "AlreadyExists":
        kind = AlreadyExists
    message = detail.get("message")
    error = kind(f"{what}: {message or f'status {status}'}")
    error.status, error.detail = status, detail
    # The header may also be a date, which API servers do not send; it counts as none.
    if retry_after.isascii() and retry_after.isdigit():
        error.retry_after = float(retry_after)
    return error
