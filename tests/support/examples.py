# SPDX-License-Identifier: Apache-2.0
"""Entries that features add to the tables of the base's tests: ``examples.py`` among the tests of a feature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from nodeagent import features


def listed(name: str) -> list[Any]:
    """Return the entries of all installed features under this name."""
    return [entry for entries in by_feature(name).values() for entry in entries]


def joined(name: str) -> dict[Any, Any]:
    """Return the tables of all installed features of this name as one."""
    return {key: value for module in _modules().values() for key, value in getattr(module, name, {}).items()}


def by_feature(name: str) -> Mapping[str, Sequence[Any]]:
    """Return the entries under this name by the folder of the feature."""
    return {feature: getattr(module, name) for feature, module in _modules().items() if hasattr(module, name)}


def _modules() -> dict[str, ModuleType]:
    return dict(_found())


def _found() -> Iterator[tuple[str, ModuleType]]:
    for feature in features.NAMES:
        module = f"tests.features.{feature}.examples"
        if find_spec(module):
            yield feature, import_module(module)
