# SPDX-License-Identifier: Apache-2.0
"""All targets, by name: those of the base, and those of each feature (``fuzz.py`` of its tests)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final

from integration.fuzz import api, bus, documents, records, servers
from integration.fuzz.target import Target

_FEATURES: Final = sorted(Path(__file__).parents[2].glob("tests/features/*/fuzz.py"))
_MODULES: Final = (
    *(api, bus, documents, records, servers),
    *(import_module(f"tests.features.{path.parent.name}.fuzz") for path in _FEATURES),
)
TARGETS: Final[dict[str, Target]] = {target.name: target for module in _MODULES for target in module.TARGETS}
