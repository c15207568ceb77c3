# SPDX-License-Identifier: Apache-2.0
"""Which features are installed. The base asks here what they declare, because it must not know their list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, Protocol


class AdminTree(NamedTuple):
    """A directory below /etc/nodeagent with what an admin wants a feature to read for each update.

    The package of the feature lists it in ``TREES``. ``module`` is pure: ``problems(path, node)`` yields why the
    feature would refuse an entry of a config, at a path below the directory; ``unread(name)`` returns why nothing reads
    an entry of the directory, "" if something does.
    """

    name: str
    module: str

    @property
    def path(self) -> str:
        return f"/etc/nodeagent/{self.name}"

    def problems(self, path: str, node: object) -> Iterator[str]:
        found: Iterator[str] = import_module(self.module).problems(path, node)
        return found

    def unread(self, name: str) -> str:
        return str(import_module(self.module).unread(name))


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
    def accepts(self) -> Callable[[Any], Collection[str]]: ...

    @property
    def acceptable(self) -> Mapping[str, str]: ...

    @property
    def check_request(self) -> Callable[[Mapping[str, str]], None] | None: ...

    @property
    def methods(self) -> Sequence[Any]: ...

    @property
    def self_checks(self) -> Sequence[Any]: ...

    @property
    def title(self) -> str: ...

    @property
    def serves_tree(self) -> Callable[[Any], bool] | None: ...

    @property
    def os_service(self) -> Callable[[Any, bool], Awaitable[Any]] | None: ...


def _listed() -> Mapping[str, Declared]:
    # By its name and only when it is needed: the list imports the doors, and they import the base.
    listed: Mapping[str, Declared] = import_module("nodeagent.features").doors()
    return listed


_find: Callable[[], Mapping[str, Declared]] = _listed


def doors() -> Sequence[Declared]:
    """Return the doors of ``nodeagent.features``, or those of ``replaced``."""
    return list(_find().values())


def doors_by_name() -> Mapping[str, Declared]:
    """Return the same by the folder of each feature, or by their numbers in ``replaced``."""
    return _find()


def trees() -> Sequence[AdminTree]:
    """Return the trees of the features of ``nodeagent.features``."""
    listed: Sequence[AdminTree] = import_module("nodeagent.features").trees()
    return listed


def domains() -> Sequence[Any]:
    """Return the domains (``core.plan.domain.Domain``) of the features of ``nodeagent.features``."""
    listed: Sequence[Any] = import_module("nodeagent.features").domains()
    return listed


def options() -> Sequence[Any]:
    """Return the options that the features of ``nodeagent.features`` add to a request (``commands.Option``)."""
    listed: Sequence[Any] = import_module("nodeagent.features").options()
    return listed


@contextmanager
def replaced(others: Sequence[Declared]) -> Iterator[None]:
    """Inside, these doors are installed and no others. For tests."""
    global _find
    numbered = {str(number): door for number, door in enumerate(others)}
    before, _find = _find, lambda: numbered
    try:
        yield
    finally:
        _find = before
