"""The fast way into a JSON MachineConfig: ``spec.config.storage.files`` typed, the rest as in ``document``.

``read`` answers only for documents that are plainly in order and leaves all others, with their errors, to
``document.load``. A typed decoder keeps silent about a key that comes twice, so the colons of the text are counted:
outside of strings there is exactly one for each key, and those inside of strings are known once they are decoded.
"""

from __future__ import annotations

from typing import Final

import msgspec

from nodeagent.core.config.text.document import MAX_BYTES, decode_json, inspect, weight
from nodeagent.core.config.text.jsonfile import JsonFile
from nodeagent.core.config.text.quickfiles import Cache, read_usual
from nodeagent.errors import InvalidInput

__all__ = ["read"]

# Together below what document.load accepts, so that the fast way never accepts more.
MAX_COLONS: Final = 400_000  # a file of a rendered config has eight
MAX_REST: Final = 400_000  # values outside of the files

_PIECE: Final = 64 * 1024  # of a text: stays in the cache of the processor
_NONE: Final = msgspec.Raw()


class _Storage(msgspec.Struct, forbid_unknown_fields=True):
    files: list[JsonFile]
    directories: msgspec.Raw = _NONE
    disks: msgspec.Raw = _NONE
    filesystems: msgspec.Raw = _NONE
    links: msgspec.Raw = _NONE
    luks: msgspec.Raw = _NONE
    raid: msgspec.Raw = _NONE


class _Config(msgspec.Struct, forbid_unknown_fields=True):
    storage: _Storage
    ignition: msgspec.Raw = _NONE
    kernelArguments: msgspec.Raw = _NONE  # noqa: N815  the name in the schema
    passwd: msgspec.Raw = _NONE
    systemd: msgspec.Raw = _NONE


class _Spec(msgspec.Struct, forbid_unknown_fields=True):
    config: _Config
    baseOSExtensionsContainerImage: msgspec.Raw = _NONE  # noqa: N815
    extensions: msgspec.Raw = _NONE
    fips: msgspec.Raw = _NONE
    kernelArguments: msgspec.Raw = _NONE  # noqa: N815
    kernelType: msgspec.Raw = _NONE  # noqa: N815
    osImageURL: msgspec.Raw = _NONE  # noqa: N815


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    spec: _Spec
    apiVersion: msgspec.Raw = _NONE  # noqa: N815
    kind: msgspec.Raw = _NONE
    metadata: msgspec.Raw = _NONE
    status: msgspec.Raw = _NONE


_DECODER: Final = msgspec.json.Decoder(_Document)


def read(text: bytes, cache: Cache) -> dict[str, object] | None:
    """The document as ``document.load`` gives it, but with ``QuickFiles`` for its files; None: use that instead."""
    if len(text) > MAX_BYTES:
        return None
    colons, backslashes = _count(text)
    if colons > MAX_COLONS:
        return None
    try:
        document = _DECODER.decode(text)
        rest = _Rest()
        data = rest.plain(document, ())
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, InvalidInput):
        return None
    # Without a backslash outside of the rest no escape can stand for a colon or hide one.
    if backslashes != rest.backslashes:
        return None
    quick = read_usual(document.spec.config.storage.files, cache)
    if quick is None or colons != rest.colons + quick.colons:
        return None
    rest.storage["files"] = quick
    return data


def _count(text: bytes) -> tuple[int, int]:
    """Its colons and backslashes. ``bytes.count`` looks at every byte, which is slow for what is rare."""
    colons = backslashes = 0
    for start in range(0, len(text), _PIECE):
        piece = text[start : start + _PIECE]
        colons += len(piece) - len(piece.replace(b":", b""))
        if b"\\" in piece:
            backslashes += piece.count(b"\\")
    return colons, backslashes


class _Rest:
    """All but the files, decoded the careful way."""

    def __init__(self) -> None:
        self.colons = 0
        self.backslashes = 0
        self.storage: dict[str, object] = {}
        self._weight = 0

    def plain(self, part: msgspec.Struct, trail: tuple[str, ...]) -> dict[str, object]:
        """``part`` without what it does not have; ``trail`` are the keys that lead to it."""
        data: dict[str, object] = {}
        for key in part.__struct_fields__:
            value: object = getattr(part, key)
            if value is _NONE:
                continue
            self.colons += 1
            if isinstance(value, msgspec.Raw):
                data[key] = self._decode(bytes(value), (*trail, key))
            elif isinstance(value, msgspec.Struct):
                data[key] = self.plain(value, (*trail, key))
        if isinstance(part, _Storage):
            self.storage = data
        return data

    def _decode(self, text: bytes, trail: tuple[str, ...]) -> object:
        self.colons += text.count(b":")
        self.backslashes += text.count(b"\\")
        self._weight += weight(text)
        if self._weight > MAX_REST:
            raise InvalidInput("too many values for the fast way")
        data = decode_json(text, "the document")
        inspect(data, "the document", trail)
        return data
