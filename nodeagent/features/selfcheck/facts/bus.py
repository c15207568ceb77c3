# SPDX-License-Identifier: Apache-2.0
"""The name of the daemon on the bus, and its actions as polkit knows and decides them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from nodeagent.core.self_check import NotRead
from nodeagent.errors import AgentError
from nodeagent.features.selfcheck.decide.bus import (
    ACTIONS,
    BUS_NAME,
    BUS_POLICY,
    POLKIT_ACTIONS,
    NameFacts,
    PolkitDecision,
    PolkitFacts,
)
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import a_sv
from nodeagent.host.dbus.errors import BusFault
from nodeagent.reasons import Reason

_POLKIT: Final = "org.freedesktop.PolicyKit1"
_AUTHORITY_PATH: Final = "/org/freedesktop/PolicyKit1/Authority"
_AUTHORITY: Final = "org.freedesktop.PolicyKit1.Authority"
# Bytes of a file of the package.
_MAX_FILE: Final = 1 << 20
# The numbers of PolkitImplicitAuthorization, and the words of the file.
_WORDS: Final = ("no", "auth_self", "auth_admin", "auth_self_keep", "auth_admin_keep", "yes")


def is_bus_policy(root: Path = Path("/")) -> bool | NotRead:
    """Return whether the policy file lets root own the name. Blocks."""
    tree = _xml(root, BUS_POLICY)
    return (
        tree if isinstance(tree, NotRead) else tree.find(f"./policy[@user='root']/allow[@own='{BUS_NAME}']") is not None
    )


async def read_name(bus: Bus) -> NameFacts:
    """Raises ``AgentError`` if the bus does not answer."""
    try:
        (owner,) = await bus.call_bus("GetNameOwner", "s", (BUS_NAME,))
    except BusFault:
        # The bus answers; the name has no owner.
        await bus.call_bus("GetId")
        return NameFacts()
    (pid,) = await bus.call_bus("GetConnectionUnixProcessID", "s", (owner,))
    (uid,) = await bus.call_bus("GetConnectionUnixUser", "s", (owner,))
    try:
        version = str(await bus.get(BUS_NAME, f"/{BUS_NAME.replace('.', '/')}", f"{BUS_NAME}.Status", "Version"))
    # A daemon without an answer is a finding of its own, and no fault of the bus.
    except AgentError:
        version = ""
    return NameFacts(int(pid), int(uid), version)


async def read_polkit(bus: Bus, root: Path = Path("/")) -> PolkitFacts | NotRead:
    """Raises ``AgentError`` if polkit does not answer in time."""
    installed = await asyncio.to_thread(_installed, root)
    if isinstance(installed, NotRead):
        return installed
    try:
        (listed,) = await bus.call(_POLKIT, _AUTHORITY_PATH, _AUTHORITY, "EnumerateActions", "s", ("",))
    except BusFault as error:
        if error.reason != Reason.SERVICE_UNKNOWN:
            raise
        return NotRead(
            "polkit is not installed: only root can change this host", "install polkit if other users have to"
        )
    defaults = {
        str(row[0]): (_word(row[6]), _word(row[7]), _word(row[8])) for row in listed if str(row[0]) in installed
    }
    answers = await asyncio.gather(*(_decision(bus, action) for action in sorted(ACTIONS & defaults.keys())))
    decisions = {action: decision for action, decision in answers if decision is not None}
    return PolkitFacts(installed, defaults, decisions)


async def _decision(bus: Bus, action: str) -> tuple[str, PolkitDecision | None]:
    """Return the decision about this process, without a prompt."""
    body: Any = (["system-bus-name", a_sv({"name": ("s", bus.unique_name)})], action, {}, 0, "")
    try:
        ((allowed, challenge, _details),) = await bus.call(
            _POLKIT, _AUTHORITY_PATH, _AUTHORITY, "CheckAuthorization", "(sa{sv})sa{ss}us", body
        )
    # An action without a decision is a finding, beside those about the other actions.
    except BusFault:
        return action, None
    return action, PolkitDecision(bool(allowed), bool(challenge))


def _word(number: int) -> str:
    return _WORDS[number] if number < len(_WORDS) else str(number)


def _xml(root: Path, path: str) -> Element | NotRead:
    """Return the XML tree of a file of the package."""
    try:
        with (root / path[1:]).open("rb") as file:
            return ET.fromstring(file.read(_MAX_FILE))  # noqa: S314 - only root writes this file
    except (OSError, ET.ParseError) as error:
        problem = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        return NotRead(f"{path} {problem}", "install the package again", fault=True)


def _installed(root: Path) -> Mapping[str, tuple[str, str, str]] | NotRead:
    tree = _xml(root, POLKIT_ACTIONS)
    if isinstance(tree, NotRead):
        return tree

    def default(action: Any, name: str) -> str:
        # polkit's value for a default that the file omits.
        return str(action.findtext(f"defaults/{name}") or "no").strip()

    return {
        str(action.get("id")): (
            default(action, "allow_any"),
            default(action, "allow_inactive"),
            default(action, "allow_active"),
        )
        for action in tree.iterfind("action")
    }
