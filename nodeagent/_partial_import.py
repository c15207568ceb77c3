"""Import modules of a package without its ``__init__``, which Python otherwise runs first.

``import structlog`` loads a renderer for development, ``import dbus_next`` two message buses and a generator of
proxies. The daemon and each command that calls it use neither. Without them, the import of structlog takes 3 ms
instead of 42, that of dbus_next 12 instead of 37 (CPU time, Python 3.11, two cores). The modules behind are private
parts of their packages, so pyproject.toml pins the versions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


@contextmanager
def without_init(package: str) -> Iterator[None]:
    """Inside, import modules of ``package`` without its ``__init__``. A parent package must be imported already.

    A later import of the package is complete, with the same modules. If the package is imported already, or is not
    installed, nothing is changed, and the import inside raises its own error.
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
