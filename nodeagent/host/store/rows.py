# SPDX-License-Identifier: Apache-2.0
"""Rows of the store to data and back. SQLite has no checksum of its own, so what we act on carries one.

All of these raise ``ValueError``, ``KeyError`` or ``TypeError`` on a damaged row; the store makes it ``StoreCorrupt``.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TypeVar

from nodeagent import typed
from nodeagent.core.config.file_tree import Directory, RegularFile, SymbolicLink
from nodeagent.core.config.text import plain_json
from nodeagent.host.store.record_codec import record_from_dict, record_to_dict, salvaged
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.store import ApplyRequest, HistoryEntry, Snapshot
from nodeagent.update.record import UNKNOWN_UPDATE, Record

_T = TypeVar("_T")


def checksum(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        # A path of the disk may have bytes that are no UTF-8, which Python keeps as surrogates.
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        # The length separates the parts, so that moving a byte from one to the next changes the checksum.
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def to_json(entry: HistoryEntry | Holder | ApplyRequest) -> str:
    return _dumps(asdict(entry))


def record_to_row(record: Record) -> tuple[str, str]:
    text = _dumps(record_to_dict(record))
    return text, checksum(text)


def record_from_row(text: str, expected: str) -> Record:
    if checksum(text) != expected:
        raise ValueError("the record has a wrong checksum")
    return record_from_dict(_object(text))


def from_json(kind: type[_T], text: str) -> _T:
    """Return the object that ``to_json`` wrote. Keys of a newer agent of the same format are dropped."""
    return typed.convert(plain_json.loads(text), kind)


def snapshot_to_row(snapshot: Snapshot) -> tuple[str, str, str, bytes]:
    """Return the row of a snapshot: key, meta, sum and content."""
    meta: dict[str, Any]
    content = b""
    match snapshot.node:
        case RegularFile():
            node = snapshot.node
            content = node.content
            meta = {name: getattr(node, name) for name in RegularFile.__dataclass_fields__ if name != "content"}
            meta["type"] = "file"
        case SymbolicLink():
            meta = {name: getattr(snapshot.node, name) for name in SymbolicLink.__dataclass_fields__}
            meta["type"] = "link"
        case Directory():
            meta = {name: getattr(snapshot.node, name) for name in Directory.__dataclass_fields__}
            meta["type"] = "directory"
        case None:
            meta = {"type": "none", "text": snapshot.text}
    text = _dumps(meta)
    return snapshot.key, text, checksum(snapshot.key, text, content), content


def snapshot_from_row(key: str, meta: str, expected: str, content: bytes) -> Snapshot:
    if checksum(key, meta, content) != expected:
        raise ValueError(f"the snapshot of {key} has a wrong checksum")
    data = _object(meta)
    match data.pop("type"):
        case "file":
            return Snapshot(key, node=RegularFile(content=content, **data))
        case "link":
            return Snapshot(key, node=SymbolicLink(**data))
        case "directory":
            return Snapshot(key, node=Directory(**data))
        case "none":
            return Snapshot(key, text=data["text"])
        case other:
            raise ValueError(f"the snapshot of {key} has the unknown type {other!r}")


def _dumps(data: dict[str, Any]) -> str:
    # Equal data must give equal texts, because the store compares their checksums.
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def _object(text: str) -> dict[str, Any]:
    data = plain_json.loads(text)
    if not isinstance(data, dict):
        raise TypeError("not a JSON object")
    return data


def salvage_record(text: str, lease: object) -> Record:
    """Return the record that is recovered from an unreadable text, and from the lease, which may name its update."""
    # The two sources are read apart, because the damage of one says nothing about the other.
    data: dict[str, Any] = {}
    holder: Holder | None = None
    with suppress(ValueError, TypeError):
        data = _object(text)
    with suppress(ValueError, TypeError, KeyError):
        holder = from_json(Holder, lease) if isinstance(lease, str) else None
    # Another operation than an update has a name with a dot (``Operation.id``), and must not become an update's id.
    ours = holder is not None and "." not in holder.operation
    return salvaged(data, holder.operation if holder is not None and ours else UNKNOWN_UPDATE)
