"""The note of the member and its running operation, as the store keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import msgspec

from nodeagent.core.etcd.member_facts import Identity
from nodeagent.core.etcd.membership import MemberOperation, OperationKind

NOTE_KEY = "etcd-member"
OPERATION_KEY = "etcd-operation"
# Of the operation of a lease, before the id.
LEASE_PREFIX = "etcd."


@dataclass(frozen=True, slots=True)
class MemberNote:
    """``member`` and ``cluster`` are the ids that this host had last, "" for none. ``left``: an operator took it away.

    It is outside the data directory, so that a lost disk is recognized.
    """

    member: str = ""
    cluster: str = ""
    left: bool = False

    @property
    def identity(self) -> Identity | None:
        return Identity(self.member, self.cluster) if self.member else None


def to_text(value: MemberNote | MemberOperation) -> str:
    return json.dumps(asdict(value), sort_keys=True)


def note_from_text(text: str) -> MemberNote:
    """Return the empty note for "". Raises ``ValueError`` and ``TypeError``."""
    data = _known(MemberNote, text) if text else {}
    ids = [data.get(key, "") for key in ("member", "cluster")]
    if not isinstance(data.get("left", False), bool) or not all(map(_is_id, ids)):
        raise ValueError("the note of the etcd member has a wrong type")
    return MemberNote(**data)


def operation_from_text(text: str) -> MemberOperation | None:
    """Return None for "". Raises ``ValueError`` and ``TypeError``."""
    if not text:
        return None
    data = dict(_known(MemberOperation, text))
    texts = [data.get(key, "") for key in ("id", "requester", "since", "failed")]
    if not isinstance(data.get("begun", False), bool) or not all(isinstance(value, str) for value in texts):
        raise TypeError("the operation of the etcd member has a wrong type")
    if not all(_is_id(data.get(key, "")) for key in ("remove", "added")):
        raise ValueError("the operation of the etcd member has no valid id")
    # An unknown kind is an error: this agent could not end what a newer one began.
    operation = MemberOperation(**{**data, "kind": OperationKind(data.get("kind", ""))})
    if datetime.fromisoformat(operation.since).tzinfo is None:
        raise ValueError("the time of the operation has no zone")
    return operation


def _known(kind: type[MemberNote | MemberOperation], text: str) -> Mapping[str, Any]:
    """Return the known keys: a newer agent may have written others."""
    data = msgspec.json.decode(text)
    if not isinstance(data, dict) or not data:
        raise TypeError("not a JSON object")
    return {key: value for key, value in data.items() if key in kind.__dataclass_fields__}


def _is_id(value: object) -> bool:
    # Python counts digits of other scripts as decimal, too.
    return isinstance(value, str) and (not value or (value.isdecimal() and value.isascii()))
