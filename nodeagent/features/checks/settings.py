# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from nodeagent.settings.part import Part


class CheckSettings(Part, frozen=True, forbid_unknown_fields=True):
    """``timeout``: longest time for one check of the admin in /etc/nodeagent/checks, in seconds. After that all of its
    processes are killed, and it has failed. 60: a check that waits for a service of its own has time to do so."""

    group = "checks"

    timeout: Annotated[float, Meta(ge=1, le=600)] = 60
