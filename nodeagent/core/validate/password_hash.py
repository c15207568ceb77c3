"""Password hashes as libxcrypt reads them: crypt(5), which gives a pattern for each method.

The field of the shadow file takes any text, and with text that is no hash no password works: one that was written there
in the clear would be stored in the config, and still be refused at the login. Hashes without a prefix (DES) are refused
as well: they are obsolete, and every password of 13 letters looks like one.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["check", "is_locked"]

_CHARS: Final = "[./0-9A-Za-z]"
_METHODS: Final = (
    rf"\$g?y\${_CHARS}+\${_CHARS}{{0,86}}\${_CHARS}{{43}}",  # yescrypt, gost-yescrypt
    rf"\$7\${_CHARS}{{11,97}}\${_CHARS}{{43}}",  # scrypt
    rf"\$2[abxy]\$[0-9]{{2}}\${_CHARS}{{53}}",  # bcrypt
    rf"\$6\$(?:rounds=[1-9][0-9]+\$)?[^$:\n]{{0,16}}\${_CHARS}{{86}}",  # sha512crypt
    rf"\$5\$(?:rounds=[1-9][0-9]+\$)?[^$:\n]{{0,16}}\${_CHARS}{{43}}",  # sha256crypt
    rf"\$sha1\$[1-9][0-9]+\${_CHARS}{{1,64}}\${_CHARS}{{8,64}}{_CHARS}{{32}}",
    rf"\$md5(?:,rounds=[1-9][0-9]+)?\${_CHARS}{{8}}\${{1,2}}{_CHARS}{{22}}",  # SunMD5
    rf"\$1\$[^$:\n]{{0,8}}\${_CHARS}{{22}}",  # md5crypt
)
_HASH: Final = re.compile("|".join(_METHODS))
_LOCKED: Final = re.compile(r"!{0,2}\*?")  # usermod --lock puts the ! there; systems use * for "never had one"


def is_locked(value: str) -> bool:
    """Whether no password at all fits, and that is what was meant: shadow(5)."""
    return bool(value) and (value.startswith("!") or value == "*")


def check(value: str) -> str:
    """What keeps ``value`` from being a hash, without a character of it; "" if nothing does."""
    if _LOCKED.fullmatch(value) or _HASH.fullmatch(value.lstrip("!")):
        return ""
    method = re.match(r"\$[a-z0-9]{1,4}\$", value.lstrip("!"))
    what = "is cut off, or no complete hash" if method else "is no password hash: a password itself does not go here"
    return f"{what}; mkpasswd --method=yescrypt makes one"
