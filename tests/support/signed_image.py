# SPDX-License-Identifier: Apache-2.0
"""Makes PE images with signatures, and the variables of a firmware, of the parts that Secure Boot reads."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

X509 = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072")
SHA256 = bytes.fromhex("2616c4c14c509240aca941f936934328")
OWNER = bytes(16)


def der(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    if len(body) < 0x80:
        return bytes([tag, len(body)]) + body
    length = len(body).to_bytes(2, "big")
    return bytes([tag, 0x82]) + length + body


def name(text: str) -> bytes:
    value = der(0x30, der(0x06, b"\x55\x04\x03"), der(0x0C, text.encode()))
    return der(0x30, der(0x31, value))


def certificate(subject: str, issuer: str = "", serial: int = 1, *, version: bool = True) -> bytes:
    """A certificate without a valid signature; its issuer is itself by default."""
    algorithm = der(0x30, der(0x06, b"\x2a\x86\x48"))
    signed = der(
        0x30,
        der(0xA0, der(0x02, b"\x02")) if version else b"",
        der(0x02, bytes([serial])),
        algorithm,
        name(issuer or subject),
        der(0x30, der(0x17, b"260101000000Z"), der(0x17, b"360101000000Z")),
        name(subject),
        der(0x30, algorithm, der(0x03, b"\0key")),
    )
    return der(0x30, signed, algorithm, der(0x03, b"\0signature"))


def signature(issuer: str, serial: int = 7, *, certificates: Sequence[bytes] = ()) -> bytes:
    """A PKCS #7 message of one signer."""
    identity = der(0x30, name(issuer), der(0x02, bytes([serial])))
    signer = der(0x30, der(0x02, b"\x01"), identity, der(0x30, b""))
    signed = der(
        0x30,
        der(0x02, b"\x01"),
        der(0x31, b""),
        der(0x30, der(0x06, b"\x2b\x06")),
        der(0xA0, *certificates),
        der(0x31, signer),
    )
    return der(0x30, der(0x06, b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02"), der(0xA0, signed))


def image(
    signatures: Sequence[bytes] = (), sections: Mapping[str, bytes] | None = None, *, long: bool = False
) -> bytes:
    """A PE32+ image. ``long``: names of more than 8 bytes are in a table of their own, and not cut."""
    sections = sections or {}
    header, optional, directories = 0x80, 24 + 0x80, 16
    size = 112 + 8 * directories
    data = bytearray(optional + size + 40 * len(sections))
    data[:2], data[header : header + 4] = b"MZ", b"PE\0\0"
    struct.pack_into("<I", data, 0x3C, header)
    struct.pack_into("<HH", data, header + 4, 0x8664, len(sections))
    struct.pack_into("<H", data, header + 20, size)
    struct.pack_into("<H", data, optional, 0x20B)
    struct.pack_into("<I", data, optional + 108, directories)
    strings = b""
    for number, (label, content) in enumerate(sections.items()):
        at = optional + size + 40 * number
        short = label.encode()[:8]
        if long and len(label) > 8:
            short = f"/{4 + len(strings)}".encode()
            strings += label.encode() + b"\0"
        struct.pack_into("<8sIIII", data, at, short, len(content), 0, len(content), len(data))
        data += content
    if strings:
        struct.pack_into("<II", data, header + 12, len(data), 0)
        data += struct.pack("<I", 4 + len(strings)) + strings
    data += bytes(-len(data) % 8)
    table = b"".join(
        (entry := struct.pack("<IHH", 8 + len(each), 0x200, 2) + each) + bytes(-len(entry) % 8) for each in signatures
    )
    if table:
        struct.pack_into("<II", data, optional + 112 + 32, len(data), len(table))
    return bytes(data + table)


def shim(
    *vendors: bytes, signed_by: str = "Microsoft", sbat: str = "sbat,1,x\nshim,4,x\n", as_list: bool = False
) -> bytes:
    keys = signature_list(*vendors) if as_list else b"".join(vendors)
    vendor = struct.pack("<IIII", len(keys), 0, 16, 16 + len(keys)) + keys
    return image([signature(signed_by)], {".vendor_cert": vendor, ".sbat": sbat.encode()})


def signature_list(*certificates: bytes, kind: bytes = X509) -> bytes:
    """One list for each entry, as firmware has it for certificates of different sizes."""
    return b"".join(
        kind + struct.pack("<III", 28 + 16 + len(each), 0, 16 + len(each)) + OWNER + each for each in certificates
    )


def variable(data: bytes) -> bytes:
    """A file of efivarfs."""
    return struct.pack("<I", 6) + data
