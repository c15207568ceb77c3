# SPDX-License-Identifier: Apache-2.0
"""The view of the event of the feature, and of its part of the status."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nodeagent.core.syslog import NOTICE
from nodeagent.features.etcd_members.events import EtcdMemberChanged, MemberProgress
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.part_view import PartView
from nodeagent.report.status import Status


def _words(event: EtcdMemberChanged, _status: Status) -> str:
    return f"etcd {event.progress.operation}: {event.message}" if event.progress else f"etcd: {event.message}"


def _fields(event: EtcdMemberChanged, _status: Status) -> Mapping[str, Field]:
    progress = event.progress
    return {"requester": progress.requester, "ended": progress.ended} if progress else {}


def _changed(status: Status, event: EtcdMemberChanged) -> Status:
    return status.without_part(MemberProgress) if event.progress is None else status.with_part(event.progress)


VIEWS = (
    EventView(
        event=EtcdMemberChanged,
        id="d93882ca97aa4d8497589779eb71a654",
        priority=NOTICE,
        sentence=_words,
        fields=_fields,
        fold=_changed,
    ),
)

STATUS = (PartView(part=MemberProgress, key="etcd_member", to_json=lambda progress, _: msgspec.to_builtins(progress)),)
