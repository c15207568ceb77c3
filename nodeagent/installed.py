# SPDX-License-Identifier: Apache-2.0
"""Which features are installed. The base asks here what they declare, because it must not know their list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    def methods(self) -> Sequence[Any]: ...

    @property
    def self_checks(self) -> Sequence[Any]: ...


_find: Callable[[], Sequence[Declared]] | None = None


def install(find: Callable[[], Sequence[Declared]]) -> None:
    """Set what returns the doors. They are imported when something asks for them, which takes time."""
    global _find
    _find = find


def doors() -> Sequence[Declared]:
    if _find is None:
        raise RuntimeError("nodeagent.features.install() comes first")
    return _find()
