# SPDX-License-Identifier: Apache-2.0
"""Requests for a reboot as data, and their events: which of two holds, when one is answered, and which may follow.

A request has the boot in which it was made. Any later boot of the kernel answers it, whatever caused it: so each has
one reboot at most, wherever the agent is killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from nodeagent import typed
from nodeagent.core.boot import kernel_boot
from nodeagent.errors import InvalidInput, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import RequestedReboot
from nodeagent.update.ports.events import Event

# The name of the requests in the store.
NOTE: Final = "reboot_on_request"

# Characters of a reason, which is in every status and in an annotation.
MAX_TEXT: Final = 500


class RequestSource(StrEnum):
    OPERATOR = "operator"
    # The file of the setting.
    FILE = "file"
    # /run/reboot-required, where the settings obey it.
    REQUIRED = "reboot-required"
    # The annotation of the Node.
    NODE = "node"


@dataclass(frozen=True, slots=True)
class RebootRequest:
    """``since`` is RFC 3339, and ``boot_id`` the identity of the boot in which it was made.

    ``value`` is the text of the annotation, "" for another source. The others as in ``RequestedReboot``.
    """

    id: str
    source: RequestSource
    requester: str
    since: str
    boot_id: str
    purpose: str = ""
    at_once: bool = False
    boot_staged: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    value: str = ""

    @property
    def reboot(self) -> RequestedReboot:
        return RequestedReboot(self.id, self.requester, self.purpose, self.at_once, self.boot_staged, self.options)

    @property
    def words(self) -> str:
        return self.reboot.words

    def is_answered(self, boot_id: str) -> bool:
        """Return whether a kernel has started since it was made."""
        return kernel_boot(self.boot_id) != kernel_boot(boot_id)

    @property
    def urgency(self) -> int:
        """A delay of an operator is less urgent than the next time at which an update may begin."""
        return 2 if self.at_once else 0 if self.options else 1


@dataclass(frozen=True, slots=True)
class RebootRequestChanged(Event):
    """``waits`` is the cause of a wait, as "REASON: message". Without a ``message`` nothing happened that an operator
    notices."""

    request: RebootRequest | None
    waits: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class RebootRequirement:
    """/run/reboot-required. ``packages`` are those of which it is known that they require the reboot."""

    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RebootRequiredChanged(Event):
    """A program of the host requires a reboot, or None does any more."""

    requirement: RebootRequirement | None


@dataclass(frozen=True, slots=True)
class Noted:
    """What outlives the process. ``pending`` is None without a request.

    ``ended_boot`` is the boot in which a request ended without a reboot, so that what the host requires is not obeyed
    again before the next one. ``by_file`` is when the last request was made that a file made and a boot answered.
    ``answered`` is the value of the annotation that was taken last.
    """

    pending: RebootRequest | None = None
    ended_boot: str = ""
    by_file: str = ""
    answered: str = ""


def check_text(text: str) -> str:
    """Return the reason of a request without blanks around it. Raise ``InvalidInput`` (``BadOption``)."""
    text = text.strip()
    if len(text) > MAX_TEXT or not text.isprintable():
        message = f"the reason must be one line of {MAX_TEXT} characters at most"
        raise InvalidInput(message, reason=Reason.BAD_OPTION)
    return text


def holds(pending: RebootRequest | None, new: RebootRequest) -> RebootRequest:
    """Return which of two requests holds. One of an operator replaces the previous one; any other only a later one."""
    if pending is None or new.source is RequestSource.OPERATOR or new.urgency > pending.urgency:
        return new
    return pending


def after_boot(noted: Noted, boot_id: str) -> Noted:
    """Return what is noted after the pending request was answered; the same where it was not."""
    pending = noted.pending
    if pending is None or not pending.is_answered(boot_id):
        return noted
    by_file = pending.since if pending.source in (RequestSource.FILE, RequestSource.REQUIRED) else noted.by_file
    return replace(noted, pending=None, by_file=by_file)


def may_follow(noted: Noted, now: str, pause: float) -> bool:
    """Return whether a file may make a request at ``now``. A file that each boot makes again is no loop of reboots."""
    if not noted.by_file:
        return True
    # A wall clock that begins again with each boot leaves the two close together as well.
    passed = (datetime.fromisoformat(now) - datetime.fromisoformat(noted.by_file)).total_seconds()
    return abs(passed) >= pause


def to_text(noted: Noted) -> str:
    """Return what is noted as text for the store."""
    return msgspec.json.encode(noted, order="sorted").decode()


def from_text(text: str) -> Noted:
    """Return what ``to_text`` wrote. Raises ``Terminal`` (``StoreCorrupt``)."""
    if not text:
        return Noted()
    try:
        # Keys of a newer agent are dropped.
        noted = typed.from_json(text, Noted)
        times = (noted.by_file, noted.pending.since if noted.pending is not None else "")
        # Python raises an error when a time without a zone is compared with one that has a zone.
        if any(time and datetime.fromisoformat(time).tzinfo is None for time in times):
            raise ValueError("a time of it has no zone")
    except ValueError as error:
        raise Terminal(f"the stored request for a reboot is damaged: {error}", reason=Reason.STORE_CORRUPT) from error
    return noted
