"""The typed form in which the files of a JSON document are decoded: most of the bytes of a config, at C speed.

These are the usual keys. An entry with any other is not decoded this way, nor is its document.
"""

from __future__ import annotations

import msgspec

__all__ = ["JsonContents", "JsonFile", "JsonOwner", "JsonVerification"]


class JsonVerification(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    hash: str | None = None


class JsonContents(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    source: str | None = None
    compression: str | None = None
    verification: JsonVerification | None = None


class JsonOwner(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    id: int | None = None
    name: str | None = None


class JsonFile(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    path: str
    contents: JsonContents | None = None
    mode: int | None = None
    overwrite: bool | None = None
    user: JsonOwner | None = None
    group: JsonOwner | None = None

    def plain(self) -> object:
        """The entry as an object of a document."""
        return msgspec.to_builtins(self)
