# SPDX-License-Identifier: Apache-2.0
"""What the fence adds to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

from nodeagent.features.fence.events import FenceChanged
from nodeagent.update.ports.events import UpdateContext
from nodeagent.update.states import Phase

EVENTS: Final = (FenceChanged(UpdateContext(Phase.ACTING, current="worker-1", desired="worker-2"), None, "ended"),)
