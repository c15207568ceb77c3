"""What is left of settings that are not valid: the keys that are, over the defaults.

Good enough to find the store and to set the log level. Nothing is decided by them: a misspelt ``reboot.allow: false``
would allow reboots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from nodeagent.errors import InvalidInput
from nodeagent.settings.schema import DIRECTORIES, KNOBS, Fragment, Settings, find, merge, read

__all__ = ["salvage", "valid_keys"]


def salvage(directories: Sequence[str | Path] = DIRECTORIES) -> Settings:
    fragments: list[Fragment] = []
    for directory in directories:
        try:
            paths = find([directory])
        except InvalidInput:
            continue
        for path in paths:
            try:
                fragments.append(read(path))
            except InvalidInput:
                continue
    return valid_keys({key: value.value for key, value in merge(fragments).items()})


def valid_keys(values: Mapping[str, Any]) -> Settings:
    """``values`` by dotted key; those that are unknown or wrong are left out."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        if key not in KNOBS:
            continue
        try:
            good = msgspec.convert(value, KNOBS[key])
        except msgspec.ValidationError:
            continue
        group, _, name = key.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[name] = good
    return msgspec.convert(tree, Settings)
