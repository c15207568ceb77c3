"""Parts of a dependency without the rest of it.

``import structlog`` brings its development renderer along, ``import dbus_next`` two message buses and a generator of
proxies: 60 ms of every start, for code that is never called. Python runs a package's ``__init__`` before any of its
modules, so an empty one stands in for it meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

__all__ = ["without_init"]


@contextmanager
def without_init(package: str) -> Iterator[None]:
    """Inside, modules of ``package`` are imported without its ``__init__``. If it is in another package, that one is
    imported already, whole or not.

    Whoever imports the package afterwards gets it whole, with the same modules. Nothing happens if somebody did before,
    or if it is not installed: the import inside then says so.
    """
    parent = sys.modules.get(package.rpartition(".")[0])
    path = None if parent is None else list(parent.__path__)
    spec = None if package in sys.modules else PathFinder.find_spec(package, path)
    if spec is None:
        yield
        return
    sys.modules[package] = module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[package]
