"""The one place where HTTP statuses of an API server, and faults on the way to it, become our kinds of error.

``detail`` is the ``Status`` object that came with the answer, for callers that must tell causes apart: a 429 of a
disruption budget from a 429 of an overloaded server. Messages repeat the server's words, which hold no secret of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodeagent.errors import AgentError, Refused, Retryable, Terminal, Unreachable

__all__ = [
    "AlreadyExists",
    "Conflict",
    "Forbidden",
    "Gone",
    "KubeFault",
    "NoAnswer",
    "NotFound",
    "Rejected",
    "ServerFault",
    "Throttled",
    "Unauthorized",
    "from_answer",
]


class KubeFault(AgentError):
    """What the kinds below share. ``status`` is 0 where no answer came."""

    status: int = 0
    detail: Mapping[str, Any] = {}
    retry_after: float | None = None  # seconds, where the server said

    @property
    def causes(self) -> Sequence[Mapping[str, Any]]:
        causes = (self.detail.get("details") or {}).get("causes") or ()
        return [cause for cause in causes if isinstance(cause, Mapping)]


class NoAnswer(KubeFault, Unreachable):
    """No connection, or no answer in time. What was asked may have been done all the same."""

    default_reason = "KubeUnreachable"


class ServerFault(KubeFault, Retryable):
    """A 5xx: etcd behind it does not answer, a webhook failed. What was asked may have been done all the same."""

    default_reason = "KubeServerFault"


class Throttled(KubeFault, Retryable):
    default_reason = "KubeThrottled"


class Unauthorized(KubeFault, Unreachable):
    """Our token or certificate is not accepted, also not after it was read again."""

    default_reason = "KubeUnauthorized"


class Forbidden(KubeFault, Refused):
    """The message names verb and resource that the role lacks, or the policy that said no."""

    default_reason = "KubeForbidden"


class NotFound(KubeFault, Terminal):
    default_reason = "KubeNotFound"


class Gone(KubeFault, Retryable):
    """The place in the list or the watch is too old: list again."""

    default_reason = "KubeExpired"


class Conflict(KubeFault, Retryable):
    """The object changed, or is another one, since it was read: read it again and think again."""

    default_reason = "KubeConflict"


class AlreadyExists(Conflict):
    default_reason = "KubeAlreadyExists"


class Rejected(KubeFault, Terminal):
    """Any other 4xx: the request itself is wrong, and stays so."""

    default_reason = "KubeRejected"


_KINDS: Mapping[int, type[KubeFault]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: ServerFault,
    409: Conflict,
    410: Gone,
    429: Throttled,
}


def from_answer(status: int, detail: Mapping[str, Any], what: str, retry_after: str = "") -> KubeFault:
    """``what`` was asked, as ``PATCH /path``; ``detail`` is the decoded body, {} if it was no object."""
    kind = _KINDS.get(status, ServerFault if status >= 500 else Rejected)
    if kind is Conflict and detail.get("reason") == "AlreadyExists":
        kind = AlreadyExists
    said = detail.get("message")
    error = kind(f"{what}: {said if isinstance(said, str) and said else f'status {status}'}")
    error.status, error.detail = status, detail
    if retry_after.isascii() and retry_after.isdigit():
        error.retry_after = float(retry_after)
    return error
