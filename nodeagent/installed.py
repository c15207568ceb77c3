# SPDX-License-Identifier: Apache-2.0
"""Which features are installed. The base asks here what they declare, because it must not know their list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol


class Declared(Protocol):
    """What a door declares; ``nodeagent.door.Door`` explains each."""

    @property
    def settings(self) -> Sequence[type[Any]]: ...

    @property
    def reasons(self) -> type[Any] | None: ...

    @property
    def events(self) -> Sequence[Any]: ...

    @property
    def status(self) -> Sequence[Any]: ...

    @property
    def check_request(self) -> Callable[[Mapping[str, str]], None] | None: ...

    @property
    def methods(self) -> Sequence[Any]: ...

    @property
    def self_checks(self) -> Sequence[Any]: ...

    @property
    def os_service(self) -> Callable[[Any], Awaitable[Any]] | None: ...


def _listed() -> Sequence[Declared]:
    # By its name and only when it is needed: the list imports the doors, and they import the base.
    listed: Sequence[Declared] = list(import_module("nodeagent.features").doors().values())
    return listed


_find: Callable[[], Sequence[Declared]] = _listed


def doors() -> Sequence[Declared]:
    """Return the doors of ``nodeagent.features``, or those of ``replaced``."""
    return _find()


@contextmanager
def replaced(others: Sequence[Declared]) -> Iterator[None]:
    """Inside, these doors are installed and no others. For tests."""
    global _find
    before, _find = _find, lambda: others
    try:
        yield
    finally:
        _find = before
