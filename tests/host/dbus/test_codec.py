# SPDX-License-Identifier: Apache-2.0
"""Bodies of messages: plain values, and the bounds of what is decoded."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.host.dbus.codec import MAX_DEPTH, decode, encode, variant
from nodeagent.host.dbus.header import Message, MessageKind

CALL = {"path": "/a", "interface": "a.b", "member": "C", "destination": "a.b"}


def encoded(signature: str, *body: Any, **fields: Any) -> bytes:
    return encode(Message(MessageKind.CALL, **(CALL | fields), signature=signature, body=body), 7)


def nested(levels: int) -> Any:
    value = variant("y", 1)
    for _ in range(levels - 1):
        value = variant("v", value)
    return value


@pytest.mark.parametrize(
    ("signature", "value", "plain"),
    [
        ("v", variant("s", "a"), "a"),
        ("a{sv}", {"a": variant("u", 1), "b": variant("av", [variant("y", 2)])}, {"a": 1, "b": [2]}),
        ("av", [variant("a{sv}", {"c": variant("b", True)})], [{"c": True}]),
        ("(sv)", ["a", nested(3)], ["a", 1]),
    ],
)
def test_variants_are_plain_values(signature: str, value: Any, plain: Any) -> None:
    message = decode(encoded(signature, value))
    assert (list(message.body), message.serial) == ([plain], 7)


def test_variants_in_each_other_are_bounded() -> None:
    assert decode(encoded("v", nested(MAX_DEPTH))).body == (1,)
    with pytest.raises(ValueError, match="too deep"):
        decode(encoded("v", nested(MAX_DEPTH + 1)))
    # Side by side they are not in each other.
    assert decode(encoded("av", [nested(2)] * MAX_DEPTH)).body == ([1] * MAX_DEPTH,)


def test_elements_are_bounded() -> None:
    data = encoded("sau", "a", [1, 2, 3])
    assert decode(data, 5).body == ("a", [1, 2, 3])
    with pytest.raises(ValueError, match="too many elements"):
        decode(data, 4)


def test_a_message_without_a_body() -> None:
    assert decode(encoded(""), 0).body == ()


def test_a_message_of_another_length_or_type() -> None:
    data = encoded("s", "a")
    for wrong in (data + b"\0", data[:-1]):
        with pytest.raises(ValueError, match="length"):
            decode(wrong)
    with pytest.raises(ValueError, match="unknown type"):
        decode(data[:1] + bytes((9,)) + data[2:])


@pytest.mark.parametrize(("no_reply", "interactive"), [(False, False), (True, False), (False, True), (True, True)])
def test_flags(*, no_reply: bool, interactive: bool) -> None:
    message = decode(encoded("", no_reply=no_reply, interactive=interactive))
    assert (message.no_reply, message.interactive) == (no_reply, interactive)
