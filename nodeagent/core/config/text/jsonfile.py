"""The typed form in which the files of a JSON document are decoded: most of the bytes of a config, at C speed.

These are the usual keys. An entry with any other is not decoded this way, nor is its document. The sources stay what
they are in the text, a JSON value that is not copied; those who read them look at what it is.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from nodeagent.core.config.text.document import MAX_INT

__all__ = ["JsonContents", "JsonFile", "JsonOwner", "JsonVerification"]

_ABSENT: Final = msgspec.Raw()
_Integer = Annotated[int, msgspec.Meta(ge=-MAX_INT - 1, le=MAX_INT)]


class JsonVerification(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    hash: str | None = None


class JsonContents(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    source: msgspec.Raw = _ABSENT
    compression: str | None = None
    verification: JsonVerification | None = None


class JsonOwner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    id: _Integer | None = None
    name: str | None = None


class JsonFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    path: str
    contents: JsonContents | None = None
    mode: _Integer | None = None
    overwrite: bool | None = None
    user: JsonOwner | None = None
    group: JsonOwner | None = None

    def plain(self) -> object:
        """The entry as an object of a document. Raises ``ValueError`` if its source is not UTF-8."""
        return msgspec.json.decode(msgspec.json.encode(self))

    def colons(self) -> int:
        """How many the entry has in a text without escapes if it has no key twice: one for each key with a value,
        and those in strings."""
        return msgspec.json.encode(self).count(b":")
