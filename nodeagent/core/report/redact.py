"""The last defence against secrets in text: journal, errors, ``STATUS=``, history, and the diffs of a plan.

The first defence is not to put them there: content is ``repr=False`` everywhere and errors name a path or a registry.
This catches what slips through anyway, such as the output of a checker that quotes the line it dislikes. It prefers
to hide too much: a hidden word costs a look at the host, a printed credential costs a rotation on the whole fleet.

What stays readable, because it is on every second line and not secret: digests and ids (hex), names of rendered
configs (lower case), paths.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "[redacted]"

NAMES = (
    "auth|auths|authorization|identitytoken|registrytoken|access_?token|refresh_?token|bearer|token|secret"
    "|client_?secret|secret_?key|private_?key|api_?key|pass|passwd|password|password_?hash|passphrase|credentials?"
)

# A begin line is enough: a quoted line or a cut-off log has no end.
PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL
)

# crypt(5): $id$[params$]salt$hash.
CRYPT_HASH = re.compile(
    r"\$(?:y|gy|7|sm3|sm3_yescrypt|6|5|2[abxy]|1|md5|sha1|argon2[a-z]*|pbkdf2[-a-z0-9]*)\$[^\s:\"'\\]+"
)

# "auth": "...", also escaped inside another JSON text: the value ends at a quote that is escaped as often as its first.
JSON_PAIR = re.compile(
    rf"""(?P<head>["'](?:{NAMES})\\*["']\s*:\s*(?P<quote>\\*["']))(?P<value>.*?)(?=(?<!\\)(?P=quote)|\Z)""",
    re.IGNORECASE | re.DOTALL,
)

# password=..., and "Authorization: Basic ..." or "token: ..." where it begins a line, as in YAML and HTTP.
ASSIGNMENT = re.compile(rf"(?P<head>(?:\b|_)(?:{NAMES})=)(?P<value>[^\s&;,]+)", re.IGNORECASE)
HEADER = re.compile(
    rf"(?P<head>^[ \t\-]*(?:\w{{0,60}}_)?(?:{NAMES})[ \t]*:[ \t]+)(?P<value>[^\n]+)", re.IGNORECASE | re.MULTILINE
)

# db_password = "..." in a line of its own, as in INI and TOML. A pre-shared key has that form in NetworkManager.
INI = re.compile(
    rf"""(?P<head>^[ \t#;]*["']?(?:[\w.-]{{0,60}}[_.-])?(?:{NAMES}|psk|wep-key[0-3])["']?[ \t]*=[ \t]*)"""
    r"(?P<value>\S[^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
SCHEME = re.compile(r"(?P<head>\b(?:basic|bearer)\s+)(?P<value>[A-Za-z0-9+/=._~-]{8,})", re.IGNORECASE)

USERINFO = re.compile(r"(?P<head>\b[a-zA-Z][a-zA-Z0-9+.-]{0,30}://)(?P<value>[^/\s@:]*:[^/\s@]+)(?=@)")

TOKEN = re.compile(r"[A-Za-z0-9+/_=-]{40,}")
HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
KNOWN_ROOT = re.compile(r"/(?:etc|usr|var|home|root|opt|run|boot|sysroot|ostree|tmp|srv|proc|sys|dev)/")
MAX_NAME = 40


def _token(match: re.Match[str]) -> str:
    """Replace long words that look like base64: keys, certificates or credentials."""
    word = match.group()
    # Forty characters of base64 have an upper case letter almost for certain, and names of rendered configs have none.
    if HEX.fullmatch(word) or not any(c.isupper() for c in word):
        return word
    if KNOWN_ROOT.match(word) and all(len(part) < MAX_NAME for part in word.split("/")):
        return word
    return HIDDEN


def _value(match: re.Match[str]) -> str:
    return match.group("head") + HIDDEN


def redact(text: str) -> str:
    """Return the text with everything that looks like a secret replaced. Takes linear time."""
    text = PRIVATE_KEY.sub(HIDDEN, text)
    text = CRYPT_HASH.sub(HIDDEN, text)
    for pattern in (JSON_PAIR, INI, ASSIGNMENT, HEADER, SCHEME, USERINFO):
        text = pattern.sub(_value, text)
    return TOKEN.sub(_token, text)


SECRET_NAME = re.compile(rf"(?:.*[_.-])?(?:{NAMES})", re.IGNORECASE)


def redact_value(key: str, value: object) -> object:
    """Redact a structured value. A key that names a secret hides the whole value."""
    if value in (None, "", 0, False) or (value == () or value == [] or value == {}):
        return value
    if SECRET_NAME.fullmatch(key):
        return HIDDEN
    match value:
        case str():
            return redact(value)
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case bool() | int() | float():
            return value
        case Mapping():
            return {redact(str(k)): redact_value(str(k), v) for k, v in value.items()}
        case list() | tuple() | set() | frozenset():
            return [redact_value("", item) for item in value]
        case _:
            return redact(str(value))
