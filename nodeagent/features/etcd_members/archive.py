# SPDX-License-Identifier: Apache-2.0
"""Archive the data of a member of etcd."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nodeagent.errors import Terminal
from nodeagent.host.etcd.data_directory import MEMBER
from nodeagent.host.fs.atomic import sync_directory
from nodeagent.host.fs.os_errors import translated
from nodeagent.reasons import Reason

MAX_ARCHIVES: Final = 100


def archive(path: Path, now: str) -> str:
    """Rename the data. Return the new path, "" without data. ``now`` is RFC 3339. Blocks."""
    member = path / MEMBER
    with translated("rename", str(member)):
        if member.is_symlink():
            raise Terminal(f"{member} is a link", reason=Reason.LINK_REFUSED)
        if not member.exists():
            return ""
        stamp = now.partition(".")[0].rstrip("Z").replace(":", "").replace("-", "")
        for number in range(MAX_ARCHIVES):
            target = path / f"{MEMBER}-archive-{stamp}{f'-{number}' if number else ''}"
            if target.exists():
                continue
            # Another process may have made the target since the check. rename(2) replaces an empty directory only.
            member.rename(target)
            sync_directory(path)
            return str(target)
    raise Terminal(f"{path} has {MAX_ARCHIVES} archives of this second", reason=Reason.HOST_FAULT)
