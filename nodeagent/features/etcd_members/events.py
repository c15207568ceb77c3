# SPDX-License-Identifier: Apache-2.0
"""The event of the feature."""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.update.ports.events import Event


@dataclass(frozen=True, slots=True)
class MemberProgress:
    """A join, leave or replacement of the etcd member. ``ended`` is "" while it runs, "done", or the text of the cause,
    whose reason is ``reason``."""

    id: str
    operation: str
    requester: str
    since: str
    message: str
    ended: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EtcdMemberChanged(Event):
    """``progress`` is None if there is nothing but a reason to wait, which is the message."""

    progress: MemberProgress | None
    message: str
