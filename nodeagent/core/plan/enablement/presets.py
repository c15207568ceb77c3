# SPDX-License-Identifier: Apache-2.0
"""Presets: systemd.preset(5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final

from nodeagent.core.config.unit_names import is_template, template_of

# The directories of presets; of files with one name the first counts.
PRESETS: Final = tuple(f"{top}/systemd/system-preset" for top in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))


class Preset(Enum):
    ENABLE = "enable"
    DISABLE = "disable"
    IGNORE = "ignore"


def preset_of(unit: str, texts: Iterable[str]) -> tuple[Preset, Sequence[str]]:
    """Return the decision of the presets about a unit, and the instances that a template is enabled with.

    The first line that matches decides. Without one, a unit is enabled.
    """
    for text in texts:
        for line in text.splitlines():
            verb, *rest = line.split() or [""]
            if verb not in {preset.value for preset in Preset} or not rest:
                continue
            pattern, *instances = rest
            if is_template(pattern) and instances:
                units = [pattern.replace("@.", f"@{instance}.") for instance in instances]
                if unit == pattern:
                    return Preset(verb), units
                if unit in units or fnmatchcase(unit, pattern):
                    return Preset(verb), ()
                if template_of(unit) == pattern:
                    continue
            if fnmatchcase(unit, pattern):
                return Preset(verb), ()
    return Preset.ENABLE, ()
