# SPDX-License-Identifier: Apache-2.0
"""Decide whether a chain of Secure Boot accepts a program, as far as its certificates show that.

Facts
- The firmware accepts a program whose signature leads to a certificate of its variable db; shim is one. shim accepts a
  kernel whose signature leads to db, to a certificate within shim, or to one that the owner of the machine enrolled.
  The shim that started this boot publishes the latter two as MokListRT.
- shim and GRUB carry their generations (SBAT). shim refuses a program whose generation is below the one in SbatLevelRT.
- A signature names its issuer. Names are compared, and no signature is computed: an issuer that is not known is certain
  to be refused, and one that is known may still be refused, as by a revocation.

Formats: Microsoft's PE Format and Authenticode; RFC 2315 and RFC 5280 (DER); the UEFI specification, 32.4.1, for
``EFI_SIGNATURE_LIST``; SBAT.md of shim.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from nodeagent.core.validate.pem import der_value

# An image, in memory or mapped: a kernel has many megabytes, of which few pages are read.
Image = bytes | mmap.mmap

# Sections of an image, signatures of an image, certificates of a list or of a signature, and parts of a chain.
MAX_SECTIONS: Final = 96
MAX_SIGNATURES: Final = 16
MAX_CERTIFICATES: Final = 256
MAX_CHAIN: Final = 8

# Bytes of a section that is read, and of the table of signatures.
MAX_SECTION: Final = 1 << 20

_X509: Final = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072")
_PKCS_SIGNED_DATA: Final = 0x0002
_SEQUENCE, _SET, _INTEGER, _EXPLICIT_0 = 0x30, 0x31, 0x02, 0xA0


class KernelTrust(StrEnum):
    """Whether a bootloader starts a kernel. ``ACCEPTED``: its certificates do not speak against it."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The parts of an X.509 certificate that identify it, as DER."""

    issuer: bytes
    serial: bytes
    subject: bytes


@dataclass(frozen=True, slots=True)
class Signature:
    """The issuer and the serial number of the certificate of a signer, and the certificates that come with it."""

    issuer: bytes
    serial: bytes
    certificates: tuple[Certificate, ...] = ()


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """Certificates, and whether there are entries of other kinds, such as digests of single programs."""

    certificates: frozenset[Certificate] = frozenset()
    others: bool = False

    def __or__(self, more: TrustedKeys) -> TrustedKeys:
        return TrustedKeys(self.certificates | more.certificates, self.others or more.others)


def accepts(keys: TrustedKeys, signatures: Iterable[Signature]) -> KernelTrust:
    """Return whether ``keys`` accept a program with these signatures. One accepted signature is enough."""
    subjects = {certificate.subject for certificate in keys.certificates}
    ends = {(certificate.issuer, certificate.serial) for certificate in keys.certificates}
    for signature in signatures:
        if (signature.issuer, signature.serial) in ends or subjects & set(_issuers(signature)):
            return KernelTrust.ACCEPTED
    # An entry of another kind may be the digest of this program.
    return KernelTrust.UNKNOWN if keys.others else KernelTrust.REFUSED


def _issuers(signature: Signature) -> Iterator[bytes]:
    """Yield the names up the chain, as far as the certificates in the signature lead."""
    issuer = signature.issuer
    for _ in range(MAX_CHAIN):
        yield issuer
        above = next((certificate for certificate in signature.certificates if certificate.subject == issuer), None)
        if above is None or above.issuer == issuer:
            return
        issuer = above.issuer


# Images.


