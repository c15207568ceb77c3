# SPDX-License-Identifier: Apache-2.0
"""Decode the answers of an API server to the types of ``core/coordination/kube_objects.py``.

An answer of another form is a fault of the server, or of what is in front of it, so it is treated as an outage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from nodeagent import typed
from nodeagent.core.coordination.kube_objects import ApiStatus
from nodeagent.kube.errors import ServerFault

T = TypeVar("T")


def decoded(kind: type[T], answer: object, what: str) -> T:
    """Return the fields of ``kind``. ``what`` is the request. Raises ``ServerFault``."""
    try:
        return typed.convert(answer, kind)
    except ValueError as error:
        # The error names the path and the types, and never a value.
        raise ServerFault(f"{what}: the answer is not an object of the API: {error}") from None


class _Listed(msgspec.Struct, Generic[T]):
    items: list[T] | None = None


def decoded_items(kind: type[T], text: bytes, what: str) -> list[T]:
    """Return the objects of a list, without what is not read of them. Raises ``ServerFault``."""
    try:
        listed = typed.from_json(text, _Listed[kind])  # type: ignore[valid-type]
    except (ValueError, RecursionError) as error:
        raise ServerFault(f"{what}: the answer is not a list of the API: {error}") from None
    return listed.items or []


def status_of(answer: Mapping[str, Any]) -> ApiStatus:
    """Return the details of a refusal. A gateway answers in a form of its own, of which the message counts at most."""
    try:
        return typed.convert(answer, ApiStatus)
    except ValueError:
        message = answer.get("message")
        return {"message": message} if isinstance(message, str) else {}
