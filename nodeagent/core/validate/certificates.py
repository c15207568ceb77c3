# SPDX-License-Identifier: Apache-2.0
"""Name the certificates of a file by subject, expiry and digest, which are public. Keys are neither read nor shown.

Only the fields of RFC 5280 that are shown are read; signatures are not checked. What is no certificate is left out.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nodeagent.core.validate.pem import DASHES, LABELS, SEQUENCE, der_value

BLOCK: Final = re.compile(rb"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[^-]*)-----END (?P=label)-----")
INTEGER, OID, UTC_TIME, GENERALIZED_TIME, VERSION = 0x02, 0x06, 0x17, 0x18, 0xA0
# The DER of the identifiers of X.520, with the names of RFC 4514.
ATTRIBUTES: Final = {
    b"\x55\x04\x03": "CN",
    b"\x55\x04\x06": "C",
    b"\x55\x04\x07": "L",
    b"\x55\x04\x08": "ST",
    b"\x55\x04\x0a": "O",
    b"\x55\x04\x0b": "OU",
}
# BMPString and UniversalString; all other types of text are read as UTF-8.
ENCODINGS: Final = {0x1E: "utf-16-be", 0x1C: "utf-32-be"}
# Characters of a value, and bytes of a certificate.
LONGEST: Final = 64
MAX_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class NamedCertificate:
    """``expires`` is a date, as in 2027-01-31."""

    subject: str
    expires: str
    digest: str

    def __str__(self) -> str:
        return f"{self.subject or 'without a subject'}, expires {self.expires}, sha256 {self.digest[:12]}"


def certificates(content: bytes, other: bytes = b"") -> tuple[NamedCertificate, ...]:
    """Return the certificates of a PEM bundle or of a DER file, in its order, without those that ``other`` has too."""
    if content[:1] == bytes((SEQUENCE,)) and DASHES not in content:
        parsed = [certificate(content)] if content != other else []
    else:
        # Those of both sides are not parsed: a bundle has hundreds, of which few change.
        both = {match[0] for match in BLOCK.finditer(other)}
        parsed = [_of_block(match) for match in BLOCK.finditer(content) if match[0] not in both]
    return tuple(named_certificate for named_certificate in parsed if named_certificate is not None)


def named(content: bytes) -> bytes:
    """Return a text with a line for each certificate in place of its PEM block. All else stays, also keys."""

    def line(match: re.Match[bytes]) -> bytes:
        block = _of_block(match)
        return match[0] if block is None else f"(certificate {block})".encode()

    return BLOCK.sub(line, content)


def _of_block(match: re.Match[bytes]) -> NamedCertificate | None:
    if match["label"].decode() not in LABELS or len(match["body"]) > 2 * MAX_BYTES:
        return None
    try:
        return certificate(base64.b64decode(b"".join(match["body"].split()), validate=True))
    except ValueError:
        return None


def certificate(der: bytes) -> NamedCertificate | None:
    """Return the certificate at the start of ``der``, None if its fields cannot be read."""
    if len(der) > MAX_BYTES or (outer := _element(der, 0, SEQUENCE)) is None:
        return None
    if (signed := _element(der, outer[0], SEQUENCE)) is None:
        return None
    at, end = signed
    if der[at : at + 1] == bytes((VERSION,)) and (version := _element(der, at, VERSION)) is not None:
        at = version[1]
    values: list[tuple[int, int]] = []
    # Serial number, algorithm, issuer, validity, subject.
    for tag in (INTEGER, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE):
        value = _element(der, at, tag)
        if value is None or value[1] > end:
            return None
        values.append(value)
        at = value[1]
    expires = _expiry(der, *values[3])
    if not expires:
        return None
    return NamedCertificate(", ".join(_subject(der, *values[4])), expires, hashlib.sha256(der[: outer[1]]).hexdigest())


def _element(der: bytes, at: int, tag: int) -> tuple[int, int] | None:
    """Return the start and the end of the value of an element with this tag, None if there is none at ``at``."""
    value = der_value(der, at)
    return value if value is not None and der[at] == tag and value[1] <= len(der) else None


def _expiry(der: bytes, start: int, end: int) -> str:
    """Return the date of the second of two times, "" if it is none."""
    first = der_value(der, start)
    if first is None or first[1] >= end or (second := der_value(der, first[1])) is None or second[1] > end:
        return ""
    digits = der[second[0] : second[1]].rstrip(b"Z").decode("ascii", "replace")
    if der[first[1]] == UTC_TIME and digits[:6].isdecimal():
        # RFC 5280, 4.1.2.5.1: two digits are a year between 1950 and 2049.
        digits = ("19" if digits[:2] >= "50" else "20") + digits
    elif der[first[1]] != GENERALIZED_TIME:
        return ""
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}" if len(digits) >= 8 and digits[:8].isdecimal() else ""


def _subject(der: bytes, start: int, end: int) -> Iterator[str]:
    """Yield ``CN=name`` for each attribute that has a short name."""
    at = start
    while at < end and (group := der_value(der, at)) is not None and group[1] <= end:
        # The first attribute of each set. More of them are rare.
        pair = _element(der, group[0], SEQUENCE)
        identifier = _element(der, pair[0], OID) if pair is not None else None
        value = der_value(der, identifier[1]) if identifier is not None else None
        if pair is not None and identifier is not None and value is not None and value[1] <= pair[1] <= group[1]:
            name = ATTRIBUTES.get(der[identifier[0] : identifier[1]])
            text = der[value[0] : value[1]].decode(ENCODINGS.get(der[identifier[1]], "utf-8"), "replace")
            if name is not None:
                shown = "".join(character if character.isprintable() else "?" for character in text)
                yield f"{name}={shown[:LONGEST]}"
        at = group[1]
