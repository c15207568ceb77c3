# SPDX-License-Identifier: Apache-2.0
"""Decisions from surveys of any form, and what the store has of a member."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

from integration.fuzz.records import DAMAGE
from integration.fuzz.servers import SURVEYS, surveyed
from integration.fuzz.target import Target, choices, document
from nodeagent.core.etcd.data_directory import DataDirectory, Identity
from nodeagent.features.etcd_members.decide.member_facts import MemberFacts, check_version, decide_start, member_here
from nodeagent.features.etcd_members.decide.membership import note_from_text, operation_from_text

NOTE: Final = {"member": "1", "cluster": "2", "left": False}
OPERATION: Final = {
    "id": "1f2e3d4c",
    "kind": "join",
    "requester": "root",
    "since": "2026-11-21T03:00:00.000Z",
    "remove": "",
    "added": "3",
    "begun": True,
    "failed": {"reason": "EtcdStarting", "message": "it never started"},
}


def facts(data: bytes) -> None:
    found = surveyed(data)
    if found is None:
        return
    for directory in (DataDirectory(), DataDirectory(True, Identity("1", "2")), DataDirectory(True)):
        known = MemberFacts("a", ("https://a:2380",), found, data=directory)
        decide_start(known)
        member_here(known)
    check_version("3.6.8", found)


def stored(data: bytes) -> None:
    found = document({**NOTE, **OPERATION}, data)
    row = data.decode(errors="replace") if found is None else json.dumps(found)
    for read in (note_from_text, operation_from_text):
        with suppress(*DAMAGE):
            read(row)


TARGETS: Final = (
    Target("etcd-members", facts, SURVEYS),
    Target("etcd-notes", stored, [b"", b"{}", *(json.dumps(row).encode() for row in (NOTE, OPERATION)), *choices(20)]),
)
