# SPDX-License-Identifier: Apache-2.0
"""Contents of files that are probably not meant as they are: encoded once more, compressed, or of another editor."""

from __future__ import annotations

import base64
import re
from typing import Final

# Bytes at the beginning that are looked at.
_LOOKED_AT: Final = 4096
# Shorter texts may be base64 by chance.
_SHORTEST: Final = 24
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
_DATA_URL: Final = re.compile(rb"data:[\w/+.;=-]*,")
_PERCENT: Final = re.compile(rb"%[0-9A-Fa-f]{2}")
_GZIP: Final = b"\x1f\x8b"
_PACKED: Final = (".b64", ".base64", ".cpio", ".gz", ".img", ".tgz")
_MARKS: Final = {b"\xef\xbb\xbf": "a byte order mark", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}

# Decimal numbers that are a mode of their own, which few files have, and the digits of a common one.
_MODES: Final = frozenset({400, 440, 444, 500})


def doubt(path: str, content: bytes) -> str:
    """Return why this content is probably a mistake, without quoting it; "" if it looks fine."""
    start = content[:_LOOKED_AT]
    if mark := next((name for mark, name in _MARKS.items() if start.startswith(mark)), ""):
        return f"begins with {mark}, as some editors write it; most programs read it as a part of line 1"
    if path.endswith(_PACKED):
        return ""
    if start.startswith(_GZIP):
        return "is compressed, and is written as it is: compression: gzip unpacks it"
    if _DATA_URL.match(start):
        return "is a data: URL itself, so it was encoded twice"
    if _is_base64_of_text(start):
        return "is base64 of a text, and is written as it is: it was probably encoded twice"
    if len(_PERCENT.findall(start)) > 1 and b"%0A" in start.upper() and not start.split(None, 1)[1:]:
        return "is percent-encoded, and is written as it is: it was probably encoded twice"
    return ""


def mode_doubt(mode: int) -> str:
    """Return why a mode is probably written without its leading zero; "" if it looks fine."""
    if mode not in _MODES:
        return ""
    return f"has mode 0{mode:03o}: {mode} is decimal; if 0{mode} is meant, write that ({int(str(mode), 8)} in JSON)"


def _is_base64_of_text(start: bytes) -> bool:
    # Lines of base64, as programs wrap them, count as well.
    joined = b"".join(start.split())
    joined = joined[: len(joined) // 4 * 4]
    if len(joined) < _SHORTEST or not _BASE64.fullmatch(joined):
        return False
    decoded = base64.b64decode(joined)
    # A character may be cut at the end. A key decodes to bytes that are no text.
    text = decoded.decode(errors="ignore")
    return (
        len(text.encode()) + 3 >= len(decoded) and "\n" in text and all(c.isprintable() or c in "\t\r\n" for c in text)
    )
