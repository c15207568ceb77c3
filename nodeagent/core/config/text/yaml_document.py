# SPDX-License-Identifier: Apache-2.0
"""Decode YAML to plain data from the events of the parser, in bounded memory.

PyYAML's constructors expand aliases and build dates, numbers of base 60 and, from tags, objects. The tools of a cluster
convert YAML to JSON and do none of the last three. So tags and merge keys are rejected here, anchors and aliases unless
the caller reads the file of a program that does, and a plain scalar is null, a boolean, a number or a string.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from nodeagent.core.config.problems import Problems, place, shown
from nodeagent.core.config.text.limits import MAX_DEPTH, MAX_NODES
from nodeagent.errors import InvalidInput

# For the parser written in Python, which takes ten times as long as libyaml.
MAX_SLOW_BYTES: Final = 512 * 1024
# Events in place of aliases. A small text could have millions.
MAX_COPIED: Final = 10_000
# No integer of 64 bits has more in any base.
MAX_DIGITS: Final = 80
_Loader: Any = getattr(yaml, "CSafeLoader", None)

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
# The words of YAML 1.1 that PyYAML resolves, without the single letters y and n of the specification.
_TRUES: Final = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSES: Final = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)")
_FRACTION = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)")
_NO_BREAK: Final = b"\xc2\xa0"
# Bytes of a text that show what it is.
_STARTED: Final = 1000
_MARKUP = re.compile(rb"<[!?a-zA-Z]")
_NUMBER_START: Final = frozenset("0123456789+-.")


def load(text: bytes, what: str, *, aliases: bool = False) -> object:
    """Return the data of the document in ``text``, which ``document.check_text`` has accepted. ``aliases``: they are
    read, and their values count at each place.
    """
    if _Loader is None and len(text) > MAX_SLOW_BYTES:
        raise InvalidInput(f"{what} is {len(text)} bytes of YAML; without libyaml at most {MAX_SLOW_BYTES} are read")
    builder = _Builder(what)
    try:
        for event in _expanded(_events(text), what) if aliases else _events(text):
            builder.feed(event)
    except yaml.MarkedYAMLError as error:
        problem = f"{_mark(error.problem_mark)}{error.problem}{_advice(text, error)}"
        raise InvalidInput(f"{what} is not valid YAML: {problem}") from None
    except yaml.YAMLError as error:
        where = getattr(error, "position", None)
        place = "" if where is None else f"offset {where}: "
        raise InvalidInput(f"{what} is not valid YAML: {place}a character that YAML does not allow") from None
    if not builder.documents:
        raise InvalidInput(f"{what} is empty")
    builder.problems.check(what)
    return builder.root


def foreign(text: bytes) -> str:
    """Return what a text is that was pasted or loaded in place of a document, with the remedy; "" for any other."""
    start = text[:_STARTED].lstrip()
    if start.startswith(b"```"):
        return "it is in a Markdown block: delete the lines with ```"
    if _MARKUP.match(start):
        return "it is a web page or XML: check the address that it was loaded from"
    return ""


def _advice(text: bytes, error: yaml.MarkedYAMLError) -> str:
    """Return the remedy for the mistakes that are made most often, which libyaml describes in its own terms."""
    if what := foreign(text):
        return f": {what}"
    mark, lines = error.problem_mark, text.splitlines()
    # It looks like a blank. libyaml takes it for a letter, and fails there or some lines later.
    for number, line in enumerate(lines[: mark.line + 1] if mark is not None else (), 1):
        if _NO_BREAK in line[: len(line) - len(line.lstrip(b" " + _NO_BREAK))]:
            return f": line {number} is indented with a no-break space (U+00A0): write a blank"
    if mark is not None and mark.line < len(lines) and lines[mark.line][: mark.column + 1].endswith(b"\t"):
        return ": indent with spaces, not with tabs"
    if error.problem == "did not find expected key":
        return ": check the indentation of this line and of those above"
    return ""


def _events(text: bytes) -> Iterator[Any]:
    parser = (_Loader or yaml.SafeLoader)(text)
    try:
        while parser.check_event():
            yield parser.get_event()
    finally:
        parser.dispose()


def _expanded(events: Iterator[Any], what: str) -> Iterator[Any]:
    """Yield the events with those of the anchored node in place of each alias."""
    # All that was yielded, and by anchor where its node begins and ends there: None while it is open.
    yielded: list[Any] = []
    places: dict[str, tuple[int, int | None]] = {}
    # For each open collection, its anchor.
    anchors: list[str | None] = []
    copied = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            start, end = places.get(event.anchor or "", (0, None))
            if end is None:
                raise InvalidInput(f"{what} is refused: {_mark(event.start_mark)}the alias has no value")
            copied += end - start
            if copied > MAX_COPIED:
                raise InvalidInput(f"{what} is refused: {_mark(event.start_mark)}its aliases have too many values")
            yielded += yielded[start:end]
            yield from yielded[start:end]
            continue
        if isinstance(event, yaml.DocumentStartEvent):
            places.clear()
        anchor = None
        if isinstance(event, yaml.NodeEvent):
            anchor, event.anchor = event.anchor, None
            if anchor is not None:
                places[anchor] = len(yielded), None
            if isinstance(event, yaml.CollectionStartEvent):
                anchors.append(anchor)
                anchor = None
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor = anchors.pop()
        yielded.append(event)
        if anchor is not None:
            places[anchor] = places[anchor][0], len(yielded)
        yield event


def _mark(mark: Any) -> str:
    return "" if mark is None else f"line {mark.line + 1} column {mark.column + 1}: "


class _Builder:
    """Builds the document from events, with a stack of open collections."""

    def __init__(self, what: str) -> None:
        self.root: object = None
        self.documents = 0
        self.problems = Problems()
        self._what = what
        # With recursion, the input would choose the depth of the interpreter's stack.
        self._open: list[dict[str, object] | list[object]] = []
        # For each open mapping, the key that has no value yet.
        self._keys: list[str | None] = []
        # For each open collection except the outermost, its key or index.
        self._trail: list[str | int] = []
        self._nodes = 0
        # The beginning of the document that is read.
        self._start: Any = None

    def feed(self, event: Any) -> None:
        match event:
            case yaml.ScalarEvent(value="") if not self._open and event.implicit[0]:
                # An empty document, as behind a --- at the end of the output of a template engine.
                pass
            case yaml.ScalarEvent():
                self._node(event)
                self._scalar(event)
            case yaml.MappingStartEvent():
                self._node(event)
                self._begin({}, event)
            case yaml.SequenceStartEvent():
                self._node(event)
                self._begin([], event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._open.pop()
                self._keys.pop()
                del self._trail[max(len(self._open) - 1, 0) :]
            case yaml.AliasEvent():
                self._refuse(event, "aliases are not read: write the value out")
            case yaml.DocumentStartEvent():
                self.documents += 1
                self._start = event
            case _:
                pass

    def _refuse(self, event: Any, problem: str) -> None:
        raise InvalidInput(f"{self._what} is refused: {_mark(event.start_mark)}{problem}")

    def _node(self, event: Any) -> None:
        if not self._open and self._nodes:
            self._refuse(self._start, "there is more than one document: apply one at a time")
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._refuse(event, f"there are more than {MAX_NODES} values")
        if event.anchor is not None:
            self._refuse(event, "anchors are not read: write the value out at each place")
        if event.tag is not None:
            self._refuse(event, "tags are not read")

    def _step(self) -> str | int:
        """Return the key or index of the next value of the innermost collection."""
        parent, key = self._open[-1], self._keys[-1]
        return len(parent) if isinstance(parent, list) else key or ""

    def _begin(self, value: dict[str, object] | list[object], event: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            self._refuse(event, f"it is nested deeper than {MAX_DEPTH} levels")
        if self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None:
            self._refuse(event, "a key must be a string; a template ({{ }}) must be rendered first")
        if self._open:
            self._trail.append(self._step())
        self._put(value)
        self._open.append(value)
        self._keys.append(None)

    def _scalar(self, event: Any) -> None:
        plain = event.implicit[0]
        if self._open and isinstance(parent := self._open[-1], dict) and self._keys[-1] is None:
            if plain and not isinstance(_resolve(event.value), str):
                self._refuse(event, f"the key {shown(event.value)} must be a string: put it in quotes")
            # Quoted, it is an ordinary key. As a merge key it would copy another mapping, which needs an alias.
            if plain and event.value == "<<":
                self._refuse(event, "merge keys are not read")
            if event.value in parent:
                where = f"{_mark(event.start_mark)}the key {shown(event.value)} occurs twice"
                self.problems.add(place(self._trail), where)
            self._keys[-1] = event.value
            return
        self._put(_resolve(event.value) if plain else event.value)

    def _put(self, value: object) -> None:
        if not self._open:
            self.root = value
            return
        parent = self._open[-1]
        if isinstance(parent, list):
            parent.append(value)
            return
        key = self._keys[-1]
        assert key is not None, "_begin and _scalar have checked the key"
        parent[key] = value
        self._keys[-1] = None


def _resolve(text: str) -> object:
    """Return the value of a plain scalar."""
    if text in _NULLS:
        return None
    # The empty text is one of the nulls.
    if text[0] in _NUMBER_START:
        return _number(text)
    if text in _TRUES:
        return True
    if text in _FALSES:
        return False
    return text


def _number(text: str) -> object:
    """The number may be outside of the bounds, which ``document.inspect`` checks."""
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FRACTION.fullmatch(text):
        return float(text.replace("_", ""))
    return math.nan if _NOT_FINITE.fullmatch(text) else text


def _integer(text: str) -> object:
    digits = text.lstrip("+-").replace("_", "")
    if len(digits) > MAX_DIGITS:
        return math.inf
    # 0644, the usual form of a mode, is octal in YAML 1.1, and 0o644 in YAML 1.2.
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    try:
        value = int(digits, 8 if octal else 0)
    except ValueError:
        # Only underscores follow the prefix.
        return text
    return -value if text.startswith("-") else value
