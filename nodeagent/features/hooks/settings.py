# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from nodeagent.settings.part import Part


class HookSettings(Part, frozen=True, forbid_unknown_fields=True):
    """``timeout``: longest time for one hook of the admin in /etc/nodeagent/hooks, in seconds. After that all of its
    processes are killed. 30: a request to a slow server has time to fail before."""

    group = "hooks"

    timeout: Annotated[float, Meta(ge=1, le=600)] = 30
