# SPDX-License-Identifier: Apache-2.0
"""Decode ``data:`` URLs (RFC 2397) and gzip as Ignition does, within bounds.

The rules for the header and for the unescaped characters are those of the Go package that Ignition and the
machine-config-operator use (github.com/vincent-petithory/dataurl), so that both accept the same configs. Messages quote
at most the header: the data can be a secret.
"""

from __future__ import annotations

import binascii
import re
import zlib
from functools import lru_cache
from typing import Final

from nodeagent import typed
from nodeagent.core.config.problems import shown

# Of one file after gunzip: as much as a whole document has before it.
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
# Of one gzip stream. Writers make one member, or one for each 64 KiB.
_MAX_MEMBERS: Final = 1024
_CHUNK: Final = 64 * 1024
# Characters. Real headers have about 50.
_MAX_HEADER: Final = 1024

_WORD = r"[!#$%&'*+\-.0-9A-Z^_`a-z{|}~]"
_KIND = r"(?:[xX]-|text|image|audio|video|application|message|multipart)"
_HEADER = re.compile(
    rf'data:(?:{_KIND}{_WORD}*/{_WORD}*)?(?:;{_WORD}+=(?:{_WORD}+|"(?:[^"\\\x80-\U0010ffff]|\\[\x00-\x7f])*"))*'
    r"(?P<base64>;base64)?,"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}(?=:)")
_URL_CHARS: Final = bytes(set(range(0x21, 0x7F)) - set(b'<>#"{}|\\^[]`'))
_BASE64_CHARS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
# Translates percent encoding to quoted-printable, and characters that must be escaped to _BAD.
_BAD: Final = b"\n"
_QUOTED: Final = bytes(
    ord("=") if char == ord("%") else char if char in _URL_CHARS else ord(_BAD) for char in range(256)
)


class ContentError(ValueError):
    """The content of a file cannot be decoded. The text gives the cause without quoting the content."""


def decode(source: str) -> bytes:
    """Return the content of the URL ``source``. Raises ``ContentError``."""
    header = source[: source.find(",", 0, _MAX_HEADER) + 1]
    # A quoted parameter may contain a comma.
    plain = header and '"' not in header
    end, is_base64 = _known_header(header) if plain else _read_header(source[:_MAX_HEADER])
    data = source[end:]
    return _decode_base64(data) if is_base64 else _decode_percent(data)


def _read_header(start: str) -> tuple[int, bool]:
    """Return the length of the header of a URL, and whether the data is in base64."""
    match = _HEADER.match(start)
    if match is None:
        raise ContentError(_header_problem(start))
    return match.end(), match["base64"] is not None


# A config has thousands of files and a handful of headers.
_known_header = lru_cache(maxsize=64)(_read_header)


def _header_problem(source: str) -> str:
    if source.startswith("data:"):
        return "the media type or the parameters of the data URL are malformed or too long, or its comma is missing"
    scheme = _SCHEME.match(source)
    if scheme is None:
        return "must be a data: URL"
    if scheme[0].lower() == "data":
        return "must begin with data: in lower case"
    return f"must be a data: URL; nothing is fetched from {shown(scheme[0].lower())} URLs"


def _decode_base64(data: str) -> bytes:
    try:
        # Strict (alphabet, padding, length) and three times as fast as binascii with strict_mode.
        return typed.convert(data, bytes)
    except ValueError:
        raise ContentError(f"bad base64: {_base64_problem(data)}") from None


def _base64_problem(data: str) -> str:
    if offset := _first_other(data, _BASE64_CHARS):
        other = data[offset - 1]
        if other in " \t\r\n":
            return f"character {offset} of the data is white space: base64 -w0 writes one line"
        if other in "-_":
            return f"character {offset} of the data is of the alphabet for URLs: + and / are needed for - and _"
        return f"character {offset} of the data is not in the alphabet"
    return f"{len(data)} characters are not a multiple of 4" if len(data) % 4 else "misplaced padding"


def _decode_percent(data: str) -> bytes:
    # Quoted-printable is percent encoding with another escape character and, on top, line breaks, which are rejected
    # here. It is the only decoder in C of the two in the standard library; urllib's takes 30 times as long.
    quoted = data.encode().replace(b"=", b"%3D").translate(_QUOTED)
    if _BAD in quoted:
        raise ContentError(f"character {_first_other(data, _URL_CHARS)} of the data must be percent-encoded")
    decoded = binascii.a2b_qp(quoted)
    # a2b_qp keeps a "=" that is not followed by two digits, so that each of those makes the whole longer.
    if len(decoded) != len(quoted) - 2 * quoted.count(b"="):
        raise ContentError("a % in the data is not followed by two hexadecimal digits")
    return decoded


def _first_other(data: str, chars: bytes) -> int:
    """Return the position, from 1, of the first character that is not among ``chars``; 0 if there is none."""
    raw = data.encode()
    other = raw.translate(None, chars)
    return raw.index(other[0]) + 1 if other else 0


def gunzip(data: bytes, limit: int = MAX_FILE_BYTES) -> bytes:
    """Unpack ``data`` (one or more gzip members) to at most ``limit`` bytes. Raises ``ContentError``."""
    if data and not data.startswith(_GZIP):
        raise ContentError("compression is gzip, but the content is not compressed")
    unpacked: list[bytes] = []
    size = members = offset = 0
    member = zlib.decompressobj(wbits=31)
    try:
        while offset < len(data):
            piece = data[offset : offset + _CHUNK]
            part = member.decompress(piece, limit - size + 1)
            size += len(part)
            if size > limit:
                raise ContentError(f"the gzip stream unpacks to more than {limit} bytes")
            unpacked.append(part)
            offset += len(piece) - len(member.unused_data) - len(member.unconsumed_tail)
            if member.eof:
                members += 1
                if members > _MAX_MEMBERS:
                    raise ContentError(f"the gzip stream has more than {_MAX_MEMBERS} members")
                if offset < len(data):
                    member = zlib.decompressobj(wbits=31)
    except zlib.error:
        raise ContentError("the gzip stream is damaged") from None
    if not member.eof:
        raise ContentError("the gzip stream is truncated")
    return b"".join(unpacked)
