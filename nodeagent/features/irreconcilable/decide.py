# SPDX-License-Identifier: Apache-2.0
"""Which sections of a config this host does not have: those that differ from what it was installed with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from nodeagent.core.config.text import plain_json

# Section, as in ``MachineConfig.unapplied``, to the digest of its content.
Sections = Mapping[str, str]

HOW: Final = "this host keeps what it was installed with"


def differing(installed: Sections, config: Sections) -> tuple[str, ...]:
    """Return the sections of a config that differ from those that the host was installed with."""
    return tuple(
        sorted(section for section in installed.keys() | config.keys() if installed.get(section) != config.get(section))
    )


def to_text(installed: Sections) -> str:
    return json.dumps(dict(installed), sort_keys=True)


def from_text(text: str) -> Sections | None:
    """Return the sections of ``to_text``, None if nothing was kept, or something else."""
    # The store has what an agent of another version wrote.
    try:
        kept = plain_json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(kept, dict) or not all(isinstance(value, str) for value in kept.values()):
        return None
    return kept
