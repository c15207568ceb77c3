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

    def colons(self) -> int:
        """How many the text of this entry has if it has no key twice: one for each key, and those in strings."""
        contents = self.contents
        count = 1 + self.path.count(":") + (self.mode is not None) + (self.overwrite is not None)
        if contents is not None:
            count += 1
            if contents.source is not None:
                count += 1 + contents.source.count(":")
            if contents.compression is not None:
                count += 1 + contents.compression.count(":")
            if contents.verification is not None:
                text = contents.verification.hash
                count += 1 if text is None else 2 + text.count(":")
        for owner in (self.user, self.group):
            if owner is not None:
                count += 1 + (owner.id is not None) + (0 if owner.name is None else 1 + owner.name.count(":"))
        return count

    def plain(self) -> object:
        """The entry as an object of a document."""
        return msgspec.to_builtins(self)
