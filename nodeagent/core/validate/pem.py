# SPDX-License-Identifier: Apache-2.0
"""Check the certificates of a trust store.

Only the frame is checked: PEM armour, base64, and one DER value with the three parts of an X.509 certificate. These are
the typical mistakes of pasted and templated bundles. Validity, expiry and signatures are not checked.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Final

LABELS: Final = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
MARKER: Final = re.compile(rb"-----(BEGIN|END) ([A-Z0-9 ]+)-----")
DASHES: Final = b"-----"
P11_KIT: Final = b"[p11-kit-object-v1]"

SEQUENCE, BIT_STRING = 0x30, 0x03
# RFC 5280, 4.1: the signed part, the algorithm, the signature.
CERTIFICATE_PARTS: Final = (SEQUENCE, SEQUENCE, BIT_STRING)


def check(content: bytes) -> Iterator[str]:
    """Check an anchor of the system trust store: a PEM bundle, a DER certificate, or the format of p11-kit."""
    # An empty file is the result of a template without certificates.
    if not content.strip() or content.lstrip().startswith(P11_KIT):
        return
    # The tag of a sequence is also the character 0, so a text may begin with it.
    if content[0] == SEQUENCE and DASHES not in content:
        if problem := _certificate_problem(content):
            yield f"is not a DER certificate: {problem}"
        return
    yield from _bundle(content)


def _bundle(content: bytes) -> Iterator[str]:
    count = 0
    begun: tuple[bytes, int] | None = None
    body: list[bytes] = []
    for number, raw in enumerate(content.splitlines(), 1):
        line = raw.strip()
        marker = MARKER.fullmatch(line)
        if marker is None:
            if begun is not None:
                body.append(line)
            elif line.startswith(DASHES):
                yield f"line {number}: malformed PEM marker"
            continue
        verb, label = marker.groups()
        if verb == b"BEGIN":
            if begun is not None:
                yield f"line {begun[1]}: BEGIN without END"
            begun, body = (label, number), []
            continue
        if begun is None:
            yield f"line {number}: END without BEGIN"
            continue
        if label != begun[0]:
            yield f"line {number}: END does not match the BEGIN in line {begun[1]}"
        elif problem := _block_problem(label.decode(), body):
            yield f"line {begun[1]}: {problem}"
        count += 1
        begun = None
    if begun is not None:
        yield f"line {begun[1]}: BEGIN without END"
    elif not count:
        yield "has no certificate"


def _block_problem(label: str, body: list[bytes]) -> str:
    if label.endswith("PRIVATE KEY"):
        return "has a private key, and the file is readable by all users"
    if label not in LABELS:
        return ""
    try:
        der = base64.b64decode(b"".join(body), validate=True)
    except ValueError:
        return "the certificate is not base64"
    # In a trusted certificate, OpenSSL's own attributes follow the certificate.
    return _certificate_problem(der, more=label.startswith("TRUSTED"))


def _certificate_problem(der: bytes, *, more: bool = False) -> str:
    outer = der_value(der, 0)
    if outer is None or der[0] != SEQUENCE:
        return "the certificate is not a DER sequence"
    start, end = outer
    if end > len(der):
        return "the certificate is cut off"
    if end < len(der) and not more:
        return "data follows the certificate"
    for tag in CERTIFICATE_PARTS:
        part = der_value(der, start)
        if part is None or der[start] != tag or part[1] > end:
            return "the parts of a certificate are missing"
        start = part[1]
    return "" if start == end else "the parts of a certificate are missing"


def der_value(der: bytes, at: int) -> tuple[int, int] | None:
    """Return the start and end of the value of the DER element at ``at``; None if there is no element.

    The end may be beyond that of ``der``.
    """
    if at + 2 > len(der):
        return None
    length = der[at + 1]
    if length < 0x80:
        return at + 2, at + 2 + length
    size = length & 0x7F
    # Without a size the length is indefinite, which DER does not have. Four bytes are enough for any file.
    if not 1 <= size <= 4 or at + 2 + size > len(der):
        return None
    start = at + 2 + size
    return start, start + int.from_bytes(der[at + 2 : start], "big")
