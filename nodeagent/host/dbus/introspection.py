# SPDX-License-Identifier: Apache-2.0
"""The introspection XML of interfaces. A module of its own, which the daemon imports at the first request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as Xml

from nodeagent.host.dbus.codec import complete_types
from nodeagent.host.dbus.interface import INTROSPECTABLE, PEER, PROPERTIES, Interface, Signal

_DOCTYPE = (
    '<!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN" '
    '"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">\n'
)

_STANDARD: Mapping[str, Mapping[str, tuple[str, str]]] = {
    PEER: {"Ping": ("", "")},
    INTROSPECTABLE: {"Introspect": ("", "s")},
    PROPERTIES: {"Get": ("ss", "v"), "GetAll": ("s", "a{sv}"), "Set": ("ssv", "")},
}


def document(path: str, object_path: str, interfaces: Sequence[Interface]) -> str:
    """Return the introspection of ``path``: the object, the next node on the way to it, or an empty node."""
    node = Xml.Element("node")
    above = path.rstrip("/") + "/"
    if path == object_path:
        for name, methods in _STANDARD.items():
            element = Xml.SubElement(node, "interface", name=name)
            for method, (takes, gives) in methods.items():
                _method(element, method, takes, gives, ())
            if name == PROPERTIES:
                changed = Xml.SubElement(element, "signal", name="PropertiesChanged")
                for kind in ("s", "a{sv}", "as"):
                    Xml.SubElement(changed, "arg", type=kind)
        for interface in interfaces:
            element = Xml.SubElement(node, "interface", name=interface.name)
            for called, declared in interface.methods.items():
                _method(element, called, declared.takes, declared.gives, declared.arguments)
            for called, prop in interface.properties.items():
                Xml.SubElement(element, "property", name=called, type=prop.signature, access="read")
            for called, signal in interface.signals.items():
                _signal(element, called, signal)
    elif object_path.startswith(above):
        Xml.SubElement(node, "node", name=object_path[len(above) :].split("/")[0])
    Xml.indent(node)
    return _DOCTYPE + Xml.tostring(node, encoding="unicode") + "\n"


def _signal(interface: Xml.Element, name: str, signal: Signal) -> None:
    element = Xml.SubElement(interface, "signal", name=name)
    for index, kind in enumerate(complete_types(signal.signature)):
        argument = Xml.SubElement(element, "arg", type=kind)
        if signal.arguments:
            argument.set("name", signal.arguments[index])


def _method(interface: Xml.Element, name: str, takes: str, gives: str, arguments: Sequence[str]) -> None:
    method = Xml.SubElement(interface, "method", name=name)
    kinds = [(kind, "in") for kind in complete_types(takes)] + [(kind, "out") for kind in complete_types(gives)]
    for index, (kind, direction) in enumerate(kinds):
        argument = Xml.SubElement(method, "arg", type=kind, direction=direction)
        if arguments:
            argument.set("name", arguments[index])
