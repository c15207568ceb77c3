# SPDX-License-Identifier: Apache-2.0
"""Snapshots of some paths of a host for a comparison: content, type, mode, owner and link of every entry."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

Snapshot = Mapping[str, "Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    kind: str  # file, directory, link, other
    mode: int
    uid: int
    gid: int
    content: str  # SHA-256 of a file, target of a link, "" of anything else


def from_tar(archive: bytes) -> dict[str, Entry]:
    """Read the output of `tar --create --directory=/`; keys are absolute paths."""
    entries: dict[str, Entry] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            content = ""
            path = "/" + member.name.removeprefix("./").rstrip("/")
            if member.isreg():
                stream = tar.extractfile(member)
                assert stream is not None, "a regular member has content"
                data = stream.read()
                kind, content = "file", hashlib.sha256(undated(data) if path == "/etc/shadow" else data).hexdigest()
            elif member.issym():
                kind, content = "link", member.linkname
            else:
                kind = "directory" if member.isdir() else "other"
            entries[path] = Entry(kind, member.mode, member.uid, member.gid, content)
    return entries


def undated(shadow: bytes) -> bytes:
    """Return shadow(5) without the days of the last changes: a test may go on over midnight."""
    lines = [line.split(b":") for line in shadow.split(b"\n")]
    return b"\n".join(b":".join((*fields[:2], *fields[3:])) for fields in lines)


def difference(before: Snapshot, after: Snapshot) -> list[str]:
    """One line for each path that is not the same in both, sorted by path."""
    return [
        f"{path}: {before.get(path, 'absent')} -> {after.get(path, 'absent')}"
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]
