# SPDX-License-Identifier: Apache-2.0
"""The view of the event of the etcd member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nodeagent.core.syslog import NOTICE
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.status import Status
from nodeagent.update.ports.events import EtcdMemberChanged


def _words(event: EtcdMemberChanged, _status: Status) -> str:
    return f"etcd {event.progress.operation}: {event.message}" if event.progress else f"etcd: {event.message}"


def _fields(event: EtcdMemberChanged, _status: Status) -> Mapping[str, Field]:
    progress = event.progress
    return {"requester": progress.requester, "ended": progress.ended} if progress else {}


VIEWS = (
    EventView(
        event=EtcdMemberChanged,
        id="d93882ca97aa4d8497589779eb71a654",
        priority=NOTICE,
        sentence=_words,
        fields=_fields,
        fold=lambda status, event: replace(status, etcd_member=event.progress),
    ),
)
