"""Check the files of registries.d, which name the places of image signatures: containers-registries.d(5).

The readers take all files together whose names end in ``.yaml``. One that cannot be parsed, or a namespace that two
files define, fails each access to a registry. Unknown keys are accepted, as by the readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from nodeagent.core.config.problems import kind_of, shown
from nodeagent.core.config.text import document
from nodeagent.errors import InvalidInput

DEFAULT: Final = "default-docker"
NAMESPACES: Final = "docker"
TEXTS: Final = ("lookaside", "lookaside-staging", "sigstore", "sigstore-staging")
SWITCH: Final = "use-sigstore-attachments"


def check(content: bytes) -> Iterator[str]:
    try:
        data = _load(content)
    except InvalidInput as error:
        yield from (f"{p.path}: {p.message}" for p in error.problems) if error.problems else (error.message,)
        return
    if not isinstance(data, dict):
        yield f"must be a mapping, is {kind_of(data)}"
        return
    yield from _namespace(DEFAULT, data.get(DEFAULT))
    namespaces = data.get(NAMESPACES)
    if isinstance(namespaces, dict):
        for name, value in namespaces.items():
            yield from _namespace(f"{NAMESPACES}.{shown(name)}", value)
    elif namespaces is not None:
        yield f"{NAMESPACES} must be a mapping, is {kind_of(namespaces)}"


def twice(files: Mapping[str, bytes]) -> Iterator[tuple[str, str, str]]:
    """Yield what two files define, and both paths. Files that cannot be read define nothing."""
    found: dict[str, str] = {}
    for path in sorted(files):
        for name in _names(files[path]):
            if (other := found.setdefault(name, path)) != path:
                yield name, other, path


def _names(content: bytes) -> Iterator[str]:
    try:
        data = _load(content)
    except InvalidInput:
        return
    if isinstance(data, dict):
        if data.get(DEFAULT) is not None:
            yield DEFAULT
        namespaces = data.get(NAMESPACES)
        yield from (f"{NAMESPACES}.{shown(name)}" for name in namespaces) if isinstance(namespaces, dict) else ()


def _load(content: bytes) -> object:
    lines = (line.strip() for line in content.splitlines())
    # The file of a distribution may have nothing but comments, which is no document.
    return document.load(content, "the file") if any(line and not line.startswith(b"#") for line in lines) else {}


def _namespace(where: str, value: object) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield f"{where} must be a mapping, is {kind_of(value)}"
        return
    for key in TEXTS:
        # The readers take numbers for text.
        if isinstance(value.get(key), dict | list):
            yield f"{where}.{key} must be a string"
    if not isinstance(value.get(SWITCH), bool | None):
        yield f"{where}.{SWITCH} must be true or false"
