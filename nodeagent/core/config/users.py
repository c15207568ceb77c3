"""``passwd`` of an Ignition config: SSH keys and password hash of core; anything else there is only compared."""

from __future__ import annotations

from nodeagent.core.config.conflicts import Places
from nodeagent.core.config.fields import Fields
from nodeagent.core.config.file_tree import ssh_keys_path
from nodeagent.core.config.machineconfig import CORE_USER, UserEntry
from nodeagent.core.config.paths import has_control
from nodeagent.core.config.problems import shown
from nodeagent.core.config.unsupported import Unapplied

__all__ = ["read_users"]


def read_users(section: Fields, unapplied: Unapplied, places: Places) -> dict[str, UserEntry]:
    users: dict[str, UserEntry] = {}
    seen: set[str] = set()
    for fields in section.children("users"):
        name = fields.text("name")
        if not name or has_control(name):
            fields.bad("name", "must be the name of a user")
            continue
        if name in seen:
            fields.bad("name", f"{shown(name)} has two entries")
            continue
        seen.add(name)
        if name == CORE_USER:
            users[name] = _core(fields, unapplied)
            if users[name].ssh_keys:
                places.claim(ssh_keys_path(name), fields.at("sshAuthorizedKeys"))
        else:
            unapplied.note(f"passwd.users[{name}]", fields.everything())
    return users


def _core(fields: Fields, unapplied: Unapplied) -> UserEntry:
    keys = _keys(fields)
    password = fields.text("passwordHash") or None  # an empty one would let everybody in: it means none
    if password is not None and (has_control(password) or ":" in password):
        fields.bad("passwordHash", "must not hold colons or control characters")
    for key, value in fields.others():
        unapplied.note(f"passwd.users[{CORE_USER}].{key}", value)
    return UserEntry(CORE_USER, keys, password)


def _keys(fields: Fields) -> tuple[str, ...]:
    """One key a line, each once, sorted: sshd tries them all, so their order says nothing."""
    keys: set[str] = set()
    for index, text in enumerate(fields.texts("sshAuthorizedKeys")):
        lines = [line.strip() for line in text.split("\n")]
        if any(has_control(line.replace("\t", " ")) for line in lines):
            fields.bad(f"sshAuthorizedKeys[{index}]", "must not hold control characters")
        keys.update(line for line in lines if line)
    return tuple(sorted(keys))
