# SPDX-License-Identifier: Apache-2.0
"""Compose the text of a config from two others: the new one, with some entries as they are in the old one.

The entries are copied as they are written, so everything that nodeagent does not apply stays that of the new config.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from nodeagent.core.config.machineconfig import CORE_USER, OS_KEYS
from nodeagent.core.config.text.document import load

_CORE_KEYS: Final = ("sshAuthorizedKeys", "passwordHash")
# The entries of each id: name, section, key.
_SECTIONS: Final = (
    *(("file", "storage", key) for key in ("files", "directories", "links")),
    ("unit", "systemd", "units"),
)


def partial_text(old: bytes, new: bytes, waiting: Collection[str]) -> bytes:
    """Return the text of ``new`` in JSON, with the entries ``waiting`` (ids of changes) and the OS as in ``old``.

    The same input gives the same bytes. Both texts were accepted before. Raises ``InvalidInput``.
    """
    was = _object(load(old, "the current config", unique_keys=False))
    document = _object(load(new, "the desired config", unique_keys=False))
    was_spec, spec = _object(was.get("spec")), _object(document.get("spec"))
    was_config, config = _object(was_spec.get("config")), _object(spec.get("config"))
    for name, kind, key in _SECTIONS:
        wanted = {entry.partition(":")[2] for entry in waiting if entry.startswith(f"{name}:")}
        listed = (_object(side.get(kind)).get(key) for side in (was_config, config))
        if wanted and any(listed):
            identity = "path" if name == "file" else "name"
            section = _object(config.get(kind))
            section[key] = _replaced(section.get(key), _object(was_config.get(kind)).get(key), identity, wanted)
            config[kind] = section
    users = {entry.partition(":")[2] for entry in waiting if entry.startswith(("sshkey:", "password:", "user:"))}
    if users:
        passwd = _object(config.get("passwd"))
        passwd["users"] = _users(passwd.get("users"), _object(was_config.get("passwd")).get("users"), users)
        config["passwd"] = passwd
    # The OS has kernel arguments in the Ignition config, too.
    if config.get("kernelArguments") or was_config.get("kernelArguments"):
        config["kernelArguments"] = was_config.get("kernelArguments")
    # A new config of kernel arguments alone has no Ignition section. With entries of the old one it must name the
    # version of the specification, or the composed text would be invalid.
    if config and not config.get("ignition"):
        config["ignition"] = was_config.get("ignition")
    for key in OS_KEYS:
        spec[key] = was_spec.get(key)
    # Labels and annotations mean nothing to a host, and those of the controller change often.
    metadata = {"name": _object(document.get("metadata")).get("name")}
    document |= {"metadata": metadata, "spec": {**spec, "config": config or None}, "status": None}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _object(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _named(entries: object, identity: str) -> dict[str, Any]:
    listed = entries if isinstance(entries, list) else []
    return {entry[identity]: entry for entry in map(_object, listed) if identity in entry}


def _replaced(now: object, was: object, identity: str, wanted: Collection[str]) -> list[Any]:
    had = _named(was, identity)
    unchanged = {name: entry for name, entry in _named(now, identity).items() if name not in wanted}
    taken = {name: had[name] for name in wanted if name in had}
    # Sorted, because ``wanted`` is a set: a failed text is recognised by its digest, after a restart of the agent too.
    return [entry for _, entry in sorted({**unchanged, **taken}.items())]


def _users(now: object, was: object, waiting: Collection[str]) -> list[Any]:
    """Return the users of ``now``, with those that wait as in ``was``; of core the keys and the password."""
    users = {name: user for name, user in _named(now, "name").items() if name not in waiting or name == CORE_USER}
    had = _named(was, "name")
    users |= {name: had[name] for name in waiting if name in had and name != CORE_USER}
    before = had.get(CORE_USER)
    if CORE_USER not in waiting:
        pass
    elif before is None:
        users.pop(CORE_USER, None)
    else:
        rest = {key: value for key, value in users.get(CORE_USER, before).items() if key not in _CORE_KEYS}
        users[CORE_USER] = {**rest, **{key: before.get(key) for key in _CORE_KEYS}}
    return [user for _, user in sorted(users.items())]
