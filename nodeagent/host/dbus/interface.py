# SPDX-License-Identifier: Apache-2.0
"""D-Bus interfaces declared as data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodeagent.host.dbus.header import Message

# Default bound of the size of a call, in bytes.
MAX_CALL = 64 << 10

PEER = "org.freedesktop.DBus.Peer"
INTROSPECTABLE = "org.freedesktop.DBus.Introspectable"
PROPERTIES = "org.freedesktop.DBus.Properties"


@dataclass(frozen=True, slots=True)
class Method:
    """A method. ``run`` gets the message, with its sender, and returns the values of ``gives``."""

    run: Callable[[Message], Awaitable[Sequence[Any]]]
    takes: str = ""
    gives: str = ""
    # Names of ``takes`` and ``gives``, in that order.
    arguments: Sequence[str] = ()
    # Bytes of a call by a user other than root.
    max_size: int = MAX_CALL
    max_size_for_root: int = MAX_CALL


@dataclass(frozen=True, slots=True)
class Property:
    """A read-only property. ``get`` runs on the loop and must be fast."""

    signature: str
    get: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Signal:
    signature: str
    # Names of its values.
    arguments: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Interface:
    name: str
    methods: Mapping[str, Method] = field(default_factory=dict)
    properties: Mapping[str, Property] = field(default_factory=dict)
    signals: Mapping[str, Signal] = field(default_factory=dict)
