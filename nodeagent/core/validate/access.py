"""Check the SSH keys and the password hash of core, so that a config does not lock the admin out.

Password hashes follow the patterns of libxcrypt for each method: crypt(5). The field of the shadow file accepts any
text, and no password matches a text that is not a hash: a plain password would be stored in the config and still not
allow a login. Hashes without a prefix (DES) are rejected as well: they are obsolete, and any password of 13 letters
looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig, UserEntry
from nodeagent.core.validate import ssh_key
from nodeagent.errors import Problem

PATH: Final = f"spec.config.passwd.users[{CORE_USER}]"
_EMPTY: Final = UserEntry(CORE_USER)

_CHARS: Final = "[./0-9A-Za-z]"
# yescrypt and gost-yescrypt, scrypt, bcrypt, sha512crypt, sha256crypt, sha1crypt, SunMD5, md5crypt.
# No salt has a colon or a line break, which end a field and a line of the shadow file.
_METHODS: Final = (
    rf"\$g?y\${_CHARS}+\${_CHARS}{{0,86}}\${_CHARS}{{43}}",
    rf"\$7\${_CHARS}{{11,97}}\${_CHARS}{{43}}",
    rf"\$2[abxy]\$[0-9]{{2}}\${_CHARS}{{53}}",
    rf"\$6\$(?:rounds=[1-9][0-9]+\$)?[^$:\n]{{0,16}}\${_CHARS}{{86}}",
    rf"\$5\$(?:rounds=[1-9][0-9]+\$)?[^$:\n]{{0,16}}\${_CHARS}{{43}}",
    rf"\$sha1\$[1-9][0-9]+\${_CHARS}{{1,64}}\${_CHARS}{{8,64}}{_CHARS}{{32}}",
    rf"\$md5(?:,rounds=[1-9][0-9]+)?\${_CHARS}{{8}}\${{1,2}}{_CHARS}{{22}}",
    rf"\$1\$[^$:\n]{{0,8}}\${_CHARS}{{22}}",
)
_HASH: Final = re.compile("|".join(_METHODS))
# usermod --lock prepends the "!"; "*" marks an account that never had a password.
_LOCKED: Final = re.compile(r"!{0,2}\*?")


def check(old: MachineConfig, new: MachineConfig) -> Iterator[Problem]:
    """Yield the problems of keys and of a hash that are not in ``old``."""
    was, now = old.users.get(CORE_USER, _EMPTY), new.users.get(CORE_USER, _EMPTY)
    # Keys that the host has already are not judged again by the rules of a newer agent.
    for key in now.ssh_keys:
        if key not in was.ssh_keys and (problem := ssh_key.check(key)):
            yield Problem(f"{PATH}.sshAuthorizedKeys", problem)
    value = now.password_hash
    if value is not None and value != was.password_hash and (problem := hash_problem(value)):
        yield Problem(f"{PATH}.passwordHash", problem)


def is_locked(value: str) -> bool:
    """Return whether ``value`` deliberately matches no password: shadow(5)."""
    return bool(value) and (value.startswith("!") or value == "*")


def hash_problem(value: str) -> str:
    """Return why ``value`` is not a hash, without quoting it; empty if it is one."""
    if _LOCKED.fullmatch(value) or _HASH.fullmatch(value.lstrip("!")):
        return ""
    method = re.match(r"\$[a-z0-9]{1,4}\$", value.lstrip("!"))
    problem = "is an incomplete hash" if method else "is not a password hash; a plain password is not accepted"
    return f"{problem}; mkpasswd --method=yescrypt makes a hash"
