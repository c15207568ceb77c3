"""Reading one object of a document key by key, with a problem for each value of a wrong type and each unknown key.

nil and absent are the same everywhere in these schemas, so every reader returns None for both. A key that nobody asked
for is an error: a typo must not become "not configured".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodeagent.core.config.problems import MAX_QUOTED, Problems, kind_of, shown

__all__ = ["Fields"]


class Fields:
    """``path`` is where the object is in the document; the problems found go to ``problems``."""

    __slots__ = ("_data", "_known", "about", "path", "problems")

    def __init__(self, value: object, path: str, problems: Problems, about: str = "") -> None:
        self.path = path
        self.about = about  # what an index in the path stands for, such as the path of a file: for people
        self.problems = problems
        self._known: set[str] = set()
        self._data: Mapping[str, object] = {}
        if isinstance(value, dict):
            self._data = value
        elif value is not None:
            problems.add(path, f"must be an object, is {kind_of(value)}", about)

    def __bool__(self) -> bool:
        return any(value is not None for value in self._data.values())

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path and key else self.path or key

    def bad(self, key: str, message: str) -> None:
        """A problem of the value of ``key``; of the object itself if that is ""."""
        self.problems.add(self.at(key), message, self.about)

    def everything(self) -> Mapping[str, object]:
        """The whole object, and each key of it is known, for what is only compared."""
        self._known.update(self._data)
        return self._data

    def raw(self, key: str) -> object:
        """The value as it is."""
        self._known.add(key)
        return self._data.get(key)

    def text(self, key: str) -> str | None:
        value = self.raw(key)
        if value is None or isinstance(value, str):
            return value
        self.bad(key, f"must be a string, is {kind_of(value)}")
        return None

    def flag(self, key: str) -> bool | None:
        value = self.raw(key)
        if value is None or isinstance(value, bool):
            return value
        self.bad(key, f"must be true or false, is {kind_of(value)}")
        return None

    def number(self, key: str) -> int | None:
        value = self.raw(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        self.bad(key, f"must be an integer, is {kind_of(value)}")
        return None

    def child(self, key: str) -> Fields:
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
            yield Fields(value, f"{self.at(key)}[{index}]", self.problems, self.about)

    def texts(self, key: str) -> list[str]:
        found = []
        for index, value in enumerate(self.items(key)):
            if isinstance(value, str):
                found.append(value)
            else:
                self.bad(f"{key}[{index}]", f"must be a string, is {kind_of(value)}")
        return found

    def others(self) -> list[tuple[str, object]]:
        """What was not read yet, for objects of which we apply a part and compare the rest."""
        rest = [(key, value) for key, value in self._data.items() if key not in self._known]
        self._known.update(self._data)
        return rest

    def finish(self) -> None:
        """Call after the last read: everything that was not asked for is unknown."""
        for key in self._data.keys() - self._known:
            self.problems.add(self.path, f"unknown key {shown(key)}{self._meant(key)}", self.about)

    def _meant(self, key: str) -> str:
        from difflib import get_close_matches  # 3 ms that a good document need not pay

        close = get_close_matches(key[:MAX_QUOTED], sorted(self._known - self._data.keys()), 1, cutoff=0.75)
        return f"; did you mean {close[0]}?" if close else ""
