# SPDX-License-Identifier: Apache-2.0
"""The last defence against secrets in text: journal, errors, ``STATUS=``, history, and the diffs of a plan.

The first defence is not to put them there: content is ``repr=False`` everywhere and errors name a path or a registry.
This catches what slips through anyway, such as the output of a checker that quotes the line it dislikes. It prefers
to hide too much: a hidden word costs a look at the host, a printed credential costs a rotation on the whole fleet.

What stays readable, because it is on every second line and not secret: digests and ids (hex), names of rendered
configs (lower case), paths below the directories of a host, names of units, and the names that a caller knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HIDDEN = "[redacted]"

NAMES = (
    "auth|auths|authorization|identitytoken|registrytoken|access[_-]?token|refresh[_-]?token|bearer|token|secret"
    "|client[_-]?secret|secret[_-]?key|secret[_-]?access[_-]?key|private[_-]?key|pre[_-]?shared[_-]?key|api[_-]?key"
    "|pass|passwd|password|password_?hash|passphrase|credentials?|pgpassword|mysql_pwd|sshpass"
)

# A begin line is enough: a quoted line or a cut-off log has no end.
PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL
)

# crypt(5): $id$[params]$salt$hash; then those of directories and of GRUB.
CRYPT_HASH = re.compile(
    r"\$(?:y|gy|7|sm3|sm3_yescrypt|6|5|2[abxy]|1|md5|sha1|argon2[a-z]*|pbkdf2[-a-z0-9]*)\$[^\s:\"'\\]+"
    r"|\{(?:S?SHA\d*|S?MD5|CRYPT|PBKDF2[-A-Z0-9]*)\}[^\s:\"'\\]+|grub\.pbkdf2\.[\w.]+"
)

# A JSON Web Token, as of a service account, and tokens that their servers mark with a prefix.
TOKEN = re.compile(
    r"(?<![\w.-])(?:eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?"
    r"|(?:gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|hvs\.|dckr_pat_|sha256~)[\w-]{10,})"
)

# "auth": "...", also escaped inside another JSON text: the value ends at a quote that is escaped as often as its first.
JSON_PAIR = re.compile(
    rf"""(?P<head>["'](?:{NAMES})\\*["']\s*:\s*(?P<quote>\\*["']))(?P<value>.*?)(?=(?<!\\)(?P=quote)|\Z)""",
    re.IGNORECASE | re.DOTALL,
)

# "DB_PASSWORD=two words", as in Environment= of a unit.
QUOTED = re.compile(rf"""(?P<head>["'](?:\w{{0,60}}_)?(?:{NAMES})=)(?P<value>[^"'\n]+)""", re.IGNORECASE)

# The option of a command, with its value in the next word.
OPTION = re.compile(
    rf"(?P<head>(?<![\w-])--(?:[a-z]{{1,20}}-){{0,4}}(?:{NAMES})[ \t]+)(?P<value>[^\s\[-]\S*)", re.IGNORECASE
)

# A signed URL of an object store.
QUERY = re.compile(
    r"(?P<head>[?&](?:sig|signature|x-amz-signature|x-amz-security-token)=)(?P<value>[^\s&]+)", re.IGNORECASE
)

# password=..., and "Authorization: Basic ..." or "token: ..." where it begins a line, as in YAML and HTTP.
ASSIGNMENT = re.compile(rf"(?P<head>(?:\b|_)(?:{NAMES})=)(?P<value>[^\s&;,]+)", re.IGNORECASE)
HEADER = re.compile(
    r"(?P<head>^[ \t\-]*(?:\w{0,60}_|(?:x|proxy)-(?:[a-z]{1,20}-){0,3})?"
    rf"(?:{NAMES}|(?:set-)?cookie)[ \t]*:[ \t]+)(?P<value>[^\n]+)",
    re.IGNORECASE | re.MULTILINE,
)

# db_password = "..." in a line of its own, as in INI and TOML. A pre-shared key has that form in NetworkManager.
INI = re.compile(
    rf"""(?P<head>^[ \t#;]*["']?(?:[\w.-]{{0,60}}[_.-])?(?:{NAMES}|psk|wep-key[0-3])["']?[ \t]*=[ \t]*)"""
    r"(?P<value>\S[^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
SCHEME = re.compile(r"(?P<head>\b(?:basic|bearer)\s+)(?P<value>[A-Za-z0-9+/=._~-]{8,})", re.IGNORECASE)

# A password may have an unescaped @. A token in place of a name is longer than one.
USERINFO = re.compile(r"(?P<head>\b[a-zA-Z][a-zA-Z0-9+.-]{0,30}://)(?P<value>[^/\s@:]*:[^/\s]+|[^/\s@:\[]{16,})(?=@)")

# A long word of the characters of base64 is taken for a key or a credential. Paths of the host and names of units are
# read first, as a whole: they are names, however long their parts are.
_ROOTS = (
    "bin|boot|data|dev|efi|etc|export|home|lib|lib64|media|mnt|opt|ostree|proc|root|run|sbin|scratch|srv|storage|sys"
    "|sysroot|tmp|usr|var"
)
_TYPES = "automount|device|mount|path|scope|service|slice|socket|swap|target|timer"
_PATH = rf"(?<![\w+/=.-])(?:\w{{1,39}}=-?)?/(?:{_ROOTS})/[\w+/.@%~\\-]+"
_UNIT = rf"(?<![\w+/=.@\\-])[\w.@\\-]+\.(?:{_TYPES})(?![\w-])"
LONG = re.compile(rf"(?P<name>{_PATH}|{_UNIT})|[A-Za-z0-9+/_=-]{{40,}}", re.ASCII)
HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
# Shorter names are in no word that is replaced.
MIN_NAME = 40


def _long(match: re.Match[str]) -> str:
    """Replace a long word that looks like base64."""
    word = match.group()
    # Forty characters of base64 have an upper case letter almost for certain, and names of rendered configs have none.
    if match["name"] or HEX.fullmatch(word) or not any(c.isupper() for c in word):
        return word
    return HIDDEN


def _value(match: re.Match[str]) -> str:
    return match.group("head") + HIDDEN


def redact(text: str, names: Iterable[str] = ()) -> str:
    """Return the text with everything that looks like a secret replaced. Takes linear time.

    ``names`` are known to be no secrets, whatever they look like: of files, of configs, from the command line.
    """
    text = PRIVATE_KEY.sub(HIDDEN, text)
    text = TOKEN.sub(HIDDEN, CRYPT_HASH.sub(HIDDEN, text))
    for pattern in (JSON_PAIR, INI, QUOTED, OPTION, QUERY, ASSIGNMENT, HEADER, SCHEME, USERINFO):
        text = pattern.sub(_value, text)
    contained = sorted({name for name in names if len(name) >= MIN_NAME and name in text}, key=len, reverse=True)
    if not contained:
        return LONG.sub(_long, text)
    # Each second part is a name.
    parts = re.split(f"({'|'.join(map(re.escape, contained))})", text)
    return "".join(part if index % 2 else LONG.sub(_long, part) for index, part in enumerate(parts))


SECRET_NAME = re.compile(rf"(?:.*[_.-])?(?:{NAMES})", re.IGNORECASE)


def redact_value(key: str, value: object, names: Iterable[str] = ()) -> object:
    """Redact a structured value. A key that names a secret hides the whole value. For ``names`` see ``redact``."""
    if value in (None, "", 0, False) or (value == () or value == [] or value == {}):
        return value
    if SECRET_NAME.fullmatch(key):
        return HIDDEN
    match value:
        case str():
            return redact(value, names)
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case bool() | int() | float():
            return value
        case Mapping():
            return {redact(str(k), names): redact_value(str(k), v, names) for k, v in value.items()}
        case list() | tuple() | set() | frozenset():
            return [redact_value("", item, names) for item in value]
        case _:
            return redact(str(value), names)
