# SPDX-License-Identifier: Apache-2.0
"""The XML of an object, and the way to it from the root."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as Xml

import pytest

from nodeagent.host.dbus.header import Message
from nodeagent.host.dbus.interface import Interface, Method, Property, Signal
from nodeagent.host.dbus.introspection import document

OBJECT = "/org/nodeagent/Agent1"


async def nothing(_: Message) -> Sequence[object]:
    return ()


WHOLE = Interface(
    "a.B",
    {"Apply": Method(nothing, "sa{sv}", "u", ("config", "options", "job")), "Old": Method(nothing, "s", "")},
    {"State": Property("s", str)},
    {"Done": Signal("us", ("job", "result")), "Plain": Signal("u")},
)


def parsed(path: str) -> Xml.Element:
    return Xml.fromstring(document(path, OBJECT, [WHOLE]).partition("\n")[2])


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("/", "org"),
        ("/org", "nodeagent"),
        ("/org/nodeagent", "Agent1"),
        ("/org/node", None),
        ("/org/nodeagent/Agent1/x", None),
        ("/com", None),
    ],
)
def test_the_way_to_the_object(path: str, node: str | None) -> None:
    assert [(child.tag, child.get("name")) for child in parsed(path)] == ([("node", node)] if node else [])


def test_the_object() -> None:
    interfaces = {child.get("name"): child for child in parsed(OBJECT)}
    assert list(interfaces)[-1] == "a.B"
    properties = interfaces["org.freedesktop.DBus.Properties"]
    assert [argument.get("type") for argument in properties.findall("signal/arg")] == ["s", "a{sv}", "as"]
    assert [name for name, interface in interfaces.items() if interface.find("signal") is not None] == [
        "org.freedesktop.DBus.Properties",
        "a.B",
    ]
    own = interfaces["a.B"]
    arguments = {
        str(member.get("name")): [(a.get("direction"), a.get("type"), a.get("name")) for a in member] for member in own
    }
    assert arguments == {
        "Apply": [("in", "s", "config"), ("in", "a{sv}", "options"), ("out", "u", "job")],
        "Old": [("in", "s", None)],
        "State": [],
        "Done": [(None, "u", "job"), (None, "s", "result")],
        "Plain": [(None, "u", None)],
    }
