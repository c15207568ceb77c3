# SPDX-License-Identifier: Apache-2.0
"""Check lines of an authorized_keys file: sshd(8), "AUTHORIZED_KEYS FILE FORMAT".

sshd skips a malformed line, so that an incomplete copy of a key locks its owner out without a message. Problems name
the type and the comment of a key and quote nothing else: the text can be a private key that was pasted by mistake.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from nodeagent.core.config.problems import shown, similar

# The most characters of a line that sshd reads.
MAX_LINE: Final = 8192
# The default RequiredRSASize of sshd, and the most that OpenSSH accepts.
RSA_BITS: Final = (1024, 16384)

# The fields of a key after the name of its type: s a string, m a number, 4 and 8 that many bytes; "s32" a string of 32
# bytes. sshd(8) lists the types, PROTOCOL.certkeys and PROTOCOL.u2f of OpenSSH the fields.
# An uncompressed point: one byte, and two coordinates.
_POINT: Final = {"nistp256": "s65", "nistp384": "s97", "nistp521": "s133"}
_PLAIN: Final[dict[str, tuple[str, ...]]] = {
    "ssh-ed25519": ("s32",),
    "ssh-rsa": ("m", "m"),
    **{f"ecdsa-sha2-{curve}": ("s", point) for curve, point in _POINT.items()},
    "sk-ssh-ed25519@openssh.com": ("s32", "s"),
    "sk-ecdsa-sha2-nistp256@openssh.com": ("s", "s65", "s"),
}
_CERTIFICATE: Final = ("8", "4", "s", "s", "8", "8", "s", "s", "s", "s", "s")
_TYPES: Final[dict[str, tuple[str, ...]]] = {
    **_PLAIN,
    **{
        f"{kind.removesuffix('@openssh.com')}-cert-v01@openssh.com": ("s", *fields, *_CERTIFICATE)
        for kind, fields in _PLAIN.items()
    },
}
_WITH_VALUE: Final = frozenset(
    {"command", "environment", "expiry-time", "from", "permitlisten", "permitopen", "principals", "tunnel"}
)
_SWITCHES: Final = frozenset(
    {"agent-forwarding", "cert-authority", "no-agent-forwarding", "no-port-forwarding", "no-pty", "no-touch-required",
     "no-user-rc", "no-x11-forwarding", "port-forwarding", "pty", "restrict", "user-rc", "verify-required",
     "x11-forwarding"}
)  # fmt: skip


def is_key(line: str) -> bool:
    """Return whether the line contains a key, and is not a comment."""
    return bool(line) and not line.startswith("#")


def fingerprint(line: str) -> str:
    """Return ``SHA256:... (type)``, as ssh-keygen and the log of sshd name a key; "" for a line without one."""
    words = line[:MAX_LINE].replace("\t", " ").split(" ")
    # Options may precede the type, and a comment may follow the key.
    for kind, blob in pairwise(words):
        if kind not in _TYPES:
            continue
        try:
            digest = hashlib.sha256(base64.b64decode(blob, validate=True)).digest()
        except ValueError:
            return ""
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')} ({kind})"
    return ""


def check(line: str) -> str:
    """Return why sshd does not accept ``line``, which has no surrounding blanks; empty if it does."""
    if not is_key(line):
        return ""
    if len(line) > MAX_LINE:
        return f"a key of {len(line)} characters is longer than sshd reads ({MAX_LINE})"
    if "PRIVATE KEY" in line:
        return "is a private key: put the public one there (the file that ends in .pub), and replace this pair"
    first, _, rest = line.replace("\t", " ").partition(" ")
    if first in _TYPES or _is_type(first):
        return _key_problem(first, rest.lstrip())
    options, rest = _split_options(line)
    if options is None:
        return "has an unpaired double quote in the options"
    if problem := _options_problem(options):
        return problem
    kind, _, rest = rest.replace("\t", " ").partition(" ")
    if not kind:
        return "has options and no key"
    return _key_problem(kind, rest.lstrip())


def _is_type(word: str) -> bool:
    """Return whether an unknown first word is a type rather than options."""
    return word.startswith(("ssh-", "ecdsa-", "sk-")) and "=" not in word and "," not in word


def _key_problem(kind: str, rest: str) -> str:
    fields = _TYPES.get(kind)
    if fields is None:
        return _unknown_type(kind)
    blob, _, comment = rest.partition(" ")
    name = f"the {kind} key" + (f" {shown(comment.strip())}" if comment.strip() else "")
    if not blob:
        return f"{name} has nothing after its type"
    try:
        data = base64.b64decode(blob, validate=True)
    except ValueError:
        return f"{name} is not base64: it may be incomplete, or contain line breaks"
    if problem := _data_problem(kind, fields, data):
        return f"{name} {problem}"
    return ""


def _unknown_type(kind: str) -> str:
    if kind == "ssh-dss":
        return "is a DSA key (ssh-dss), which OpenSSH does not accept since version 7.0"
    if meant := similar(kind, _TYPES, 0.8):
        return f"{shown(kind)} is not a type of key{meant}"
    return "is not a public key: a line begins with the type of the key, such as ssh-ed25519, or with options"


class _Short(Exception):
    pass


def _data_problem(kind: str, fields: tuple[str, ...], data: bytes) -> str:
    cut = "is incomplete, or is not a key"
    try:
        inner, rest = _string(data)
        if inner != kind.encode():
            types = [name for name in _TYPES if name.encode() == inner]
            return f"holds a key of type {types[0]}" if types else cut
        for number, field in enumerate(fields):
            if field.isdigit():
                value, rest = _bytes(rest, int(field))
            else:
                value, rest = _string(rest)
            if field[1:] and len(value) != int(field[1:]):
                return f"has a field of {len(value)} bytes instead of {field[1:]}"
            if field == "m" and number == len(fields) - 1 and kind == "ssh-rsa":
                bits = int.from_bytes(value).bit_length()
                if not RSA_BITS[0] <= bits <= RSA_BITS[1]:
                    return f"has {bits} bits; sshd takes {RSA_BITS[0]} to {RSA_BITS[1]}"
    except _Short:
        return cut
    return "has data after its end" if rest else ""


def _string(data: bytes) -> tuple[bytes, bytes]:
    length, rest = _bytes(data, 4)
    return _bytes(rest, int.from_bytes(length))


def _bytes(data: bytes, count: int) -> tuple[bytes, bytes]:
    if len(data) < count:
        raise _Short
    return data[:count], data[count:]


def _split_options(line: str) -> tuple[str | None, str]:
    """Split a line into its options, which end at the first blank outside double quotes, and the rest."""
    for index, letter in _unquoted(line):
        if letter in ' \t"':
            return (None, "") if letter == '"' else (line[:index], line[index:].lstrip())
    return line, ""


def _unquoted(text: str) -> Iterator[tuple[int, str]]:
    """Yield the characters outside double quotes with their places, and at the end a quote that has no second one."""
    opened: int | None = None
    index = 0
    while index < len(text):
        # sshd knows no other escape in its options than that of a quote.
        if text[index : index + 2] == '\\"':
            index += 1
        elif text[index] == '"':
            opened = index if opened is None else None
        elif opened is None:
            yield index, text[index]
        index += 1
    if opened is not None:
        yield opened, '"'


def _options_problem(options: str) -> str:
    for option in _each(options):
        name, equals, value = option.partition("=")
        # sshd compares the names of options without regard to case.
        name = name.lower()
        if name in _WITH_VALUE:
            if not equals or not (value.startswith('"') and value.endswith('"') and len(value) > 1):
                return f'the option {name} needs a value in double quotes: {name}="..."'
        elif name not in _SWITCHES:
            meant = similar(name, _WITH_VALUE | _SWITCHES, 0.8)
            return f"{shown(name)} is not an option of a key{meant}" if meant else _unknown_type("")
        elif equals:
            return f"the option {name} takes no value"
    return ""


def _each(options: str) -> Iterator[str]:
    commas = [index for index, letter in _unquoted(options) if letter == ","]
    for before, after in pairwise([-1, *commas, len(options)]):
        yield options[before + 1 : after]
