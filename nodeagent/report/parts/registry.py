# SPDX-License-Identifier: Apache-2.0
"""The views of all parts of the status: those of the base, and those of the features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nodeagent.installed import doors
from nodeagent.report.part_view import PartView

_BASE: Final[Sequence[PartView[Any]]] = ()


def part_views() -> Sequence[PartView[Any]]:
    """Return the views of the base, then those of the installed features.

    That is their order in the status and on the page of metrics.
    """
    return *_BASE, *(view for door in doors() for view in door.status)
