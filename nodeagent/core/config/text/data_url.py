"""``data:`` URLs (RFC 2397) and gzip, as Ignition reads them, with bounds.

The rules for the header and for the characters that may stand unescaped are those of the Go package that Ignition and
the machine-config-operator use, so that a config is good here exactly when it is good there. Messages quote the header
at most: the data may be a secret.
"""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from nodeagent.core.config.problems import shown

__all__ = ["MAX_FILE_BYTES", "ContentError", "decode", "decode_together", "gunzip", "split"]

MAX_FILE_BYTES: Final = 16 * 1024 * 1024  # of one file after gunzip; what a whole document may have before it
_MAX_MEMBERS: Final = 1024  # of one gzip stream; writers make one, or one for each 64 KiB
_CHUNK: Final = 64 * 1024
_MAX_HEADER: Final = 1024  # characters; real ones have some 50

_WORD = r"[!#$%&'*+\-.0-9A-Z^_`a-z{|}~]"
_KIND = r"(?:[xX]-|text|image|audio|video|application|message|multipart)"
_HEADER = re.compile(
    rf'data:(?:{_KIND}{_WORD}*/{_WORD}*)?(?:;{_WORD}+=(?:{_WORD}+|"(?:[^"\\\x80-\U0010ffff]|\\[\x00-\x7f])*"))*'
    r"(?P<base64>;base64)?,"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}(?=:)")
_URL_CHARS: Final = bytes(set(range(0x21, 0x7F)) - set(b'<>#"{}|\\^[]`'))
_NUL: Final = b"\0"
_BAD: Final = b"\n"
_QUOTED: Final = bytes(
    ord("=") if char == ord("%") else char if char in _URL_CHARS else ord(_BAD) for char in range(256)
)  # a text in percent encoding becomes one in quoted-printable, and what may not be in it becomes _BAD
_QUOTED_ENDS: Final = _QUOTED[: ord('"')] + _NUL + _QUOTED[ord('"') + 1 :]  # the same, and a quote becomes a NUL
_BASE64_CHARS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="


_BASE64_LIST: Final = msgspec.json.Decoder(list[bytes])


class ContentError(ValueError):
    """The content of a file cannot be had from its URL; the text says why without quoting the content."""


def decode(source: str) -> bytes:
    """The bytes that ``source`` holds. Raises ``ContentError``."""
    is_base64, start = split(source)
    data = source[start:]
    return _decode_base64(data) if is_base64 else _decode_percent(data)


def decode_together(data: Sequence[bytes], *, is_base64: bool) -> list[bytes]:
    """The bytes of many URLs without escapes from a JSON text: of each what is after its comma, up to the quote that
    ends the string. Raises ``ValueError`` if any is bad."""
    if is_base64:
        return _BASE64_LIST.decode(b'["%b]' % b',"'.join(data))
    # Each ends with a quote, which no data may have; a NUL, which may come of an escape, is rarer in content.
    decoded = _pieces(_undo_escapes(b"".join(data), _QUOTED_ENDS))
    if len(decoded) != len(data):
        return [_undo_escapes(each[:-1], _QUOTED) for each in data]
    return decoded


def _pieces(data: bytes) -> list[bytes]:
    """What each NUL ends. ``bytes.split`` looks at every byte, ``find`` at many at once."""
    pieces = []
    start = 0
    while (end := data.find(_NUL, start)) >= 0:
        pieces.append(data[start:end])
        start = end + 1
    return pieces


def split(source: str) -> tuple[bool, int]:
    """Whether the data of ``source`` is in base64, and where it starts. Raises ``ContentError``."""
    comma = source.find(",")
    header = source[: comma + 1]
    if 0 <= comma < _MAX_HEADER and '"' not in header:
        return _is_base64(header), comma + 1
    match = _HEADER.match(source[:_MAX_HEADER])  # a quoted parameter may hold a comma
    if match is None:
        raise ContentError(_why_no_header(source))
    return match["base64"] is not None, match.end()


@lru_cache(maxsize=64)  # a config has thousands of files and a handful of headers
def _is_base64(header: str) -> bool:
    match = _HEADER.fullmatch(header)
    if match is None:
        raise ContentError(_why_no_header(header))
    return match["base64"] is not None


def _why_no_header(source: str) -> str:
    if source.startswith("data:"):
        return "the media type or the parameters of the data URL are malformed or too long, or its comma is missing"
    scheme = _SCHEME.match(source)
    if scheme is None:
        return "must be a data: URL"
    return f"must be a data: URL; nothing is fetched from {shown(scheme[0].lower())} URLs"


def _decode_base64(data: str) -> bytes:
    try:
        # Strict (alphabet, padding, length) and three times as fast as binascii with strict_mode.
        return msgspec.convert(data, bytes)
    except msgspec.ValidationError:
        raise ContentError(_why_no_base64(data) or "bad base64: misplaced padding") from None


def _why_no_base64(data: str) -> str | None:
    """What shows without decoding ``data``."""
    if offset := _first_other(data, _BASE64_CHARS):
        return f"bad base64: character {offset} of the data is not in the alphabet"
    if len(data) % 4:
        return f"bad base64: {len(data)} characters are not a multiple of 4"
    return None


def _first_other(data: str, chars: bytes) -> int:
    """The place, from 1, of the first character that is not among ``chars``; 0 if there is none."""
    raw = data.encode()
    other = raw.translate(None, chars)
    return raw.index(other[0]) + 1 if other else 0


def _decode_percent(data: str) -> bytes:
    return _undo_escapes(data.encode(), _QUOTED)


def _undo_escapes(data: bytes, table: bytes) -> bytes:
    """``table``: ``_QUOTED``, or ``_QUOTED_ENDS`` where each quote becomes a NUL."""
    # Quoted-printable is percent encoding with another escape character and, on top, line breaks, which are refused
    # here. It is the only decoder in C of the two in the standard library; urllib's takes 30 times as long.
    quoted = (data.replace(b"=", b"%3D") if b"=" in data else data).translate(table)
    if _BAD in quoted:
        raise ContentError(f"character {_first_other(data.decode(), _URL_CHARS)} of the data must be percent-encoded")
    decoded = binascii.a2b_qp(quoted)
    # What is no escape stays as it is, so that each of them makes the whole longer.
    if len(decoded) != len(quoted) - 2 * quoted.count(b"="):
        raise ContentError("a % in the data is not followed by two hexadecimal digits")
    return decoded


def gunzip(data: bytes, limit: int = MAX_FILE_BYTES) -> bytes:
    """``data`` (one or more gzip members) unpacked, at most ``limit`` bytes. Raises ``ContentError``."""
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
