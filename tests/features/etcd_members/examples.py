# SPDX-License-Identifier: Apache-2.0
"""What etcd members add to the tables of the base's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nodeagent.features.etcd_members.events import EtcdMemberChanged, MemberProgress
from nodeagent.features.etcd_members.host import program_version


async def _version_of_etcd(_directory: Path) -> None:
    await program_version("true")


PROGRAMS: Final = (_version_of_etcd,)
EVENTS: Final = (
    EtcdMemberChanged(None, "the message"),
    EtcdMemberChanged(MemberProgress("1", "join", "jane", "now", "the message"), "the message"),
)
REQUESTS: Final = {"etcd join": ("ChangeEtcdMember",)}
CHANGES: Final = ("ChangeEtcdMember",)