def signatures_of(image: Image) -> tuple[Signature, ...]:
    """Return the signatures of a PE image; none if it is not signed. Raises ``ValueError`` for another format."""
    at, size = _certificate_table(image)
    signatures: list[Signature] = []
    end = at + min(size, MAX_SECTION)
    while at + 8 <= end and len(signatures) < MAX_SIGNATURES:
        length, kind = _number(image, at, 4), _number(image, at + 6, 2)
        if length < 8 or at + length > len(image):
            raise ValueError("a signature is cut off")
        if kind == _PKCS_SIGNED_DATA:
            signatures += _signers(image[at + 8 : at + length])
        # Each signature begins at a multiple of 8 bytes.
        at += -(-length // 8) * 8
    return tuple(signatures)


def vendor_keys(shim: Image) -> TrustedKeys:
    """Return the certificates within a shim. Raises ``ValueError`` if it has no place for them."""
    section = _section(shim, b".vendor_cert")
    size, offset = _number(section, 0, 4), _number(section, 8, 4)
    data = section[offset : offset + size]
    if offset < 16 or len(data) != size:
        raise ValueError("the certificates of shim are cut off")
    if not data:
        return TrustedKeys()
    # One certificate, or a list as in the variables of the firmware.
    return TrustedKeys(frozenset({_certificate(data)})) if data[0] == _SEQUENCE else signature_lists(data)


def sbat_of(image: Image) -> Mapping[str, int]:
    """Return the generations of an image by component. Raises ``ValueError`` if it has none."""
    return parse_sbat(_section(image, b".sbat"))


def parse_sbat(data: bytes) -> Mapping[str, int]:
    """Parse lines of ``component,generation,...``. Raises ``ValueError``."""
    generations: dict[str, int] = {}
    for line in data.partition(b"\0")[0].decode("ascii", "replace").splitlines():
        component, _, rest = line.partition(",")
        generation = rest.partition(",")[0].strip()
        if not component or not generation:
            continue
        if len(generation) > 18 or not generation.isdecimal():
            raise ValueError("a generation is no number")
        generations[component.strip()] = int(generation)
    if not generations:
        raise ValueError("there are no generations")
    return generations


def revoked(program: Mapping[str, int], level: Mapping[str, int]) -> str:
    """Return the first component of a program whose generation is below ``level``, "" for none."""
    # ``sbat`` is the version of the format. A component that the program does not have cannot be revoked in it.
    return next((name for name, least in level.items() if name != "sbat" and program.get(name, least) < least), "")


def _headers(image: Image) -> tuple[int, int, int, int]:
    """Return the offsets and the numbers of the directories and of the sections."""
    if image[:2] != b"MZ":
        raise ValueError("it is not a PE image")
    start = _number(image, 0x3C, 4)
    if image[start : start + 4] != b"PE\0\0":
        raise ValueError("it is not a PE image")
    sections, optional_size, optional = _number(image, start + 6, 2), _number(image, start + 20, 2), start + 24
    # PE32+ has larger addresses, and so larger headers.
    wide = {0x20B: 16, 0x10B: 0}.get(_number(image, optional, 2))
    if wide is None:
        raise ValueError("it is an unknown kind of PE image")
    directories = optional + 96 + wide
    return directories, _number(image, directories - 4, 4), optional + optional_size, min(sections, MAX_SECTIONS)


def _certificate_table(image: Image) -> tuple[int, int]:
    directories, count, _, _ = _headers(image)
    # The fifth directory is the table of certificates; an image may have fewer.
    if count < 5:
        return 0, 0
    # Unlike the others, this one is a position in the file.
    at, size = _number(image, directories + 32, 4), _number(image, directories + 36, 4)
    if at + size > len(image):
        raise ValueError("the signatures are cut off")
    return at, size


def _section(image: Image, name: bytes) -> bytes:
    """Return the content of a section. Its name is cut to 8 bytes in the header, or is in a table of long names."""
    _, _, at, count = _headers(image)
    for index in range(count):
        header = at + 40 * index
        if _section_name(image, header) not in (name, name[:8]):
            continue
        virtual, size, start = (_number(image, header + field, 4) for field in (8, 16, 20))
        # The size in the file is rounded up to its alignment, and the padding is no content.
        size = min(size, virtual) if virtual else size
        if size > MAX_SECTION:
            raise ValueError(f"{name.decode()} is too large")
        if start + size > len(image):
            raise ValueError(f"{name.decode()} is cut off")
        return image[start : start + size]
    raise ValueError(f"it has no {name.decode()}")


def _section_name(image: Image, header: int) -> bytes:
    name = image[header : header + 8].rstrip(b"\0")
    if not name.startswith(b"/") or not name[1:].isdigit():
        return name
    start = _number(image, 0x3C, 4)
    symbols, count = _number(image, start + 12, 4), _number(image, start + 16, 4)
    # The table of long names follows the symbols, which take 18 bytes each (COFF).
    at = symbols + 18 * count + int(name[1:])
    return image[at : at + 64].partition(b"\0")[0]


def _number(data: Image, at: int, size: int) -> int:
    field = data[at : at + size]
    if len(field) != size:
        raise ValueError("it is cut off")
    return int.from_bytes(field, "little")


# Variables of the firmware.


def signature_lists(data: bytes) -> TrustedKeys:
    """Return the entries of a sequence of ``EFI_SIGNATURE_LIST``. Raises ``ValueError``."""
    certificates: set[Certificate] = set()
    others, at = False, 0
    while at < len(data):
        size, header, entry_size = (_number(data, at + field, 4) for field in (16, 20, 24))
        if size < 28 + header or entry_size <= 16 or at + size > len(data):
            raise ValueError("a list of certificates is cut off")
        others = others or data[at : at + 16] != _X509
        if data[at : at + 16] == _X509:
            for entry in range(at + 28 + header, at + size - entry_size + 1, entry_size):
                # The entry begins with its owner.
                certificates.add(_certificate(data[entry + 16 : entry + entry_size]))
                if len(certificates) > MAX_CERTIFICATES:
                    raise ValueError("there are too many certificates")
        at += size
    return TrustedKeys(frozenset(certificates), others)


# DER.


def _signers(der: bytes) -> Iterator[Signature]:
    """Yield the signers of a PKCS #7 message with signed data."""
    content = _children(_sequence(der))
    _expect(len(content) >= 2 and content[1][0] == _EXPLICIT_0)
    signed = _children(_sequence(content[1][1]))
    _expect(len(signed) >= 4 and signed[-1][0] == _SET)
    certificates: list[Certificate] = []
    for tag, body in signed[3:-1]:
        if tag == _EXPLICIT_0:
            certificates += [_parsed(certificate) for kind, certificate in _children(body) if kind == _SEQUENCE]
    for _, signer in _children(signed[-1][1]):
        parts = _children(signer)
        _expect(len(parts) >= 2 and parts[1][0] == _SEQUENCE)
        identity = _children(parts[1][1])
        _expect(len(identity) == 2)
        yield Signature(identity[0][1], identity[1][1], tuple(certificates))


def _certificate(der: bytes) -> Certificate:
    return _parsed(_sequence(der))


def _parsed(body: bytes) -> Certificate:
    parts = _children(body)
    _expect(bool(parts) and parts[0][0] == _SEQUENCE)
    signed = _children(parts[0][1])
    # The version is optional: the first version of the standard had none.
    signed = signed[1:] if signed and signed[0][0] == _EXPLICIT_0 else signed
    _expect(len(signed) >= 6 and signed[0][0] == _INTEGER)
    return Certificate(issuer=signed[2][1], serial=signed[0][1], subject=signed[4][1])


def _sequence(der: bytes) -> bytes:
    """Return the content of the sequence at the beginning of ``der``. Padding may follow it."""
    tag, body, _ = _element(der, 0)
    _expect(tag == _SEQUENCE)
    return body


def _children(der: bytes) -> list[tuple[int, bytes]]:
    """Return the elements of a sequence or set, as tag and content."""
    children: list[tuple[int, bytes]] = []
    at = 0
    while at < len(der):
        tag, body, at = _element(der, at)
        children.append((tag, body))
        _expect(len(children) <= MAX_CERTIFICATES)
    return children


def _element(der: bytes, at: int) -> tuple[int, bytes, int]:
    start, end = der_value(der, at) or (0, 0)
    _expect(0 < end <= len(der))
    return der[at], der[start:end], end


def _expect(good: bool) -> None:
    if not good:
        raise ValueError("a certificate or a signature is malformed")
