# SPDX-License-Identifier: Apache-2.0
"""Read one object of a document key by key, and report each value of a wrong type and each unknown key.

For small documents without a fixed type. Null and absent mean the same, so every method returns None for both. A key
that was not read is an error: a typing error must not become "not configured".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodeagent.core.config.problems import Location, Problems, kind_of, name_in, shown, similar


class Fields(Location):
    """``value`` is the object at ``path`` of the document, in the entry of the name ``about``."""

    __slots__ = ("_data", "_known")

    def __init__(self, value: object, path: str, problems: Problems, about: str | None = None) -> None:
        super().__init__(problems, path, about)
        self._known: set[str] = set()
        self._data: Mapping[str, object] = {}
        if isinstance(value, dict):
            self._data = value
        elif value is not None:
            self.bad("", f"must be an object, is {kind_of(value)}")

    def raw(self, key: str) -> object:
        """Return the value unchecked."""
        self._known.add(key)
        return self._data.get(key)

    def text(self, key: str) -> str | None:
        value = self.raw(key)
        if value is None or isinstance(value, str):
            return value
        self.bad(key, f"must be a string, is {kind_of(value)}")
        return None

    def required(self, key: str) -> str | None:
        """Return a text that must be there; None after a report that it is not."""
        # ``text`` reports a value of another type.
        if (value := self.text(key)) is None and self.raw(key) is None:
            self.bad(key, "is required")
        return value

    def child(self, key: str) -> Fields:
        # An absent object reads as an empty one, so that a reader needs no second case.
        return Fields(self.raw(key), self.at(key), self.problems, self.about)

    def items(self, key: str) -> list[object]:
        value = self.raw(key)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        self.bad(key, f"must be a list, is {kind_of(value)}")
        return []

    def children(self, key: str) -> Iterator[Fields]:
        for index, value in enumerate(self.items(key)):
            yield Fields(value, f"{self.at(key)}[{index}]", self.problems, self.about or name_in(value))

    def texts(self, key: str) -> list[str]:
        texts = []
        for index, value in enumerate(self.items(key)):
            if isinstance(value, str):
                texts.append(value)
            else:
                self.bad(f"{key}[{index}]", f"must be a string, is {kind_of(value)}")
        return texts

    def finish(self) -> None:
        """Report the keys that were not read. Call this after the last read."""
        # A key that the object already has is not the one that a misspelt key was meant to be.
        for key in self._data.keys() - self._known:
            self.bad("", f"unknown key {shown(key)}{similar(key, self._known - self._data.keys())}")
